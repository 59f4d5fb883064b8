package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/internal/failpoint"
	"github.com/ovn-multinet/ovn-multinet/nad"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovnport"
	"github.com/ovn-multinet/ovn-multinet/source"
)

// plan makes a plan: everything is validated first, then all ports are written. A plugin that is gone before it
// hears the plan will not ask for their release, so they are released here.
func (a *Agent) plan(ctx context.Context, r *agentapi.PlanRequest, send deliver) error {
	unlock, err := a.sandboxes.take(ctx, r.ContainerID)
	if err != nil {
		return err
	}
	defer unlock()
	// A release of this very sandbox that is still waiting for a database would take away what is made now.
	err = a.finishRelease(ctx, &r.Sandbox)
	if err == nil {
		err = a.ovs.AwaitUnplugged(ctx, r.ContainerID)
	}
	if err != nil {
		return conf.Errorf(conf.CodeTryAgain, "it goes on as soon as OVN's Northbound database and Open vSwitch answer",
			"an earlier attempt of this container is not released yet: %w", err)
	}
	texts := &texts{agent: a}
	defer texts.done() // when the plan is sent: until then it is in memory
	p, err := a.makePlan(ctx, r, texts)
	failpoint.Hit("plan-made")
	gone := &agentapi.Release{Sandbox: r.Sandbox}
	if err == nil {
		if err = send(p); err == nil || len(p.Interfaces) == 0 {
			return err
		}
		gone.Planned = true
		for _, i := range p.Interfaces {
			gone.Ports = append(gone.Ports, i.Port)
		}
	}
	if !errors.Is(err, errNotSent) && !errors.Is(ctx.Err(), context.Canceled) {
		return err // the plugin hears it, and asks for the release if there is anything to release
	}
	a.log.Warn("a plan did not reach its plugin, releasing its ports", "pod", r.Namespace+"/"+r.Pod, "containerID", r.ContainerID, "err", err)
	late, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	return errors.Join(err, a.releaseNow(late, gone))
}

// clean tells whether a plan that failed left nothing behind: it is refused before its ports are written, or with
// them, unless the database's word is missing. The ports of an answer that was too large to send are written, and
// their release may have failed.
func clean(ctx context.Context, err error) bool {
	return ctx.Err() == nil && !errors.Is(err, ovndb.ErrUnknownOutcome) && !errors.Is(err, errNotSent)
}

// errNotSent says that a plugin did not get its answer.
var errNotSent = errors.New("the plugin did not get its answer")

func (a *Agent) makePlan(ctx context.Context, r *agentapi.PlanRequest, texts *texts) (*agentapi.Plan, error) {
	pod, err := a.podOf(ctx, &r.Sandbox)
	if err != nil {
		return nil, err
	}
	annotations := r.Annotations
	if annotations == nil {
		annotations = conf.OwnAnnotations(pod.Annotations)
	}
	selections, err := nad.Select(annotations, r.Namespace, r.Interface)
	if err != nil || len(selections) == 0 {
		return &agentapi.Plan{}, err
	}
	if r.Draining {
		return nil, agentapi.Draining()
	}
	owner := ovnport.Owner{
		Namespace: r.Namespace, Pod: r.Pod, UID: cmp.Or(r.UID, pod.UID), Sandbox: r.ContainerID, Node: a.conf.NodeName,
	}
	read := sync.OnceValues(func() (*journal, error) {
		attached, damaged, err := agentapi.ReadAttached(a.conf.StateDir)
		return &journal{attached, damaged}, err
	})
	asks := &asked{annotations, selections, &r.Sandbox, a.rules(r), !r.Sharing, read}
	texts.selections = selections
	get := getNAD(texts.getNAD)
	var lost error // an answer of the database, on the way to the plan: something may have been written
	for range maxChanges {
		p, err := a.planFor(ctx, owner, asks, get)
		if changed, ok := errors.AsType[*ovnport.NotInForce](err); ok {
			if errors.Is(err, ovndb.ErrUnknownOutcome) {
				lost = err
			}
			get = instead(get, changed)
			continue
		}
		if moved, ok := errors.AsType[*ovnport.Moved](err); ok {
			if errors.Is(err, ovndb.ErrUnknownOutcome) {
				lost = err
			}
			a.blocks.forget(moved.Network)
			continue
		}
		if conf.HasCode(err, conf.CodeInvalidConfig) {
			// The NAD may be spoilt while the network goes on as it was.
			if other, differs := a.inForce(ctx, selections, get); differs {
				get = other
				continue
			}
		}
		if err != nil && lost != nil {
			err = fmt.Errorf("%w (before: %w)", err, lost)
		}
		return p, err
	}
	return nil, errors.Join(conf.Errorf(conf.CodeTryAgain, "try again when its NetworkAttachmentDefinition stays as it is", "a network of the pod changes all the time"), lost)
}

