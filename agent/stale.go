package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/node/journal"
	"github.com/ovn-multinet/ovn-multinet/ovnport"
	"github.com/ovn-multinet/ovn-multinet/source"
)

// sandboxState is what this node has of one sandbox: OVS ports, ports in NB, entries of the plugin's journal.
type sandboxState struct {
	agentapi.Sandbox
	ovsPorts []ovnport.OwnedOVSPort
	ports    []ovnport.OwnedPort
	entries  []*journal.Summary
	damaged  []agentapi.Sandbox // entries that cannot be read
	links    []string           // its host-side veths that the kernel has
	lost     []string           // the interfaces whose host-side veths are gone, while the pod may be there
	older    bool               // the pod has a newer sandbox
	why      string             // why it is stale; "": it is not
	deleted  bool               // its ports and OVS ports are deleted
}

// absent reports whether no list has the sandbox, except for entries that cannot be read.
func (m *sandboxState) absent() bool {
	return m.why == "" && len(m.entries)+len(m.ports)+len(m.ovsPorts) == 0
}

// forPlugin is what only the plugin can delete of a sandbox.
func (m *sandboxState) forPlugin() (all []agentapi.Garbage) {
	for _, e := range m.entries {
		all = append(all, agentapi.Garbage{Sandbox: e.Sandbox})
	}
	for _, s := range m.damaged {
		all = append(all, agentapi.Garbage{Sandbox: s})
	}
	if len(all) == 0 && len(m.links) > 0 {
		all = append(all, agentapi.Garbage{Sandbox: m.Sandbox, HostVeths: m.links})
	}
	return all
}

// listSandboxes lists what this node has, by sandbox, and finds out which sandboxes are stale. It fails if one of the
// lists cannot be read in full.
func (n *node) listSandboxes(ctx context.Context) ([]*sandboxState, error) {
	by := map[string]*sandboxState{}
	of := func(s agentapi.Sandbox) *sandboxState {
		m := by[s.ContainerID]
		if m == nil {
			m = &sandboxState{Sandbox: s}
			by[s.ContainerID] = m
		}
		m.Namespace, m.Pod, m.UID = cmp.Or(m.Namespace, s.Namespace), cmp.Or(m.Pod, s.Pod), cmp.Or(m.UID, s.UID)
		return m
	}
	attached, damaged, err := n.journal.Summaries()
	if err != nil {
		return nil, fmt.Errorf("the plugin's journal: %w", err)
	}
	for i := range attached {
		m := of(attached[i].Sandbox)
		m.entries = append(m.entries, &attached[i])
	}
	for _, name := range damaged {
		s, _ := journal.ParseID(name)
		m := of(s)
		m.damaged = append(m.damaged, s)
	}
	ports, err := n.ports.Read(ctx)
	if err != nil {
		return nil, err
	}
	for _, p := range ports {
		m := of(agentapi.Sandbox{
			ContainerID: p.Owner.Sandbox, Namespace: p.Owner.Namespace, Pod: p.Owner.Pod, UID: p.Owner.UID,
		})
		m.ports = append(m.ports, p)
	}
	ovsPorts, err := n.ovs.Ports(ctx)
	if err != nil {
		return nil, err
	}
	for _, p := range ovsPorts {
		m := of(agentapi.Sandbox{ContainerID: p.Sandbox, Namespace: p.Namespace, Pod: p.Pod, UID: p.UID})
		m.ovsPorts = append(m.ovsPorts, p)
	}
	markOlder(attached, by)
	all := make([]*sandboxState, 0, len(by))
	for _, id := range slices.Sorted(maps.Keys(by)) {
		m := by[id]
		if err := n.judge(ctx, m); err != nil {
			return nil, err
		}
		all = append(all, m)
	}
	return all, nil
}

// markOlder marks the sandboxes of pods that have a newer one.
func markOlder(attached []journal.Summary, by map[string]*sandboxState) {
	newest := map[string]*journal.Summary{}
	podOf := func(s *agentapi.Sandbox) string { return s.Namespace + "/" + s.Pod + "/" + s.UID }
	for i := range attached {
		e := &attached[i]
		if other := newest[podOf(&e.Sandbox)]; other == nil || e.Began.After(other.Began) {
			newest[podOf(&e.Sandbox)] = e
		}
	}
	for i := range attached {
		s := &attached[i].Sandbox
		by[s.ContainerID].older = newest[podOf(s)].Sandbox.ContainerID != s.ContainerID
	}
}

