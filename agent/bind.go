package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/types/create"
	"golang.org/x/sync/errgroup"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/internal/failpoint"
	"github.com/ovn-multinet/ovn-multinet/nad"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovnport"
	"github.com/ovn-multinet/ovn-multinet/source"
	"github.com/ovn-multinet/ovn-multinet/sriov/deviceinfo"
)

// flowsTimeout bounds the wait for flows once a pod's ports are in Open vSwitch. Flows take 10 ms on a small network,
// and seconds behind an old northd with ten thousand ports.
const flowsTimeout = 30 * time.Second

// bind adds the OVS ports, waits for their flows and writes the pod's network-status. It takes over the sockets that
// came with the request, unless it fails before it needs them.
func (a *Agent) bind(ctx context.Context, r *agentapi.BindRequest, sockets func() []*os.File, send deliver) error {
	unlock, err := a.sandboxes.take(ctx, r.ContainerID)
	if err != nil {
		return err
	}
	defer unlock()
	pod, err := a.podOf(ctx, &r.Sandbox)
	if err != nil {
		return err
	}
	var status []byte // nil: the pod runs, and its status is written when the journal has the new interfaces
	if !r.Running {
		if status, err = statusOf(r); err != nil {
			return err
		}
	}
	owner := ovnport.Owner{
		Namespace: r.Namespace, Pod: r.Pod, UID: cmp.Or(r.UID, pod.UID), Sandbox: r.ContainerID, Node: a.conf.NodeName,
	}
	probes, err := a.newAddressProbes(r, pod, owner, sockets())
	if err != nil {
		return err
	}
	defer probes.close()
	ovsPorts := make([]ovnport.OVSPort, 0, len(r.Plan.Interfaces))
	for i := range r.Plan.Interfaces {
		ovsPorts = append(ovsPorts, ovsPortOf(r.ContainerID, &r.Plan.Interfaces[i]))
	}
	if err = a.connect(ctx, r, pod, owner, ovsPorts, status, probes); err == nil {
		err = send(struct{}{})
	}
	if err != nil {
		a.deleteStatus(ctx, pod, status, err)
		return err
	}
	if !r.Running {
		a.tellAttached(pod, r)
		a.changes.attached(pod, &r.Sandbox)
	}
	probes.start()
	return nil
}

// tellAttached tells the pod's owner what the pod has been given.
func (a *Agent) tellAttached(pod *netmodel.Pod, r *agentapi.BindRequest) {
	for _, d := range r.Plan.Delegates {
		if d.Warning != "" {
			a.source.Event(pod, source.Warning, "CNIArgs", d.Warning)
		}
	}
	if warning := nad.IgnoredKey(pod.Annotations); warning != "" {
		a.source.Event(pod, source.Warning, "KeyIgnored", warning)
	}
	a.source.Event(pod, source.Normal, "NetworksAttached", attachedMessage(&r.Plan))
}

// connect adds the OVS ports, waits for their flows, and writes the network-status meanwhile: each takes some
// milliseconds. Without the network-status, connect does not wait for flows. Without flows, it still waits for the
// answer to the write: a write that is cancelled may come after its deletion. When the flows are installed, connect
// searches for other hosts with the pod's addresses, if a network has its ADDs wait for that.
func (a *Agent) connect(ctx context.Context, r *agentapi.BindRequest, pod *netmodel.Pod, owner ovnport.Owner,
	ovsPorts []ovnport.OVSPort, status []byte, probes *addressProbes,
) error {
	ctx, cancel := withReserve(ctx)
	defer cancel()
	giveBack := func(bool) {}
	if len(ovsPorts) > 0 {
		if err := a.reconciler.awaitCleaned(ctx); err != nil {
			return err
		}
		err := a.whileThere(ctx, &r.Sandbox, pod, func(ctx context.Context) (err error) {
			giveBack, err = a.flows.enter(ctx)
			return err
		})
		if err != nil {
			return err
		}
		defer func() { giveBack(false) }()
		err = a.metrics.timed(phaseOVS, func() error { return a.ovs.Add(ctx, owner, ovsPorts, a.supersedes(&owner)) })
		if err != nil {
			return err
		}
	}
	both, waiting := errgroup.WithContext(ctx)
	both.Go(func() (err error) {
		defer a.catch(&err)
		if len(ovsPorts) > 0 {
			err = a.metrics.timed(phaseFlows, func() error { return a.awaitFlows(waiting, &r.Sandbox, pod, ovsPorts) })
		}
		if err == nil {
			a.forgetFormer(waiting, owner, ovsPorts)
			giveBack(true)
			failpoint.Hit("flows-installed")
			err = probes.await(waiting)
		}
		return err
	})
	both.Go(func() (err error) {
		defer a.catch(&err)
		if status == nil {
			return nil
		}
		err = a.metrics.timed(phaseStatus, func() error { return a.source.SetStatus(ctx, pod, status) })
		if err != nil {
			return statusError(pod, err)
		}
		failpoint.Hit("status-written")
		return nil
	})
	return both.Wait()
}

