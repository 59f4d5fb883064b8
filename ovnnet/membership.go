package ovnnet

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ovn-multinet/ovn-multinet/conf"
)

// maxNADs is how many NADs of one network a namespace may have: each of them is part of each look at the network.
const maxNADs = 64

// membership says which network each NAD was last of, and which NADs each network has.
type membership struct {
	of   map[string]string
	nads map[string]map[string]bool
}

func newMembership() *membership {
	return &membership{of: map[string]string{}, nads: map[string]map[string]bool{}}
}

// set puts a NAD on a network; "": on none.
func (m *membership) set(nad, network string) {
	if was := m.of[nad]; was != "" {
		if delete(m.nads[was], nad); len(m.nads[was]) == 0 {
			delete(m.nads, was)
		}
	}
	delete(m.of, nad)
	if network == "" {
		return
	}
	m.of[nad] = network
	if m.nads[network] == nil {
		m.nads[network] = map[string]bool{}
	}
	m.nads[network][nad] = true
}

// nadsOf lists a network's NADs.
func (m *membership) nadsOf(network string) []string {
	return slices.Sorted(maps.Keys(m.nads[network]))
}

// crowded lists the NADs of one network that are beyond maxNADs of their namespace, with the reason. The oldest ones
// stay.
func crowded(network string, nads []*conf.NAD) map[string]error {
	if len(nads) <= maxNADs {
		return nil
	}
	oldest := slices.SortedFunc(slices.Values(nads), func(a, b *conf.NAD) int {
		return cmp.Or(cmp.Compare(a.Created, b.Created), strings.Compare(a.ID(), b.ID()))
	})
	have, beyond := map[string]int{}, map[string]error{}
	for _, nad := range oldest {
		if have[nad.Namespace]++; have[nad.Namespace] > maxNADs {
			beyond[nad.ID()] = fmt.Errorf("namespace %s has more than %d NetworkAttachmentDefinitions of network %s, and this is not one of "+
				"the oldest: delete some", nad.Namespace, maxNADs, network)
		}
	}
	return beyond
}