// maxChanges bounds how often one ADD follows a change of its networks.
const maxChanges = 8

type getNAD = func(ctx context.Context, namespace, name string) (*netmodel.NAD, error)

// instead answers for one NAD with the configuration that is in force.
func instead(get getNAD, now *ovnport.NotInForce) getNAD {
	return func(ctx context.Context, namespace, name string) (*netmodel.NAD, error) {
		def, err := get(ctx, namespace, name)
		if namespace+"/"+name != now.NAD || errors.Is(err, netmodel.ErrNotFound) {
			return def, err
		}
		other := netmodel.NAD{Namespace: namespace, Name: name} // it has lost its configuration
		if err == nil {
			other = *def
		}
		other.Config, other.Omitted, other.Accepted = now.Config, netmodel.Omitted{}, true
		return &other, nil
	}
}

// inForce answers with the configurations that are in force, for all networks of the pod; differs says that one of them
// is another than get has.
func (a *Agent) inForce(ctx context.Context, selections []nad.Selection, get getNAD) (other getNAD, differs bool) {
	for i := range selections {
		def, err := get(ctx, selections[i].Namespace, selections[i].Name)
		if errors.Is(err, netmodel.ErrNotFound) {
			continue
		}
		if err != nil { // which network it is may be known without its text
			def, err = a.getNAD(ctx, selections[i].Namespace, selections[i].Name)
		}
		if err != nil {
			def = &netmodel.NAD{Namespace: selections[i].Namespace, Name: selections[i].Name}
		}
		id, err := def.NetworkID()
		if err != nil {
			id = def.ID()
		}
		if id == "" {
			continue // OVN's database knows nothing of other plugins' networks, and may be away
		}
		config, err := a.nb.InForce(ctx, id, def.ID())
		if err != nil || config == "" {
			continue
		}
		if now, err := def.Network(); err == nil && now.Canonical() == config {
			continue
		}
		get, differs = instead(get, &ovnport.NotInForce{NAD: def.ID(), Config: config}), true
	}
	return get, differs
}

// asked is what a pod asks for.
type asked struct {
	annotations map[string]string
	selections  []nad.Selection
	sandbox     *agentapi.Sandbox
	rules       nad.Rules
	apart       bool // its plugin reads no plan whose delegates share a conflist
	journal     readJournal
}

// journal is what the plugin's journal says; readJournal reads it, once for a plan.
type (
	journal struct {
		attached []agentapi.Attached
		damaged  []string // by the files' names
	}
	readJournal func() (*journal, error)
)

// planFor makes the plan by the NADs that get answers with.
func (a *Agent) planFor(ctx context.Context, owner ovnport.Owner, pod *asked, get getNAD) (*agentapi.Plan, error) {
	attachments, err := nad.Resolve(ctx, owner.Namespace, pod.selections, pod.rules, get)
	if err != nil {
		return nil, err
	}
	if err := checkFailed(attachments, pod.sandbox, pod.journal); err != nil {
		return nil, err
	}
	settings, mtus, err := a.onThisNode(ctx, attachments)
	if err != nil {
		return nil, err
	}
	if err := nad.Settle(attachments, func(at *nad.Attachment) (*netmodel.Network, error) { return a.onNode(ctx, at) }); err != nil {
		return nil, err
	}
	routing, err := nad.Route(pod.annotations, attachments, pod.sandbox.Interface)
	if err != nil {
		return nil, err
	}
	devices, err := a.giveDevices(ctx, &owner, attachments, pod.journal)
	if err != nil {
		return nil, err
	}
	p := &agentapi.Plan{}
	a.setRouting(p, routing)
	var own []int // the attachments to OVN networks
	for i := range attachments {
		at := &attachments[i]
		d := at.Delegate
		if d == nil {
			own = append(own, i)
			continue
		}
		p.Delegates = append(p.Delegates, agentapi.Delegate{
			Name: at.Interface, Network: at.String(), Conflist: d.Conflist, Capabilities: d.Capabilities, Args: d.Args, Device: devices[i], Position: i, Warning: d.Warning,
		})
	}
	if len(p.Delegates) > 0 {
		if pod.apart {
			p.Apart()
		}
		if err := p.CheckSize(); err != nil {
			return nil, err
		}
	}
	if settings == nil {
		return p, nil
	}
	p.ChecksumOff, owner.Chassis = settings.Userspace, settings.Chassis
	wants := make([]ovnport.Want, 0, len(own))
	for _, i := range own {
		at := &attachments[i]
		p.Interfaces = append(p.Interfaces, agentapi.Interface{Name: at.Interface, Network: at.String(), MTU: mtus[i], Routes: at.Routes, Position: i})
		wants = append(wants, ovnport.Want{Interface: at.Interface, Network: at.Network, IPs: at.IPs, MAC: at.MAC, Refusal: at.Refusal, NotOwn: routing.AllGateways()})
	}
	ports, err := a.nb.Ensure(ctx, owner, wants, func(ctx context.Context, older ovnport.Owner) error {
		return a.supersedes(ctx, &owner, &older)
	})
	if err != nil {
		return nil, err
	}
	for i, port := range ports {
		p.Interfaces[i].MAC = port.MAC.String()
		p.Interfaces[i].Addresses = port.Addresses
		p.Interfaces[i].Port = agentapi.Port{Name: port.Name, UUID: port.UUID, Claims: port.Claims}
	}
	return p, nil
}

