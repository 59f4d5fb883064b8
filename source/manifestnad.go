package source

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
)

// networkState is the content of the file with the state of a network.
type networkState struct {
	Namespace string          `json:"namespace"`
	Name      string          `json:"name"`
	Network   json.RawMessage `json:"network"`
}

func networkFile(namespace, name string) string { return stateFile(namespace, name, networkSuffix) }

// withState adds the state that the controller wrote for the network of the NAD. It sets HasFinalizer if there is a
// state. Manifests have no finalizers: a user can delete a manifest at any time.
func (m *Manifests) withState(d *netmodel.NAD) (*netmodel.NAD, error) {
	text, err := os.ReadFile(filepath.Join(m.dir, networkFile(d.Namespace, d.Name)))
	if errors.Is(err, fs.ErrNotExist) {
		return d, nil
	}
	if err != nil {
		return nil, err
	}
	with := *d
	with.HasFinalizer = true
	var state networkState
	if json.Unmarshal(text, &state) == nil {
		var one bytes.Buffer
		if json.Compact(&one, state.Network) == nil {
			with.State = netmodel.TrimState(one.String())
		}
	}
	return &with, nil
}

// SetNetworkState writes the file with the state of a network into the folder. For state "" it deletes the file.
func (m *Manifests) SetNetworkState(_ context.Context, n *netmodel.NAD, state string, _ bool) error {
	name := networkFile(n.Namespace, n.Name)
	if state == "" {
		return m.remove("state of the network", name)
	}
	return m.writeState("state of the network", name, networkState{n.Namespace, n.Name, json.RawMessage(state)})
}

// NetworkEvent logs an event of a NAD.
func (m *Manifests) NetworkEvent(n *netmodel.NAD, warning bool, reason, message string) {
	m.log.Info("event", "network", n.ID(), "kind", eventKind(warning), "reason", reason,
		"message", conf.OneLine(message, conf.MaxReason))
}

// NADs returns all NADs with the states of their networks. It fails if a manifest cannot be parsed.
func (m *Manifests) NADs(_ context.Context) ([]*netmodel.NAD, error) {
	if err := m.complete(); err != nil {
		return nil, err
	}
	var all []*netmodel.NAD
	for _, obj := range m.nads.List() {
		with, err := m.withState(&obj.(*knownNAD).nad)
		if err != nil {
			return nil, err
		}
		all = append(all, with)
	}
	return all, nil
}

// Inventory returns all pods, and the nodes if the folder has manifests of nodes. It fails if a manifest cannot be
// parsed. The folder has all of them in one place, so names of nodes do not shorten the lists.
func (m *Manifests) Inventory(_ context.Context, _ ...string) (*Inventory, error) {
	if err := m.complete(); err != nil {
		return nil, err
	}
	pods, _ := m.Pods(context.Background())
	nodes := m.nodes.ListKeys()
	if len(nodes) == 0 {
		nodes = nil
	}
	return newInventory(pods, nodes), nil
}

// complete reads the folder again, and returns an error if a manifest cannot be parsed.
func (m *Manifests) complete() error {
	if err := m.scan(); err != nil {
		return err
	}
	if broken := m.broken(); broken != "" {
		return fmt.Errorf("manifest %s is not understood", filepath.Join(m.dir, broken))
	}
	return nil
}
