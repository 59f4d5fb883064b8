// Package shapes owns the shapes of networks and annotations that public charts have. The scenarios of the lab and of
// the cluster use them; it imports nothing of ours.
package shapes

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"strings"

	"sigs.k8s.io/yaml"
)

//go:embed shapes.yaml
var file []byte

// Shape is a pod of a chart with its networks.
type Shape struct {
	Name       string             `json:"name"`
	From       string             `json:"from"`
	Networks   map[string]Network `json:"networks"`
	Annotation string             `json:"annotation"`
	// Want are the addresses of each interface; an interface without any has those that OVN leases. Delegates are those
	// of interfaces that get them from the NAD.
	Want      map[string][]string `json:"want"`
	Delegates map[string][]string `json:"delegates"`
	// Routes are in the main table, Table100 in the one that sbr makes.
	Routes   []string `json:"routes"`
	Table100 []string `json:"table100"`
}

// Network is one NAD.
type Network struct {
	Config string          `json:"config"`
	OVN    json.RawMessage `json:"ovn"`
}

// All reads the shapes.
func All() ([]Shape, error) {
	var all []Shape
	return all, yaml.UnmarshalStrict(file, &all)
}

// AsDelegate is the NAD's configuration with the NIC of the node.
func (n Network) AsDelegate(master string) string {
	return strings.ReplaceAll(n.Config, "MASTER", master)
}

// WithoutIPVLAN has macvlan stand in for ipvlan: the kernels of many machines have no ipvlan.
func WithoutIPVLAN(config string) string {
	return strings.NewReplacer(`"type": "ipvlan"`, `"type": "macvlan"`, `"mode": "l2"`, `"mode": "bridge"`).Replace(config)
}

// ofType are the keys that belong to the types of the charts' first plugins.
var ofType = []string{"master", "mode", "bridge", "ipam"}

// AsOVN is the NAD's configuration as an OVN network: type and ipam of the first plugin are exchanged.
func (n Network) AsOVN() (string, error) {
	var list map[string]json.RawMessage
	if err := json.Unmarshal([]byte(n.Config), &list); err != nil {
		return "", err
	}
	if list["plugins"] == nil {
		return n.exchange(list)
	}
	var plugins []json.RawMessage
	if err := json.Unmarshal(list["plugins"], &plugins); err != nil {
		return "", err
	}
	var first map[string]json.RawMessage
	if err := json.Unmarshal(plugins[0], &first); err != nil {
		return "", err
	}
	own, err := n.exchange(first)
	if err != nil {
		return "", err
	}
	plugins[0] = json.RawMessage(own)
	if list["plugins"], err = json.Marshal(plugins); err != nil {
		return "", err
	}
	text, err := json.Marshal(list)
	return string(text), err
}

func (n Network) exchange(plugin map[string]json.RawMessage) (string, error) {
	for _, key := range ofType {
		delete(plugin, key)
	}
	if err := json.Unmarshal(n.OVN, &plugin); err != nil {
		return "", fmt.Errorf("ovn: %w", err)
	}
	plugin["type"] = json.RawMessage(`"ovn-multinet"`)
	text, err := json.Marshal(plugin)
	return string(text), err
}
