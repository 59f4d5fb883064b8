package install

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"

	"github.com/ovn-multinet/ovn-multinet/conf"
)

// Ready reports whether a runtime that starts a pod now calls the plugin for its networks: our plugin is installed,
// and the conflist that runtimes use is ours and ends with it. The error says what is missing. Ready changes nothing,
// and it needs of Config only the paths.
func (c Config) Ready() error {
	plugin, err := os.ReadFile(c.Plugin)
	if err != nil {
		return err
	}
	installed, err := os.ReadFile(c.binary())
	if err != nil {
		return err
	}
	if !bytes.Equal(installed, plugin) {
		return fmt.Errorf("%s is another program than %s", c.binary(), c.Plugin)
	}
	text, err := os.ReadFile(c.conflist())
	if err != nil {
		return err
	}
	if first := firstFile(c.NetDir); first != conf.ConflistName {
		return fmt.Errorf("runtimes use %s, which comes before %s by name: remove or rename it", first, conf.ConflistName)
	}
	var list struct{ Plugins []json.RawMessage }
	if err := json.Unmarshal(text, &list); err != nil {
		return fmt.Errorf("%s: %w", c.conflist(), err)
	}
	var last struct {
		Type     string
		Draining bool
	}
	if n := len(list.Plugins); n > 0 {
		if err := json.Unmarshal(list.Plugins[n-1], &last); err != nil {
			return fmt.Errorf("%s: its last plugin: %w", c.conflist(), err)
		}
	}
	switch {
	case last.Type != conf.NetworkType:
		return fmt.Errorf("%s does not end with %s", c.conflist(), conf.NetworkType)
	case last.Draining:
		return fmt.Errorf("%s is of a node that is being uninstalled", c.conflist())
	}
	return nil
}
