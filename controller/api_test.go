package controller_test

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
)

// api stands in for the Kubernetes API: it holds NADs in memory and does with finalizers what the API does. That the
// real one does the same is for the source's tests.
type api struct {
	mu       sync.Mutex
	nads     map[string]*netmodel.NAD
	watchers []func(namespace, name string)
	created  int64
	failing  map[string]error // reads of a NAD
	refuse   error            // writes
	hold     map[string]chan struct{}
	held     map[string]int // writes that began, by NAD
	reads    map[string]int
	writes   []string
	events   []string
	nodes    []netmodel.Node
	grants   netmodel.PhysicalGrants // of a controller that is started with it
	noNodes  error                   // of the list of nodes
	keep     []netip.Prefix          // of --keep-on-primary
}

func (a *api) Nodes(context.Context) ([]netmodel.Node, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.nodes), a.noNodes
}

func newAPI() *api {
	return &api{nads: map[string]*netmodel.NAD{}, failing: map[string]error{}, hold: map[string]chan struct{}{}, held: map[string]int{}, reads: map[string]int{}}
}

func (a *api) NAD(_ context.Context, namespace, name string) (*netmodel.NAD, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	id := namespace + "/" + name
	a.reads[id]++
	if err := a.failing[id]; err != nil {
		return nil, err
	}
	n := a.nads[id]
	if n == nil {
		return nil, netmodel.ErrNotFound
	}
	clone := *n
	return &clone, nil
}

func (a *api) SetNetworkState(ctx context.Context, n *netmodel.NAD, state string, held bool) error {
	a.mu.Lock()
	hold := a.hold[n.ID()]
	a.held[n.ID()]++
	a.mu.Unlock()
	if hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return a.update(n.ID(), func(now *netmodel.NAD) error {
		if a.refuse != nil {
			return a.refuse
		}
		if held && !now.HasFinalizer && now.Deleting {
			return errors.New("forbidden: no new finalizers can be added if the object is being deleted")
		}
		now.State, now.HasFinalizer = state, held
		a.writes = append(a.writes, n.ID()+" "+now.State)
		return nil
	})
}

func (a *api) NetworkEvent(n *netmodel.NAD, warning bool, reason, message string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	kind := "Normal"
	if warning {
		kind = "Warning"
	}
	a.events = append(a.events, strings.Join([]string{kind, n.ID(), reason, message}, " "))
}

// update changes a NAD, which goes when nothing holds it any more, and tells the watchers.
func (a *api) update(id string, change func(*netmodel.NAD) error) error {
	a.mu.Lock()
	n := a.nads[id]
	if n == nil {
		a.mu.Unlock()
		return netmodel.ErrNotFound
	}
	err := change(n)
	if n.Deleting && !n.HasFinalizer {
		delete(a.nads, id)
	}
	watchers := slices.Clone(a.watchers)
	a.mu.Unlock()
	if err == nil {
		a.tell(watchers, id)
	}
	return err
}

func (a *api) tell(watchers []func(namespace, name string), id string) {
	namespace, name, _ := strings.Cut(id, "/")
	for _, changed := range watchers {
		changed(namespace, name)
	}
}

// apply makes a NAD or changes its configuration.
func (a *api) apply(id, config string) {
	namespace, name, _ := strings.Cut(id, "/")
	a.mu.Lock()
	if a.nads[id] == nil {
		a.created++
		a.nads[id] = &netmodel.NAD{Namespace: namespace, Name: name, Created: a.created}
	}
	a.nads[id].Config = netmodel.ParseConfig(namespace, name, config, netmodel.KeptConfig)
	watchers := slices.Clone(a.watchers)
	a.mu.Unlock()
	a.tell(watchers, id)
}

// deleteNAD deletes a NAD: at once unless our finalizer is on it.
func (a *api) deleteNAD(t *testing.T, id string) {
	t.Helper()
	if err := a.update(id, func(n *netmodel.NAD) error { n.Deleting = true; return nil }); err != nil {
		t.Fatal(err)
	}
}

// setNodes replaces the nodes; labels are by their names.
func (a *api) setNodes(labels map[string]map[string]string) {
	a.with(func() {
		a.nodes = []netmodel.Node{}
		for _, name := range slices.Sorted(maps.Keys(labels)) {
			a.nodes = append(a.nodes, netmodel.Node{Name: name, Labels: labels[name]})
		}
	})
}

// with locks what tests look at and set.
func (a *api) with(do func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	do()
}

// fail has reads of a NAD fail; nil ends it.
func (a *api) fail(id string, err error) { a.with(func() { a.failing[id] = err }) }

// state tells what the controller made of a NAD: "ready", "refused: <why>", "nothing", each with "held" when our
// finalizer is on it, or "gone".
func (a *api) state(id string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := a.nads[id]
	if n == nil {
		return "gone"
	}
	return stateInWords(n)
}

func stateInWords(n *netmodel.NAD) string {
	text := "nothing"
	switch state, ok := n.NetworkState(); {
	case ok && state.Ready && state.Reason != "":
		text = "ready, but " + state.Reason
	case ok && state.Ready:
		text = "ready"
	case ok:
		text = "refused: " + state.Reason
	}
	if n.HasFinalizer {
		text += ", held"
	}
	return text
}

func (a *api) eventLines() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return strings.Join(a.events, "\n")
}

func (a *api) count() (writes int) {
	a.with(func() { writes = len(a.writes) })
	return writes
}
