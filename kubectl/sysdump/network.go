package sysdump

import (
	"encoding/json"
	"slices"

	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
)

// networkObject is a NetworkAttachmentDefinition.
type networkObject struct {
	Metadata metadata `json:"metadata"`
	Spec     struct {
		Config string `json:"config"`
	} `json:"spec"`
}

// keptNetwork is what the archive has of a NetworkAttachmentDefinition.
type keptNetwork struct {
	Metadata metadata `json:"metadata"`
	// Size is that of spec.config, in bytes.
	Size   int         `json:"configBytes"`
	Config *keptConfig `json:"config,omitempty"`
	// Network is the configuration as the controller accepts it; nil: it does not, or another plugin makes the network.
	Network json.RawMessage `json:"network,omitempty"`
}

// keptConfig is what the archive has of the configuration of a plugin, or of a list of plugins.
type keptConfig struct {
	CNIVersion string                     `json:"cniVersion,omitempty"`
	Name       string                     `json:"name,omitempty"`
	Type       string                     `json:"type,omitempty"`
	Keys       map[string]json.RawMessage `json:"keys,omitempty"` // of networks of OVN
	Plugins    []*keptConfig              `json:"plugins,omitempty"`
}

// keep keeps of other plugins' configurations nothing but their names: a plugin may have a password there.
func (n *networkObject) keep() any {
	text := n.Spec.Config
	kept := &keptNetwork{Metadata: n.Metadata, Size: len(text)}
	if len(text) > netmodel.MaxDelegateConfig {
		return kept
	}
	kept.Config = configOf([]byte(text), true)
	from := &netmodel.NAD{Namespace: n.Metadata.Namespace, Name: n.Metadata.Name,
		Config: netmodel.ParseConfig(n.Metadata.Namespace, n.Metadata.Name, text, 0)}
	if accepted, err := from.Network(); err == nil {
		own := *accepted
		own.Chained = "" // those are other plugins
		kept.Network = json.RawMessage(own.Canonical())
	}
	return kept
}

// configOf returns nil for what is no object in JSON.
func configOf(text []byte, mayBeList bool) *keptConfig {
	var values map[string]json.RawMessage
	if utiljson.Unmarshal(text, &values) != nil || values == nil {
		return nil
	}
	kept := &keptConfig{CNIVersion: word(values["cniVersion"]), Name: word(values["name"]), Type: word(values["type"])}
	var list []json.RawMessage
	if mayBeList && utiljson.Unmarshal(values["plugins"], &list) == nil {
		for _, plugin := range list {
			kept.Plugins = append(kept.Plugins, configOf(plugin, false))
		}
	}
	if conf.IsOVN(kept.Type) {
		for _, key := range netmodel.Keys(kept.Type) {
			if value, has := values[key]; has && scalar(value) {
				if kept.Keys == nil {
					kept.Keys = map[string]json.RawMessage{}
				}
				kept.Keys[key] = value
			}
		}
	}
	return kept
}

// word returns a text that can be a name; "": it cannot.
func word(text json.RawMessage) (word string) {
	if json.Unmarshal(text, &word) != nil || len(word) > 253 || !listOfNames.MatchString(word) {
		return ""
	}
	return word
}

// scalar reports whether a value has no keys of its own, which could be unknown ones.
func scalar(value json.RawMessage) bool {
	return len(value) > 0 && !slices.Contains([]byte("{["), value[0])
}