// judge finds out whether a sandbox is stale, and why: its pod is gone, all of its host-side veths are gone, or a DEL
// of a delegate failed. A sandbox whose lock a call of the plugin holds, or that has a pending release, is not stale.
func (n *node) judge(ctx context.Context, m *sandboxState) error {
	veths := m.hostVeths()
	for _, name := range veths {
		there, err := linkThere(name)
		if err != nil {
			return err
		}
		if there {
			m.links = append(m.links, name)
		}
	}
	gone, err := n.podIsGone(ctx, m)
	switch {
	case err != nil:
		return err
	case isEarly(m.ContainerID):
		m.why = cmp.Or(gone, "no ADD has taken its early ports over")
	case n.busy(m.ContainerID), n.releasing(m.ContainerID):
	case gone != "":
		m.why = gone
	case slices.ContainsFunc(m.entries, func(e *journal.Summary) bool { return e.FailedAttempts > 0 }):
		m.why = "a DEL has begun, and failed for networks of other plugins"
	case slices.ContainsFunc(m.entries, func(e *journal.Summary) bool { return len(e.Changing) > 0 }):
		// A change has removed veths, or has not made them yet. The plugin's next run for the pod goes on.
	case len(veths) > 0 && len(m.links) == 0 && !(n.conf.Attach && n.mayLive(m)):
		m.why = "its network namespace is gone"
	default:
		m.lost = m.lostInterfaces()
	}
	return nil
}

// mayLive reports whether the network namespace of a sandbox without veths may be there: the program that attaches
// finds out, by a run of the plugin.
func (n *node) mayLive(m *sandboxState) bool {
	return !m.older && len(m.entries) == 1 && m.entries[0].Plan != nil && m.entries[0].Began.OfThisBoot() &&
		!n.gone.has(m.ContainerID)
}

// lostInterfaces are the interfaces of the entry whose host-side veths the kernel does not have.
func (m *sandboxState) lostInterfaces() (names []string) {
	if len(m.entries) != 1 || m.entries[0].Plan == nil {
		return nil
	}
	for _, i := range m.entries[0].Plan.Interfaces {
		if !slices.Contains(m.links, agentapi.HostVeth(m.ContainerID, i.Name)) {
			names = append(names, i.Name)
		}
	}
	return names
}

// podIsGone says why a sandbox's pod is gone; "" if it is not.
func (n *node) podIsGone(ctx context.Context, m *sandboxState) (string, error) {
	if m.Pod == "" {
		return "", nil
	}
	pod, err := n.source.Pod(ctx, m.Namespace, m.Pod, m.UID)
	switch {
	case errors.Is(err, source.ErrNotFound):
		return fmt.Sprintf("pod %s/%s is gone", m.Namespace, m.Pod), nil
	case err != nil:
		return "", fmt.Errorf("pod %s/%s: %w", m.Namespace, m.Pod, err)
	case !pod.Is(m.UID):
		return fmt.Sprintf("pod %s/%s with UID %s is gone", m.Namespace, m.Pod, m.UID), nil
	}
	return "", nil
}

// hostVeths are the names of the sandbox's host-side veths, if they are there, each once.
func (m *sandboxState) hostVeths() (names []string) {
	for _, p := range m.ovsPorts {
		names = append(names, p.HostVeth)
	}
	for _, p := range m.ports {
		names = append(names, agentapi.HostVeth(m.ContainerID, p.Interface))
	}
	for _, e := range m.entries {
		if e.Plan == nil {
			continue
		}
		for _, i := range e.Plan.Interfaces {
			names = append(names, agentapi.HostVeth(m.ContainerID, i.Name))
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func (m *sandboxState) answer() agentapi.StaleSandbox {
	one := agentapi.StaleSandbox{
		Sandbox: m.Sandbox, Why: m.why, Journal: len(m.entries)+len(m.damaged) > 0, Collected: m.deleted,
	}
	for _, p := range m.ports {
		one.Ports = append(one.Ports, p.Name)
	}
	for _, p := range m.ovsPorts {
		one.HostVeths = append(one.HostVeths, p.HostVeth)
	}
	for _, e := range m.entries {
		if e.Plan == nil {
			continue
		}
		for _, d := range e.Plan.Delegates {
			one.Delegates = append(one.Delegates, d.Name+" on "+d.Network)
		}
	}
	return one
}

// goneNetns are the sandboxes whose network namespaces the plugin has not found.
type goneNetns struct {
	mu  sync.Mutex
	all map[string]bool // by container ID
}

func (g *goneNetns) add(containerID string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.all == nil {
		g.all = map[string]bool{}
	}
	g.all[containerID] = true
}

func (g *goneNetns) has(containerID string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.all[containerID]
}

// keep forgets all sandboxes but these.
func (g *goneNetns) keep(all []*sandboxState) {
	here := map[string]bool{}
	for _, m := range all {
		here[m.ContainerID] = true
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	maps.DeleteFunc(g.all, func(containerID string, _ bool) bool { return !here[containerID] })
}
