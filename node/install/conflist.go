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

// errNoPrimary says that there is no conflist to derive ours from.
var errNoPrimary = errors.New("there is no CNI configuration of a primary network yet")

// extensions are those of the files that runtimes read.
var extensions = []string{".conf", ".conflist", ".json"}

// configurations returns the names of the files that runtimes read in a folder, in their order.
func configurations(dir string) (names []string, err error) {
	entries, err := os.ReadDir(dir)
	for _, e := range entries { // sorted by name
		if e.IsDir() || strings.HasPrefix(e.Name(), ".") {
			continue
		}
		if slices.Contains(extensions, filepath.Ext(e.Name())) {
			names = append(names, e.Name())
		}
	}
	return names, err
}

// firstFile returns the name of the configuration that runtimes use, which should be ours.
func firstFile(dir string) string {
	names, _ := configurations(dir)
	return append(names, conf.ConflistName)[0]
}

// primaryFile returns the configuration that a runtime would use without ours, or the given one. It ignores files that
// are not JSON objects with plugins.
func primaryFile(dir, given string) (name string, text []byte, err error) {
	names, err := configurations(dir)
	if err != nil {
		return "", nil, err
	}
	for _, name := range names {
		if name == conf.ConflistName || given != "" && name != given {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue // deleted meanwhile, or a dangling link
		}
		if err != nil {
			return "", nil, err
		}
		if len(bytes.TrimSpace(text)) == 0 {
			// Do not use the next file: a moment later the runtime would use this one.
			return "", nil, fmt.Errorf("%s is empty: it is being written", name)
		}
		if _, err := parseList(text); err == nil {
			return name, text, nil
		}
	}
	return "", nil, fmt.Errorf("%s: %w", filepath.Join(dir, given), errNoPrimary)
}

// list is a conflist. It keeps the JSON of all keys and plugins unchanged.
type list struct {
	keys    map[string]json.RawMessage
	plugins []json.RawMessage
}

// parseList reads a conflist. It reads the configuration of a single plugin (CNI before 1.0) as a conflist of one
// plugin.
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

// Derive makes our conflist from the primary network's conflist: the same name (host-local stores its leases under
// this name), the same cniVersion, the same plugins, and our plugin as the last.
func Derive(primary []byte, entry Entry) ([]byte, error) {
	l, err := parseList(primary)
	if err != nil {
		return nil, err
	}
	return l.chain(entry)
}

// derive is Derive with the highest cniVersion that the runtime and all plugins speak. notice says why the version
// could not be raised.
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

// chain appends our entry and returns the conflist's text.
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

// Entry is our plugin's entry in the conflist. The keys are those of conf.Plugin.
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
