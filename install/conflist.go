package install

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ovn-multinet/ovn-multinet/conf"
)

// ConflistName is the file that we write: runtimes take the first of the folder by name.
const ConflistName = "05-ovn-multinet.conflist"

// errNoPrimary says that there is nothing to chain to yet.
var errNoPrimary = errors.New("there is no CNI configuration of a primary network yet")

// configurations are the names that runtimes look at in a folder, in their order.
func configurations(dir string) (names []string, err error) {
	entries, err := os.ReadDir(dir)
	for _, e := range entries { // sorted by name
		if !e.IsDir() && !strings.HasPrefix(e.Name(), ".") && slices.Contains([]string{".conf", ".conflist", ".json"}, filepath.Ext(e.Name())) {
			names = append(names, e.Name())
		}
	}
	return names, err
}

// firstFile is the configuration that runtimes go by: ours, as a rule.
func firstFile(dir string) string {
	names, _ := configurations(dir)
	return append(names, ConflistName)[0]
}

// primaryFile returns the configuration that a runtime would take if ours were not there. Files that are not JSON
// objects with plugins in them are passed over.
func primaryFile(dir string) (name string, text []byte, err error) {
	names, err := configurations(dir)
	if err != nil {
		return "", nil, err
	}
	for _, name := range names {
		if name == ConflistName {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue // it went since, or is a link to nowhere
		}
		if err != nil {
			return "", nil, err
		}
		if len(bytes.TrimSpace(text)) == 0 {
			return "", nil, fmt.Errorf("%s is empty: it is being written", name) // and the next file is not meant
		}
		if _, err := parseList(text); err == nil {
			return name, text, nil
		}
	}
	return "", nil, fmt.Errorf("%s: %w", dir, errNoPrimary)
}

// list is a conflist whose parts are kept as they came.
type list struct {
	keys    map[string]json.RawMessage
	plugins []json.RawMessage
}

// parseList reads a conflist, or a single plugin's configuration as a conflist of one (CNI before 1.0 has both).
func parseList(text []byte) (*list, error) {
	l := &list{}
	if err := json.Unmarshal(text, &l.keys); err != nil {
		return nil, err
	}
	if l.keys == nil {
		return nil, errors.New("null is no configuration")
	}
	if raw, isList := l.keys["plugins"]; isList {
		if err := json.Unmarshal(raw, &l.plugins); err != nil {
			return nil, fmt.Errorf("plugins: %w", err)
		}
	} else {
		l.plugins = []json.RawMessage{text}
		l.keys = map[string]json.RawMessage{"name": l.keys["name"], "cniVersion": l.keys["cniVersion"]}
	}
	if len(l.plugins) == 0 {
		return nil, errors.New("no plugins")
	}
	for _, p := range l.plugins {
		var kind struct {
			Type string `json:"type"`
		}
		if err := json.Unmarshal(p, &kind); err != nil || kind.Type == "" {
			return nil, errors.New("a plugin without a type")
		}
		if kind.Type == conf.NetworkType {
			return nil, errors.New("it chains ovn-multinet already")
		}
	}
	return l, nil
}

// Derive makes our conflist from the primary's: its name (host-local keeps its leases by it), its cniVersion, its
// plugins as they stand, and ours as the last.
func Derive(primary []byte, entry Entry) ([]byte, error) {
	l, err := parseList(primary)
	if err != nil {
		return nil, err
	}
	return l.chain(entry)
}

// derive does that with the version raised as far as everybody goes; notice says what kept it.
func (i *installer) derive(primary []byte, entry Entry) (text []byte, notice string, err error) {
	l, err := parseList(primary)
	if err != nil {
		return nil, "", err
	}
	if why := i.raise(l); why != "" {
		notice = "; " + why
	}
	text, err = l.chain(entry)
	return text, notice, err
}

// chain appends our entry.
func (l *list) chain(entry Entry) ([]byte, error) {
	ours, err := json.Marshal(entry.withDefaults())
	if err != nil {
		return nil, err
	}
	plugins, err := json.Marshal(append(slices.Clip(l.plugins), ours))
	if err != nil {
		return nil, err
	}
	l.keys["plugins"] = plugins
	text, err := json.Marshal(l.keys)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	if err := json.Indent(&out, text, "", "  "); err != nil {
		return nil, err
	}
	out.WriteByte('\n')
	return out.Bytes(), nil
}

// Entry is our plugin's entry in the conflist.
type Entry struct {
	Type             string          `json:"type"`
	Capabilities     map[string]bool `json:"capabilities"`
	AgentSocket      string          `json:"agentSocket"`
	StateDir         string          `json:"stateDir"`
	AllowedDelegates []string        `json:"allowedDelegates"`
	AllowedIPAM      []string        `json:"allowedIPAM"`
	LogFile          string          `json:"logFile"`
	Timeout          string          `json:"timeout"`
	StrictStatus     bool            `json:"strictStatus,omitempty"`
	Draining         bool            `json:"draining,omitempty"`
}

func (e Entry) withDefaults() Entry {
	e.Type = conf.NetworkType
	e.Capabilities = map[string]bool{conf.AnnotationsCapability: true}
	if e.AllowedDelegates == nil {
		e.AllowedDelegates = []string{}
	}
	if e.AllowedIPAM == nil {
		e.AllowedIPAM = []string{}
	}
	return e
}