// statusReserve is the time that a bind keeps for the deletion of the network-status, if the wait for flows fails.
const statusReserve = time.Second

// withReserve ends a context a little before the deadline of its parent.
func withReserve(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	return context.WithDeadline(ctx, deadline.Add(-min(statusReserve, time.Until(deadline)/5)))
}

// deleteStatus deletes the network-status that a failed bind wrote: the status names interfaces that the plugin is
// about to delete. If another writer has replaced the status, the other status stays. An agent that stops deletes
// nothing, because the plugin repeats the request when the next agent runs.
func (a *Agent) deleteStatus(ctx context.Context, pod *netmodel.Pod, status []byte, failure error) {
	if status == nil || conf.HasCode(failure, conf.CodePodGone) || errors.Is(context.Cause(ctx), context.Canceled) {
		return
	}
	late, cancel := context.WithTimeout(context.WithoutCancel(ctx), statusReserve)
	defer cancel()
	if err := a.source.DeleteStatus(late, pod, status); err != nil {
		a.log.Warn("the network-status of a failed ADD stays until the next ADD of the pod",
			"pod", pod.Namespace+"/"+pod.Name, "err", err)
	}
}

// attachedMessage lists what a pod was given, in one line.
func attachedMessage(p *agentapi.Plan) string {
	words := make([]string, p.Attachments())
	for _, i := range p.Interfaces {
		word := i.Name + " on " + i.Network
		for _, a := range i.Addresses {
			word += " " + a.Addr().String()
		}
		words[i.Position] = word
	}
	for _, d := range p.Delegates {
		if !d.Chained {
			words[d.Position] = d.Name + " on " + d.Network
		}
	}
	return strings.Join(words, ", ")
}

// whileThere runs a wait, and ends it when the pod is gone.
func (a *Agent) whileThere(
	ctx context.Context, s *agentapi.Sandbox, pod *netmodel.Pod, wait func(context.Context) error,
) error {
	waiting, end := context.WithCancelCause(ctx)
	defer end(nil)
	stop := a.source.WhenGone(pod, func() { end(source.ErrNotFound) })
	defer stop()
	// The pod may have gone before. As a rule the agent's copy has the pod, and the source is not asked.
	if _, err := a.podOf(ctx, s); err != nil {
		return err
	}
	err := wait(waiting)
	if err != nil && errors.Is(context.Cause(waiting), source.ErrNotFound) {
		return conf.Errorf(conf.CodePodGone, "it was deleted, or another pod has its name",
			"pod %s/%s is gone; the wait for its flows ends", s.Namespace, s.Pod)
	}
	return err
}

// awaitFlows waits for the flows, as long as the pod is there.
func (a *Agent) awaitFlows(
	ctx context.Context, s *agentapi.Sandbox, pod *netmodel.Pod, ovsPorts []ovnport.OVSPort,
) error {
	ctx, cancel := context.WithTimeout(ctx, flowsTimeout)
	defer cancel()
	err := a.whileThere(ctx, s, pod, func(ctx context.Context) error { return a.ovs.AwaitFlows(ctx, ovsPorts) })
	if none, ok := errors.AsType[*ovnport.NoFlows](err); ok && !errors.Is(ctx.Err(), context.Canceled) {
		late, cancel := context.WithTimeout(context.WithoutCancel(ctx), 500*time.Millisecond)
		defer cancel()
		return a.nb.Explain(late, s.ContainerID, none)
	}
	return err
}

// forgetFormer has connections of the pod's older sandboxes forgotten. The pod starts without that too.
func (a *Agent) forgetFormer(ctx context.Context, owner ovnport.Owner, ovsPorts []ovnport.OVSPort) {
	if err := a.ovs.ForgetFormer(ctx, ovsPorts); err != nil {
		a.log.Warn("connections of an older sandbox are not forgotten", "pod", owner.Namespace+"/"+owner.Pod, "err", err)
	}
}

