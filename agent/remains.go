package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/journal"
	"github.com/ovn-multinet/ovn-multinet/ovnport"
	"github.com/ovn-multinet/ovn-multinet/source"
)

// remains is what this node has of one container: host ends in Open vSwitch, leases, an entry of the plugin's journal.
type remains struct {
	agentapi.Sandbox
	plugged []ovnport.OwnedOVSPort
	leases  []ovnport.OwnedPort
	entries []*journal.Summary
	damaged []agentapi.Sandbox // entries that nobody can read
	links   []string           // its host ends that the kernel has
	why     string             // it is dead; "": it lives
	taken   bool
}

// bare tells whether a container is in no list, but for entries that nobody can read.
func (m *remains) bare() bool {
	return m.why == "" && len(m.entries)+len(m.leases)+len(m.plugged) == 0
}

// left is what only the plugin can take away of a container.
func (m *remains) left() (left []agentapi.Garbage) {
	for _, e := range m.entries {
		left = append(left, agentapi.Garbage{Sandbox: e.Sandbox})
	}
	for _, s := range m.damaged {
		left = append(left, agentapi.Garbage{Sandbox: s})
	}
	if len(left) == 0 && len(m.links) > 0 {
		left = append(left, agentapi.Garbage{Sandbox: m.Sandbox, HostVeths: m.links})
	}
	return left
}

// remains lists what this node has, by container, and says of each whether it is dead. It fails if a part of the answer is
// missing.
func (a *Agent) remains(ctx context.Context) ([]*remains, error) {
	by := map[string]*remains{}
	of := func(s agentapi.Sandbox) *remains {
		m := by[s.ContainerID]
		if m == nil {
			m = &remains{Sandbox: s}
			by[s.ContainerID] = m
		}
		m.Namespace, m.Pod, m.UID = cmp.Or(m.Namespace, s.Namespace), cmp.Or(m.Pod, s.Pod), cmp.Or(m.UID, s.UID)
		return m
	}
	attached, damaged, err := a.journal.Summaries()
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
	leases, err := a.nb.PortsOn(ctx, a.conf.NodeName)
	if err != nil {
		return nil, err
	}
	for _, l := range leases {
		m := of(agentapi.Sandbox{ContainerID: l.Owner.Sandbox, Namespace: l.Owner.Namespace, Pod: l.Owner.Pod, UID: l.Owner.UID})
		m.leases = append(m.leases, l)
	}
	plugged, err := a.ovs.Ports(ctx)
	if err != nil {
		return nil, err
	}
	for _, p := range plugged {
		m := of(agentapi.Sandbox{ContainerID: p.Sandbox, Namespace: p.Namespace, Pod: p.Pod, UID: p.UID})
		m.plugged = append(m.plugged, p)
	}
	all := make([]*remains, 0, len(by))
	for _, id := range slices.Sorted(maps.Keys(by)) {
		m := by[id]
		if err := a.judge(ctx, m); err != nil {
			return nil, err
		}
		all = append(all, m)
	}
	return all, nil
}

// linkThere tells whether the host's network, where the agent lives, has a link of that name. It asks for the one name: a list
// of all may have gaps while links come and go.
func linkThere(name string) (bool, error) {
	ifr, err := unix.NewIfreq(name)
	if err != nil {
		return false, nil // no link has such a name
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return false, fmt.Errorf("look for link %s: %w", name, err)
	}
	defer unix.Close(fd)
	err = unix.IoctlIfreq(fd, unix.SIOCGIFINDEX, ifr)
	if errors.Is(err, unix.ENODEV) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look for link %s: %w", name, err)
	}
	return true, nil
}

// judge says why a container is gone for good, if it is: its pod is gone, or all of its host ends are. What a call of the plugin
// does for it right now is that call's business, and what a DEL has left the sweep's.
func (a *Agent) judge(ctx context.Context, m *remains) error {
	ends := m.hostEnds()
	for _, name := range ends {
		there, err := linkThere(name)
		if err != nil {
			return err
		}
		if there {
			m.links = append(m.links, name)
		}
	}
	gone, err := a.podIsGone(ctx, m)
	switch {
	case err != nil:
		return err
	case a.busy(m.ContainerID), a.releasing(m.ContainerID):
	case gone != "":
		m.why = gone
	case slices.ContainsFunc(m.entries, func(e *journal.Summary) bool { return e.FailedAttempts > 0 }):
		m.why = "its end has begun, and networks of other plugins would not go"
	case len(ends) > 0 && len(m.links) == 0:
		m.why = "its network namespace is gone"
	}
	return nil
}

// podIsGone says that a container's pod is gone, "" when it is not.
func (a *Agent) podIsGone(ctx context.Context, m *remains) (string, error) {
	if m.Pod == "" {
		return "", nil
	}
	pod, err := a.source.Pod(ctx, m.Namespace, m.Pod, m.UID)
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

// hostEnds are the names that the container's host ends have, if they are there, each once.
func (m *remains) hostEnds() (names []string) {
	for _, p := range m.plugged {
		names = append(names, p.HostVeth)
	}
	for _, l := range m.leases {
		names = append(names, agentapi.HostVeth(m.ContainerID, l.Interface))
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

// busy tells whether a call of the plugin has the container's lock.
func (a *Agent) busy(containerID string) bool {
	return a.journal.Locked(containerID)
}

// releasing tells whether a DEL has left the container to the sweep.
func (a *Agent) releasing(containerID string) bool {
	return a.journal.HasPendingRelease(containerID)
}

func (m *remains) answer() agentapi.StaleSandbox {
	one := agentapi.StaleSandbox{Sandbox: m.Sandbox, Why: m.why, Journal: len(m.entries)+len(m.damaged) > 0, Collected: m.taken}
	for _, l := range m.leases {
		one.Ports = append(one.Ports, l.Name)
	}
	for _, p := range m.plugged {
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
