package nbrows

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
)

// NewAccepted returns the row that says that a network has this configuration and takes ports of these NADs.
func NewAccepted(network *netmodel.Network, nads []string) *nb.Copp {
	id := network.ID()
	row := &nb.Copp{
		UUID: ovndb.AcceptedKey(id), Name: "ovn-multinet " + id + " " + KindAccepted,
		ExternalIDs: map[string]string{
			KeyKind: KindAccepted, KeyNetwork: id, ovndb.ConfigKey: network.Canonical(),
		},
	}
	revision := network.Revision()
	for _, nad := range nads {
		row.ExternalIDs[ovndb.AcceptedPrefix+nad] = revision
	}
	return row
}

// AcceptedNADs returns the NADs whose ports a network takes, sorted. row is the row at the network's AcceptedKey; nil:
// the network has none.
func AcceptedNADs(row *nb.Copp) []string {
	var nads []string
	if row != nil {
		for key := range row.ExternalIDs {
			if nad, ok := strings.CutPrefix(key, ovndb.AcceptedPrefix); ok {
				nads = append(nads, nad)
			}
		}
	}
	slices.Sort(nads)
	return nads
}

// AcceptedConfig returns the accepted configuration in the row at a network's AcceptedKey; nil if there is none that
// can be parsed. Each text is parsed once for as long as NB has it, so callers must not change the network.
func (n *Store) AcceptedConfig(row *nb.Copp) *netmodel.Network {
	if row == nil {
		return nil
	}
	id, text := row.ExternalIDs[KeyNetwork], row.ExternalIDs[ovndb.ConfigKey]
	n.mu.Lock()
	defer n.mu.Unlock()
	if known, ok := n.accepted[id]; ok && known.text == text {
		return known.network
	}
	network := parseAccepted(id, text)
	n.accepted[id] = accepted{text, network}
	return network
}

// accepted is the text of an accepted configuration, and the network; nil: the text cannot be parsed.
type accepted struct {
	text    string
	network *netmodel.Network
}

func parseAccepted(id, text string) *netmodel.Network {
	namespace, name, own := strings.Cut(id, "/")
	if !own { // several NADs share the network by name: the name of one NAD is not needed
		namespace, name = "", ""
	}
	network, err := netmodel.ParseAccepted(namespace, name, []byte(text))
	if text == "" || err != nil {
		return nil
	}
	return network
}

// ForgetAccepted forgets the parsed configurations of networks that are gone from NB.
func (n *Store) ForgetAccepted(gone func(id string) bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	maps.DeleteFunc(n.accepted, func(id string, _ accepted) bool { return gone(id) })
}

// ReadAccepted reads the rows with what was accepted for these networks, by network. A row that names another network
// is not ours.
func (n *Store) ReadAccepted(ctx context.Context, ids []string) (map[string]*nb.Copp, error) {
	var keys []string
	for _, id := range ids {
		keys = append(keys, ovndb.AcceptedKey(id))
	}
	rows, err := ovndb.ReadByKey[nb.Copp](ctx, n.Db, nb.CoppTable, keys)
	byID := map[string]*nb.Copp{}
	for _, row := range rows {
		if id := row.ExternalIDs[KeyNetwork]; row.UUID == ovndb.AcceptedKey(id) {
			byID[id] = row
		}
	}
	return byID, err
}