func statusOf(r *agentapi.BindRequest) ([]byte, error) {
	primary, err := resultOf(r.Primary)
	if err == nil && primary == nil {
		err = errors.New("it is empty")
	}
	if err != nil {
		return nil, conf.Errorf(conf.CodeDecoding, "the plugin before ovn-multinet in the conflist gave it",
			"prevResult: %w", err)
	}
	made, err := attached(r)
	if err != nil {
		return nil, err
	}
	return json.Marshal(nad.Status(r.Conflist, r.Interface, primary, made))
}

// attached is what the plan has given to the pod, in the order of the annotation.
func attached(r *agentapi.BindRequest) (made []nad.Attached, err error) {
	made = make([]nad.Attached, r.Plan.Attachments())
	put := func(position int, m nad.Attached) error {
		if d := r.Plan.Default; d != nil && d.Interface == m.Interface {
			m.Gateways = d.Gateways
		}
		if position < 0 || position >= len(made) || made[position].Network != "" {
			return conf.Errorf(conf.CodeInternal, "recreate the pod",
				"the plan has no place %d for interface %s", position, m.Interface)
		}
		made[position] = m
		return nil
	}
	delegates, chained := make([]nad.Attached, len(r.Plan.Delegates)), map[string]nad.Attached{}
	for i, d := range r.Plan.Delegates {
		if delegates[i], err = delegateMade(r, i); err != nil {
			return nil, err
		}
		if d.Chained {
			chained[d.Name] = delegates[i]
		}
	}
	for _, i := range r.Plan.Interfaces {
		m := chained[i.Name]
		m.Network, m.Interface, m.MAC, m.MTU, m.Addresses = i.Network, i.Name, i.MAC, i.MTU, i.Addresses
		if err := put(i.Position, m); err != nil {
			return nil, err
		}
	}
	for i, d := range r.Plan.Delegates {
		if d.Chained {
			continue
		}
		if err := put(d.Position, delegates[i]); err != nil {
			return nil, err
		}
	}
	return made, nil
}

// delegateMade is what the plan's delegate i has made.
func delegateMade(r *agentapi.BindRequest, i int) (m nad.Attached, err error) {
	d := &r.Plan.Delegates[i]
	m = nad.Attached{Network: d.Network, Interface: d.Name}
	if m.Result, err = resultOf(at(r.Results, i)); err != nil {
		return m, conf.Errorf(conf.CodeDecoding, "the network's plugins gave it",
			"interface %s: network %s: result: %w", d.Name, d.Network, err)
	}
	if m.Device = at(r.Devices, i); m.Device != nil {
		if err := deviceinfo.Validate(m.Device); err != nil {
			return m, conf.Errorf(conf.CodeDecoding, "the network's plugins wrote it",
				"interface %s: network %s: device information: %w", d.Name, d.Network, err)
		}
	}
	return m, nil
}

// at returns the i-th of what the delegates gave, nil when there is none.
func at(texts []json.RawMessage, i int) json.RawMessage {
	if i >= len(texts) || isNull(texts[i]) {
		return nil
	}
	return texts[i]
}

func isNull(text json.RawMessage) bool { return len(text) == 0 || string(text) == "null" }

// resultOf reads a CNI result of any version; nil if there is none, which is allowed. The library panics on some
// texts that are no results, such as one of version 0.4.0 with null among its interfaces.
func resultOf(text json.RawMessage) (r *types100.Result, err error) {
	if isNull(text) {
		return nil, nil
	}
	defer func() {
		if p := recover(); p != nil {
			r, err = nil, fmt.Errorf("it cannot be read: %v", p)
		}
	}()
	result, err := create.CreateFromBytes(text)
	if err != nil {
		return nil, err
	}
	return types100.GetResult(result)
}

// statusError fails the ADD: without its network-status, a pod would seem to have no networks.
func statusError(pod *netmodel.Pod, err error) error {
	if errors.Is(err, source.ErrNotFound) {
		return conf.Errorf(conf.CodePodGone, "it was deleted or made again meanwhile",
			"pod %s/%s: network-status: %w", pod.Namespace, pod.Name, err)
	}
	return unreadable(pod.Namespace, pod.Name, fmt.Errorf("network-status: %w", err))
}

// status asks both databases now. Without NB there are no new ports (50); without Open vSwitch, or ovn-controller's
// bridge in it, running pods may be cut off too (51).
func (a *Agent) status(ctx context.Context, _ *agentapi.StatusRequest, send deliver) error {
	for _, part := range []struct {
		code uint
		asks func(context.Context) error
	}{{conf.CodeLimited, a.ovs.Answers}, {conf.CodeNotAvailable, a.nb.Answers}} {
		if err := part.asks(ctx); err != nil {
			_, _, details := conf.Describe(err)
			return conf.Errorf(part.code, details, "%w", err)
		}
	}
	return send(struct{}{})
}
