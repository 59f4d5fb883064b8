package agent

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/nad"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovnport"
)

const (
	// maxEarlyPods is how many pods have early ports at a time. Kubelet's default is 110 pods on a node.
	maxEarlyPods = 256
	// earlyRate is how many pods get early ports in a second, after the first earlyBurst. A pod whose ADD comes before
	// its turn gets none.
	earlyRate, earlyBurst = 20, 16
	// earlyJitter is the longest random pause before early ports are written: the pods of a Deployment are bound to many
	// nodes at the same moment.
	earlyJitter = 100 * time.Millisecond
)

// earlyPorts writes the ports of pods that are bound to this node, before the runtime asks for them. So northd and the
// Southbound database have done their work when the ADD comes. The ports belong to a sandbox that no runtime has, until
// the ADD takes them over.
type earlyPorts struct {
	agent  *Agent
	limit  *rate.Limiter
	jitter time.Duration

	mu   sync.Mutex
	pods map[string]*earlyPod // by the pod's UID
}

// earlyPod is a pod that has early ports, or is about to get them.
type earlyPod struct {
	sandbox agentapi.Sandbox
	cancel  context.CancelFunc
	begun   bool                 // the ports are written now, or were written
	done    chan struct{}        // closed when they are, or are not needed
	made    []agentapi.Interface // with the ports that were written
	unwatch func()               // the pod's end is not of interest any more
}

func newEarlyPorts(a *Agent) *earlyPorts {
	return &earlyPorts{
		agent: a, limit: rate.NewLimiter(earlyRate, earlyBurst), jitter: earlyJitter, pods: map[string]*earlyPod{},
	}
}

const earlyPrefix = "early-"

// isEarly reports whether a sandbox is that of early ports.
func isEarly(containerID string) bool { return strings.HasPrefix(containerID, earlyPrefix) }

// PodBound gives a pod early ports. It does not block.
func (a *Agent) PodBound(pod *netmodel.Pod) { a.early.bound(pod) }

