package controller

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
)

// maxNADs is how many NADs of one network a namespace may have, because each pass over the network reads all of them.
// Only the oldest maxNADs NADs are read. The newer ones are beyond the limit, and are refused.
const maxNADs = 64

// membership stores which network each NAD described at its last pass, and the NADs of each network.
type membership struct {
	of      map[string]string            // by NAD: the network
	created map[string]int64             // by NAD: the time of its creation
	nads    map[string]map[string][]aged // by network and namespace: the NADs, the oldest first
}

// aged is a NAD with the time of its creation.
type aged struct {
	created int64
	nad     string
}

func newMembership() *membership {
	return &membership{of: map[string]string{}, created: map[string]int64{}, nads: map[string]map[string][]aged{}}
}

// place returns the index of a NAD in the list of its network and namespace, and whether the list contains it.
func (m *membership) place(network, nad string) (int, bool) {
	return slices.BinarySearchFunc(m.nads[network][namespaceOf(nad)], aged{m.created[nad], nad}, func(a, b aged) int {
		return cmp.Or(cmp.Compare(a.created, b.created), strings.Compare(a.nad, b.nad))
	})
}

// set notes which network a NAD describes; "" means none. If another NAD comes to be beyond maxNADs by this, set
// returns that NAD, otherwise "".
func (m *membership) set(nad, network string, created int64) (out string) {
	namespace, within := namespaceOf(nad), ""
	if list := m.nads[network][namespace]; len(list) >= maxNADs {
		within = list[maxNADs-1].nad
	}
	m.remove(nad)
	if network == "" {
		return ""
	}
	m.of[nad], m.created[nad] = network, created
	if m.nads[network] == nil {
		m.nads[network] = map[string][]aged{}
	}
	i, _ := m.place(network, nad)
	m.nads[network][namespace] = slices.Insert(m.nads[network][namespace], i, aged{created, nad})
	if within != "" && m.beyond(within) {
		return within
	}
	return ""
}

// remove deletes a NAD from the membership.
func (m *membership) remove(nad string) {
	network, namespace := m.of[nad], namespaceOf(nad)
	if i, there := m.place(network, nad); there {
		m.nads[network][namespace] = slices.Delete(m.nads[network][namespace], i, i+1)
		if len(m.nads[network][namespace]) == 0 {
			delete(m.nads[network], namespace)
		}
		if len(m.nads[network]) == 0 {
			delete(m.nads, network)
		}
	}
	delete(m.of, nad)
	delete(m.created, nad)
}

// beyond tells whether maxNADs older NADs of the same namespace describe the NAD's network.
func (m *membership) beyond(nad string) bool {
	i, there := m.place(m.of[nad], nad)
	return there && i >= maxNADs
}

// nadsOf lists the NADs of a network without those that are beyond maxNADs.
func (m *membership) nadsOf(network string) (nads []string) {
	for _, list := range m.nads[network] {
		for _, a := range list[:min(len(list), maxNADs)] {
			nads = append(nads, a.nad)
		}
	}
	slices.Sort(nads)
	return nads
}

// tooMany is the error of a NAD beyond maxNADs.
func tooMany(nad, network string) error {
	return fmt.Errorf("namespace %s has more than %d NetworkAttachmentDefinitions of network %s, and this is not one of "+
		"the oldest: delete some", namespaceOf(nad), maxNADs, network)
}

// nadsOf reads the NADs of a network. It also reads the accepted NADs of which the source has not reported anything
// yet.
func (c *Controller) nadsOf(ctx context.Context, network string, accepted []string) ([]*netmodel.NAD, error) {
	ids := c.members.nadsOf(network)
	for _, id := range accepted {
		if c.members.of[id] == "" {
			ids = append(ids, id)
		}
	}
	var nads []*netmodel.NAD
	for _, id := range ids {
		nad, err := c.nad(ctx, id)
		if err != nil {
			return nil, err
		}
		if nad != nil {
			nads = append(nads, nad)
		}
	}
	return nads, nil
}