// onThisNode holds a pod's OVN networks against this node, and returns its settings and their MTUs. A pod with other plugins'
// networks alone needs nothing of OVN: nil.
func (a *Agent) onThisNode(ctx context.Context, attachments []nad.Attachment) (settings *ovnport.Settings, mtus []int, err error) {
	mtus = make([]int, len(attachments))
	for i := range attachments {
		at := &attachments[i]
		if at.Network == nil {
			continue
		}
		if settings == nil {
			if settings, err = a.ovs.Settings(ctx); err != nil {
				return nil, nil, err
			}
		}
		if err := checkMapping(at, settings, a.conf.NodeName); err != nil {
			return nil, nil, err
		}
		if mtus[i], err = mtuOf(at.Network, settings); err != nil {
			return nil, nil, err
		}
	}
	return settings, mtus, nil
}

// setRouting puts the pod's own routes and its default routes into the plan.
func (a *Agent) setRouting(p *agentapi.Plan, r *nad.Routing) {
	for _, route := range r.Routes {
		p.Routes = append(p.Routes, agentapi.Route{Route: route.Route, Interface: route.Interface})
	}
	if r.Default != nil {
		p.Default = &agentapi.Default{Interface: r.Default.Interface, Gateways: r.Gateways, Keep: a.conf.KeepOnPrimary}
	}
}

// podOf returns the pod that the sandbox is for.
func (a *Agent) podOf(ctx context.Context, s *agentapi.Sandbox) (*source.Pod, error) {
	pod, err := a.source.Pod(ctx, s.Namespace, s.Pod, s.UID)
	if errors.Is(err, source.ErrNotFound) {
		return nil, conf.Errorf(conf.CodePodGone, "it was deleted meanwhile", "pod %s/%s is not found", s.Namespace, s.Pod)
	}
	if err != nil {
		return nil, unreadable(s.Namespace, s.Pod, err)
	}
	if !pod.Is(s.UID) {
		return nil, conf.Errorf(conf.CodePodGone, "it was deleted and made again meanwhile",
			"pod %s/%s is another one by now: UID %s, not %s", s.Namespace, s.Pod, pod.UID, s.UID)
	}
	return pod, nil
}

// supersedes lets a pod's new sandbox take its ports over from the old one, and a new pod of the name from the old
// pod if the new one is the live one.
func (a *Agent) supersedes(ctx context.Context, owner, older *ovnport.Owner) error {
	if older.UID == owner.UID {
		return nil
	}
	live, err := a.source.LivePod(ctx, owner.Namespace, owner.Pod)
	switch {
	case errors.Is(err, source.ErrNotFound), err == nil && !live.Is(owner.UID):
		return conf.Errorf(conf.CodePodGone, "a pod of the same name has its ports", "pod %s/%s with UID %s is gone", owner.Namespace, owner.Pod, owner.UID)
	case err != nil:
		return unreadable(owner.Namespace, owner.Pod, err)
	}
	return nil
}

// unreadable is the error of a pod that its source cannot tell now.
func unreadable(namespace, name string, err error) error {
	return conf.Errorf(conf.CodeTryAgain, "is the source of pods reachable from this node?",
		"pod %s/%s: %w", namespace, name, err)
}
