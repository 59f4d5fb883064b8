package agent

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/source"
)

// check compares ports and OVS ports with the plan. It tells the pod's owner of a difference, and of a fault that the
// plugin has found: few runtimes show the owner the error of a CHECK.
func (a *Agent) check(ctx context.Context, r *agentapi.CheckRequest, send deliver) error {
	if r.Fault != "" {
		a.tellFault(&r.Sandbox, r.Fault)
		return send(struct{}{})
	}
	if r.Repaired != "" {
		a.faults.forget(&r.Sandbox)
		a.source.Event(podOfSandbox(&r.Sandbox), source.Normal, "InterfaceRepaired", r.Repaired)
		return send(struct{}{})
	}
	for n := range r.Plan.Interfaces {
		i := &r.Plan.Interfaces[n]
		ovsPort := ovsPortOf(r.ContainerID, i)
		err := a.nb.Check(ctx, r.ContainerID, i.Port.UUID, i.MAC, i.Addresses)
		if err = errors.Join(err, a.ovs.Check(ctx, r.ContainerID, ovsPort)); err != nil {
			err = fmt.Errorf("interface %s: %w", i.Name, err)
			if conf.HasCode(err, conf.CodeNotAsMade) {
				a.tellFault(&r.Sandbox, agentapi.Fault(err))
			}
			return err
		}
	}
	a.faults.forget(&r.Sandbox)
	return send(struct{}{})
}

// tellFault records an Event for the owner of a pod.
func (a *Agent) tellFault(s *agentapi.Sandbox, fault string) {
	if a.faults.isNew(s, fault) {
		a.source.Event(podOfSandbox(s), source.Warning, "CheckFailed", fault)
	}
}

func podOfSandbox(s *agentapi.Sandbox) *netmodel.Pod {
	return &netmodel.Pod{Namespace: s.Namespace, Name: s.Pod, UID: s.UID}
}

// faults are the faults that owners of pods were told of. A runtime may repeat a CHECK every few seconds.
type faults struct {
	mu    sync.Mutex
	known map[string]string // by sandbox: the last fault
}

// maxFaults bounds the memory: a DEL that the agent did not see leaves a fault behind.
const maxFaults = 1024

func newFaults() *faults { return &faults{known: map[string]string{}} }

// isNew reports whether the sandbox has another fault than before.
func (f *faults) isNew(s *agentapi.Sandbox, fault string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.known[s.ID()] == fault {
		return false
	}
	if len(f.known) >= maxFaults {
		clear(f.known)
	}
	f.known[s.ID()] = fault
	return true
}

func (f *faults) forget(s *agentapi.Sandbox) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.known, s.ID())
}
