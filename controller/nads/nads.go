// Package nads owns the index of NADs: which network each of them describes, and which of them a network accepts. Kinds
// of objects whose annotations name NADs ask it.
package nads

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/ovn-multinet/ovn-multinet/controller/engine"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
)

// MaxOfNetwork is how many NADs of one network a namespace may have, because each pass over the network reads all of
// them. Only the oldest of them are read. The newer ones are beyond the limit, and are refused.
const MaxOfNetwork = 64

// Source reads NADs.
type Source interface {
	// NAD returns one NAD. It returns netmodel.ErrNotFound only if the NAD certainly does not exist.
	NAD(ctx context.Context, namespace, name string) (*netmodel.NAD, error)
}

// Index stores which network each NAD described at its last pass, and the NADs of each network. A NAD is
// "<namespace>/<name>". Only the worker uses it.
type Index struct {
	source  Source
	of      map[string]string            // by NAD: the network
	created map[string]int64             // by NAD: the time of its creation
	nads    map[string]map[string][]aged // by network and namespace: the NADs, the oldest first
	users   engine.Index[string]         // by network: the namespaces whose NADs it accepts
}

// aged is a NAD with the time of its creation.
type aged struct {
	created int64
	nad     string
}

// New makes an empty index.
func New(source Source) *Index {
	return &Index{
		source: source, of: map[string]string{}, created: map[string]int64{}, nads: map[string]map[string][]aged{},
		users: engine.Index[string]{},
	}
}

// Network returns the network that a NAD described at its last pass; "": none, or no pass has read the NAD.
func (x *Index) Network(nad string) string { return x.of[nad] }

// Networks returns the network of each NAD that describes one.
func (x *Index) Networks() map[string]string { return x.of }

// place returns the index of a NAD in the list of its network and namespace, and whether the list contains it.
func (x *Index) place(network, nad string) (int, bool) {
	list := x.nads[network][engine.NamespaceOf(nad)]
	return slices.BinarySearchFunc(list, aged{x.created[nad], nad}, func(a, b aged) int {
		return cmp.Or(cmp.Compare(a.created, b.created), strings.Compare(a.nad, b.nad))
	})
}

// Set notes which network a NAD describes; "" means none. If another NAD comes to be beyond MaxOfNetwork by this, Set
// returns that NAD, otherwise "".
func (x *Index) Set(nad, network string, created int64) (out string) {
	namespace, within := engine.NamespaceOf(nad), ""
	if list := x.nads[network][namespace]; len(list) >= MaxOfNetwork {
		within = list[MaxOfNetwork-1].nad
	}
	x.remove(nad)
	if network == "" {
		return ""
	}
	x.of[nad], x.created[nad] = network, created
	if x.nads[network] == nil {
		x.nads[network] = map[string][]aged{}
	}
	i, _ := x.place(network, nad)
	x.nads[network][namespace] = slices.Insert(x.nads[network][namespace], i, aged{created, nad})
	if within != "" && x.Beyond(within) {
		return within
	}
	return ""
}

// remove deletes a NAD from the membership.
func (x *Index) remove(nad string) {
	network, namespace := x.of[nad], engine.NamespaceOf(nad)
	if i, there := x.place(network, nad); there {
		x.nads[network][namespace] = slices.Delete(x.nads[network][namespace], i, i+1)
		if len(x.nads[network][namespace]) == 0 {
			delete(x.nads[network], namespace)
		}
		if len(x.nads[network]) == 0 {
			delete(x.nads, network)
		}
	}
	delete(x.of, nad)
	delete(x.created, nad)
}

// Beyond reports whether MaxOfNetwork older NADs of the same namespace describe the NAD's network.
func (x *Index) Beyond(nad string) bool {
	i, there := x.place(x.of[nad], nad)
	return there && i >= MaxOfNetwork
}

// Of lists the NADs of a network without those that are beyond MaxOfNetwork.
func (x *Index) Of(network string) (nads []string) {
	for _, list := range x.nads[network] {
		for _, a := range list[:min(len(list), MaxOfNetwork)] {
			nads = append(nads, a.nad)
		}
	}
	slices.Sort(nads)
	return nads
}

// TooMany is the error of a NAD that is beyond the limit.
func TooMany(nad, network string) error {
	return fmt.Errorf("namespace %s has more than %d NetworkAttachmentDefinitions of network %s, and this is not one of "+
		"the oldest: delete some", engine.NamespaceOf(nad), MaxOfNetwork, network)
}

// NoteUsers notes that a network accepts NADs. It returns the namespaces that had no accepted NAD of the network
// before.
func (x *Index) NoteUsers(network string, nads []string) (namespaces []string) {
	for _, nad := range nads {
		namespace := engine.NamespaceOf(nad)
		if !x.users[network][namespace] {
			x.users.Add(network, namespace)
			namespaces = append(namespaces, namespace)
		}
	}
	return namespaces
}

// ForgetUsers forgets which NADs networks accept.
func (x *Index) ForgetUsers() { clear(x.users) }

// Owns reports whether a network is of a namespace, or a NAD of the namespace is accepted for the network.
func (x *Index) Owns(namespace, network string) bool {
	return strings.HasPrefix(network, namespace+"/") || x.users[network][namespace]
}
