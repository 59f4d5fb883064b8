package netmodel

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/delegate/delegateconf"
)

// MaxPlugins bounds the plugins of one list.
const MaxPlugins = 32

// listJSON is a spec.config with a list of plugins (CNI specification, section 1, "Configuration format").
type listJSON struct {
	CNIVersion   json.RawMessage   `json:"cniVersion,omitempty"`
	CNIVersions  json.RawMessage   `json:"cniVersions,omitempty"`
	Name         string            `json:"name,omitempty"`
	DisableCheck json.RawMessage   `json:"disableCheck,omitempty"`
	DisableGC    json.RawMessage   `json:"disableGC,omitempty"`
	Plugins      []json.RawMessage `json:"plugins"`
}

// readList reads a list of plugins; nil: the configuration is for one plugin.
func readList(config []byte) (*listJSON, error) {
	var head struct {
		Type    string          `json:"type"`
		Plugins json.RawMessage `json:"plugins"`
	}
	if err := json.Unmarshal(config, &head); err != nil {
		return nil, conf.JSONError(err)
	}
	if head.Type != "" || head.Plugins == nil {
		return nil, nil
	}
	list := &listJSON{}
	if err := conf.DecodeObject(config, list, nil); err != nil {
		return nil, err
	}
	if len(list.Plugins) == 0 {
		return nil, errors.New(`"plugins" is empty`)
	}
	return list, nil
}

// firstOf reads type and name of the first plugin of a list.
func firstOf(plugins json.RawMessage) (kind, name string) {
	var first struct {
		Type string `json:"type"`
		Name string `json:"name"`
	}
	dec := json.NewDecoder(bytes.NewReader(plugins))
	if token, err := dec.Token(); err != nil || token != json.Delim('[') || !dec.More() {
		return "", ""
	}
	if dec.Decode(&first) != nil {
		return "", ""
	}
	return first.Type, first.Name
}

// chained is the list without its first plugin, which is ours; "": nothing is behind ours.
func (l *listJSON) chained() (string, error) {
	if len(l.Plugins) == 1 {
		return "", nil
	}
	rest := *l
	rest.Plugins = l.Plugins[1:]
	text, err := json.Marshal(rest)
	return string(text), err
}

// withChained puts our plugin before the plugins of a list that chained has made.
func withChained(own []byte, chained string) []byte {
	var list listJSON
	_ = json.Unmarshal([]byte(chained), &list) // chained was made by Marshal
	list.Plugins = append([]json.RawMessage{own}, list.Plugins...)
	return mustMarshal(list)
}

// checkChained refuses plugins behind ours that no pod could be given. Whether a node allows them, only the node knows.
func checkChained(config []byte) error {
	if err := delegateconf.CheckSameKeys(config); err != nil {
		return err
	}
	list, err := readList(config)
	if err != nil {
		return err
	}
	if len(list.Plugins) > MaxPlugins {
		return fmt.Errorf("%d plugins are more than %d", len(list.Plugins), MaxPlugins)
	}
	for i, p := range list.Plugins[1:] {
		if _, err := delegateconf.CheckPlugin(p, false); err != nil {
			return fmt.Errorf("plugins[%d]: %w", i+1, err)
		}
	}
	return nil
}