func (e *earlyPorts) bound(pod *netmodel.Pod) {
	if len(conf.NetworkAnnotations(pod.Annotations)) == 0 || pod.UID == "" ||
		nad.HasAttachments(pod.Annotations[nad.StatusAnnotation]) {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.pods[pod.UID] != nil || len(e.pods) >= maxEarlyPods {
		return
	}
	p := &earlyPod{
		done: make(chan struct{}),
		sandbox: agentapi.Sandbox{
			ContainerID: earlyPrefix + pod.UID, Interface: "eth0", Namespace: pod.Namespace, Pod: pod.Name, UID: pod.UID,
		},
	}
	var ctx context.Context
	ctx, p.cancel = context.WithTimeout(context.Background(), releaseTimeout)
	if e.agent.background.start(func(run context.Context) {
		defer context.AfterFunc(run, p.cancel)()
		e.write(ctx, p, pod)
	}) {
		e.pods[pod.UID] = p
	} else {
		p.cancel()
	}
}

// write writes a pod's ports when it is the pod's turn. It needs no answer: what cannot be written now, the ADD writes,
// and its error is the one to show.
func (e *earlyPorts) write(ctx context.Context, p *earlyPod, pod *netmodel.Pod) {
	defer close(p.done)
	defer p.cancel()
	p.unwatch = e.agent.source.WhenGone(pod, func() { e.gone(p) })
	_, err := e.agent.podOf(ctx, &p.sandbox) // the pod may have gone before
	if err == nil && e.awaitTurn(ctx, p) {
		p.made, err = e.makePorts(ctx, p)
	}
	if err != nil {
		e.agent.log.Debug("no early ports", "pod", pod.Namespace+"/"+pod.Name, "err", err)
	}
	if len(p.made) == 0 {
		p.unwatch()
		e.forget(p)
	}
}

// awaitTurn waits until the ports may be written; false: the pod needs no early ports any more.
func (e *earlyPorts) awaitTurn(ctx context.Context, p *earlyPod) bool {
	if e.limit.Wait(ctx) != nil {
		return false
	}
	select {
	case <-ctx.Done():
		return false
	case <-time.After(rand.N(e.jitter + 1)):
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	p.begun = e.pods[p.sandbox.UID] == p
	return p.begun
}

// errHasSandbox ends the writing of early ports for a pod that has ports already.
var errHasSandbox = errors.New("a sandbox has the pod's ports")

// makePorts writes the ports of a pod's OVN networks. It takes no port over.
func (e *earlyPorts) makePorts(ctx context.Context, p *earlyPod) (made []agentapi.Interface, err error) {
	defer e.agent.catch(&err)
	nads := newPlanNADs(e.agent)
	defer nads.close()
	request := &agentapi.PlanRequest{Sandbox: p.sandbox, Chaining: true, Probing: true}
	planning, err := e.agent.readRequests(ctx, request, nads)
	if err != nil {
		return nil, err
	}
	planning.supersedes = func(context.Context, ovnport.Owner) error { return errHasSandbox }
	if err := planning.keepOVN(ctx); err != nil || len(planning.requests) == 0 {
		return nil, err
	}
	plan, err := planning.make(ctx)
	if _, replaced := errors.AsType[*ovndb.Replaced](err); replaced {
		return nil, errors.Join(err, e.agent.nb.ReleaseSandbox(ctx, planning.owner))
	}
	if err != nil {
		return nil, err
	}
	return plan.Interfaces, nil
}

// keepOVN drops the requests for networks of other plugins: their devices are known only when the runtime asks. It also
// drops those with an IPAMClaim, because another pod of the virtual machine may still have the port.
func (p *planning) keepOVN(ctx context.Context) error {
	kept := p.requests[:0]
	for _, request := range p.requests {
		def, err := p.agent.getNAD(ctx, request.Namespace, request.Name)
		if err != nil {
			return err
		}
		kind, err := def.Kind()
		if err != nil {
			return err
		}
		if conf.IsOVN(kind) && request.IPAMClaim == "" {
			kept = append(kept, request)
		}
	}
	p.requests, p.nads.requests = kept, kept
	return nil
}

// of returns the early ports of a pod whose ADD has come; nil: it has none. If they are being written, of waits.
func (e *earlyPorts) of(ctx context.Context, uid string) *earlyPod {
	e.mu.Lock()
	p := e.pods[uid]
	if p != nil && !p.begun {
		delete(e.pods, uid)
		p.cancel()
		p = nil
	}
	e.mu.Unlock()
	if p == nil {
		return nil
	}
	select {
	case <-p.done:
		return p
	case <-ctx.Done():
		return nil
	}
}

// ports are the early ports, by interface.
func (p *earlyPod) ports() map[string]*ovnport.Older {
	if p == nil {
		return nil
	}
	older := map[string]*ovnport.Older{}
	for i := range p.made {
		older[p.made[i].Name] = &ovnport.Older{Sandbox: p.sandbox.ContainerID, Port: portOf(&p.made[i])}
	}
	return older
}

// takenOver notes that a plan has the pod's ports. Early ports that the plan does not have are given back: the
// annotation or a network was changed.
func (e *earlyPorts) takenOver(p *earlyPod, plan *agentapi.Plan) {
	if p == nil {
		return
	}
	p.unwatch()
	if !e.forget(p) {
		return // the pod has gone, and its early ports are being deleted
	}
	rest := slices.DeleteFunc(p.made, func(m agentapi.Interface) bool {
		return slices.ContainsFunc(plan.Interfaces, func(i agentapi.Interface) bool { return i.Port.UUID == m.Port.UUID })
	})
	if len(rest) == 0 {
		return
	}
	e.agent.background.start(func(ctx context.Context) { e.giveBack(ctx, p, rest) })
}

// gone deletes the early ports of a pod that has gone. It does not block.
func (e *earlyPorts) gone(p *earlyPod) {
	if !e.forget(p) {
		return
	}
	p.cancel()
	e.agent.background.start(func(ctx context.Context) {
		<-p.done
		e.giveBack(ctx, p, p.made)
	})
}

// giveBack deletes early ports. If that fails, the reconcile pass deletes them.
func (e *earlyPorts) giveBack(ctx context.Context, p *earlyPod, made []agentapi.Interface) {
	ctx, cancel := context.WithTimeout(ctx, releaseTimeout)
	defer cancel()
	ports := make([]agentapi.Port, 0, len(made))
	for _, i := range made {
		ports = append(ports, i.Port)
	}
	owner := ovnport.Owner{Node: e.agent.conf.NodeName, Sandbox: p.sandbox.ContainerID}
	if err := e.agent.nb.Release(ctx, owner, keysOf(ports)); err != nil {
		e.agent.log.Warn("early ports stay until a reconcile pass deletes them",
			"pod", p.sandbox.Namespace+"/"+p.sandbox.Pod, "err", err)
	}
}

// forget removes a pod from those that have early ports; false: it was removed before.
func (e *earlyPorts) forget(p *earlyPod) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.pods[p.sandbox.UID] != p {
		return false
	}
	delete(e.pods, p.sandbox.UID)
	return true
}
