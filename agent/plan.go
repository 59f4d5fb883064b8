package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/internal/failpoint"
	"github.com/ovn-multinet/ovn-multinet/nad"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/node/journal"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovnport"
)

// plan answers a PlanRequest: it validates everything first and then writes all ports. A plugin that ended before it
// read the plan will not ask for a release, so the agent releases the ports itself.
func (a *Agent) plan(ctx context.Context, r *agentapi.PlanRequest, send deliver) error {
	unlock, err := a.sandboxes.take(ctx, r.ContainerID)
	if err != nil {
		return err
	}
	defer unlock()
	if err := a.finishEarlierRelease(ctx, &r.Sandbox); err != nil {
		return err
	}
	nads := newPlanNADs(a)
	defer nads.close() // after the plan is sent: until then its configurations are in memory
	p, err := a.makePlan(ctx, r, nads)
	failpoint.Hit("plan-made")
	made := &agentapi.Release{Sandbox: r.Sandbox} // without a plan, the ports are found by their owner
	if err == nil {
		made.Planned = true
		for _, i := range p.Interfaces {
			made.Ports = append(made.Ports, i.Port)
		}
		if r.Present != nil {
			made.Interfaces = p.Names()
		}
		err = send(p)
	}
	if err != nil && !made.Planned && r.Present != nil {
		return err // the journal has the names of the interfaces, and the plugin's next run releases their ports
	}
	heard := !errors.Is(err, errNotSent) && !errors.Is(ctx.Err(), context.Canceled)
	if err == nil || heard || made.Planned && len(made.Ports) == 0 {
		return err
	}
	a.log.Warn("a plan did not reach its plugin; releasing its ports",
		"pod", r.Namespace+"/"+r.Pod, "containerID", r.ContainerID, "err", err)
	late, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	return errors.Join(err, a.releaseNow(late, made))
}

// finishEarlierRelease finishes what an earlier DEL of this very sandbox left to release: a later release would
// delete the new ports. It needs the sandbox's lock.
func (a *Agent) finishEarlierRelease(ctx context.Context, s *agentapi.Sandbox) error {
	err := a.finishRelease(ctx, s)
	if err == nil {
		err = a.ovs.AwaitDeleted(ctx, s.ContainerID)
	}
	if err != nil {
		return conf.Errorf(conf.CodeTryAgain, "the ADD succeeds when OVN's Northbound database and Open vSwitch answer",
			"an earlier attempt of this sandbox is not released yet: %w", err)
	}
	return nil
}

// clean reports whether a failed plan left nothing behind: it was refused before its ports were written, or with them,
// unless NB's answer was lost or NB was replaced meanwhile. If an answer was too large to send, its ports were written,
// and their release may have failed.
func clean(ctx context.Context, err error) bool {
	_, replaced := errors.AsType[*ovndb.Replaced](err)
	return ctx.Err() == nil && !replaced && !errors.Is(err, ovndb.ErrUnknownOutcome) && !errors.Is(err, errNotSent)
}

// errNotSent says that a plugin did not get its answer.
var errNotSent = errors.New("the plugin did not get its answer")

// maxAttempts bounds how often one ADD follows a change of its networks.
const maxAttempts = 8

// makePlan reads the pod's networks and writes its ports.
func (a *Agent) makePlan(ctx context.Context, r *agentapi.PlanRequest, nads *planNADs) (*agentapi.Plan, error) {
	early := a.early.of(ctx, r.UID)
	p, err := a.readRequests(ctx, r, nads)
	if err != nil {
		return nil, err
	}
	plan := &agentapi.Plan{}
	if len(p.requests) > 0 {
		p.older = early.ports()
		plan, err = p.make(ctx)
	}
	if err == nil {
		a.early.takenOver(early, plan)
		plan.Arrange(p.positions)
	}
	return plan, err
}

// make makes the plan. If NB did not accept an input that was read, make reads this input again and makes another
// attempt.
func (p *planning) make(ctx context.Context) (*agentapi.Plan, error) {
	for n := range maxAttempts {
		plan, err := p.attempt(ctx)
		if err == nil {
			return plan, nil
		}
		_, policies := errors.AsType[*ovnport.PolicyChanged](err)
		_, profiles := errors.AsType[*ovnport.ProfilesChanged](err)
		if last := n == maxAttempts-1; !(last && (policies || profiles)) {
			again, why := p.refresh(ctx, err)
			if again {
				continue
			}
			err = why
		}
		if p.unsure != nil {
			err = fmt.Errorf("%w (before: %w)", err, p.unsure)
		}
		return nil, err
	}
	return nil, errors.Join(conf.Errorf(conf.CodeTryAgain,
		"try again when its NetworkAttachmentDefinition stays as it is",
		"a network of the pod changes all the time"), p.unsure)
}

// planning is the making of one plan: what the pod requests, and the inputs that were read for it.
type planning struct {
	agent       *Agent
	sandbox     *agentapi.Sandbox
	owner       ovnport.Owner
	pod         *netmodel.Pod
	annotations map[string]string
	requests    []nad.Request
	rules       nad.Rules
	sharing     bool // the plugin reads plans whose delegates share a conflist
	probing     bool // the plugin opens sockets for probes
	chaining    bool // the plugin reads plans with chained delegates
	nads        *planNADs
	journal     readJournal
	older       map[string]*ovnport.Older // the pod's early ports, by interface
	// present is what a running pod has: requests are the others. positions are their places in the annotation, by
	// interface; of a pod that starts, they are those in requests.
	present    *agentapi.Plan
	positions  map[string]int
	supersedes ovnport.Supersedes
	// unsure is the error of an attempt whose transaction has an unknown outcome: ports may have been written.
	unsure error
}

// readRequests reads the pod and its attachment requests.
func (a *Agent) readRequests(ctx context.Context, r *agentapi.PlanRequest, nads *planNADs) (*planning, error) {
	pod, err := a.podOf(ctx, &r.Sandbox)
	if err != nil {
		return nil, err
	}
	annotations := r.Annotations
	if annotations == nil {
		annotations = conf.NetworkAnnotations(pod.Annotations)
	}
	present, positions := []nad.Present(nil), map[string]int{}
	if r.Present != nil {
		annotations, present = conf.NetworkAnnotations(pod.Annotations), presentIn(r.Present)
	}
	requests, err := nad.ParseRequestsOf(annotations, r.Namespace, r.Interface, present)
	if err != nil {
		return nil, err
	}
	if r.Present != nil {
		if requests, positions, err = furtherRequests(requests, present); err != nil {
			return nil, err
		}
	}
	if len(requests) > 0 && r.Draining {
		return nil, agentapi.Draining()
	}
	nads.requests = requests
	p := &planning{
		agent: a, sandbox: &r.Sandbox, pod: pod, annotations: annotations, requests: requests, nads: nads,
		sharing: r.Sharing, probing: r.Probing, chaining: r.Chaining, present: r.Present, positions: positions,
		owner: ovnport.Owner{
			Namespace: r.Namespace, Pod: r.Pod, UID: cmp.Or(r.UID, pod.UID), Sandbox: r.ContainerID, Node: a.conf.NodeName,
		},
		rules: nad.Rules{
			Isolated: a.conf.Isolated, Global: a.conf.Global, Compatible: a.conf.Compatible,
			Allowed: r.AllowedDelegates, AllowedIPAM: append([]string{}, r.AllowedIPAM...), // never nil
		},
		journal: sync.OnceValues(func() (*journalEntries, error) {
			attached, damaged, err := a.journal.Summaries()
			return &journalEntries{attached, damaged}, err
		}),
	}
	p.supersedes = a.supersedes(&p.owner)
	return p, nil
}

// journalEntries is what the plugin's journal has; readJournal reads it, once for a plan.
type (
	journalEntries struct {
		attached []journal.Summary
		damaged  []string // IDs
	}
	readJournal func() (*journalEntries, error)
)

// attempt makes the plan from the inputs as they are known now. It writes the ports last.
func (p *planning) attempt(ctx context.Context) (*agentapi.Plan, error) {
	attachments, err := nad.Resolve(ctx, p.owner.Namespace, p.requests, p.rules, p.nads.get)
	if err != nil {
		return nil, err
	}
	if err := p.checkChaining(attachments); err != nil {
		return nil, err
	}
	if err := checkFailedDELs(attachments, p.sandbox, p.journal); err != nil {
		return nil, err
	}
	settings, mtus, err := p.agent.readNode(ctx, attachments)
	if err != nil {
		return nil, err
	}
	replacements := 0
	if settings != nil {
		if replacements, err = p.agent.newPorts.mayBegin(); err != nil {
			return nil, err
		}
	}
	err = nad.ApplyNodeSubnets(attachments, func(at *nad.Attachment) (*netmodel.Network, error) {
		return p.agent.subnets.networkOnNode(ctx, at)
	})
	if err != nil {
		return nil, err
	}
	routing, err := p.routing(attachments)
	if err != nil {
		return nil, err
	}
	devices, err := p.agent.giveDevices(ctx, &p.owner, attachments, p.journal)
	if err != nil {
		return nil, err
	}
	plan := p.layOut(attachments, mtus, routing, devices)
	if len(plan.Delegates) > 0 {
		if err := plan.CheckSize(); err != nil {
			return nil, err
		}
	}
	if settings == nil {
		return plan, nil
	}
	plan.ChecksumOff, p.owner.Chassis = settings.Userspace, settings.Chassis
	if err := p.writePorts(ctx, plan, attachments, routing.AllGateways()); err != nil {
		return nil, err
	}
	return plan, p.agent.newPorts.mayKeep(replacements)
}

// refresh reads the one input again that the error says is out of date: the configuration of a network, this node's
// subnet of one, the groups of the pod's policies on one, or the security profiles. Otherwise it returns why another
// attempt is of no use.
func (p *planning) refresh(ctx context.Context, err error) (again bool, why error) {
	notAccepted, isNotAccepted := errors.AsType[*ovnport.NotAccepted](err)
	moved, hasMoved := errors.AsType[*ovnport.NodeSubnetChanged](err)
	policies, hasPolicies := errors.AsType[*ovnport.PolicyChanged](err)
	_, hasProfiles := errors.AsType[*ovnport.ProfilesChanged](err)
	switch {
	case isNotAccepted:
		p.nads.use(notAccepted.NAD, notAccepted.Config)
	case hasMoved:
		p.agent.subnets.forget(moved.Network)
	case hasPolicies:
		if why := p.agent.policies.read(ctx, policies.Network, policies.Namespace); why != nil {
			return false, why
		}
	case hasProfiles:
		p.agent.profiles.clear()
	case conf.HasCode(err, conf.CodeInvalidConfig):
		// An edit may have made the NAD invalid while NB has a valid configuration of the network.
		return p.nads.useAccepted(ctx), err
	default:
		return false, err
	}
	if errors.Is(err, ovndb.ErrUnknownOutcome) {
		p.unsure = err
	}
	return true, nil
}

// readNode compares a pod's OVN networks with this node, and returns the node's settings and the MTUs of the
// networks. It returns nil for a pod with other plugins' networks alone: such a pod needs nothing of OVN.
func (a *Agent) readNode(
	ctx context.Context, attachments []nad.Attachment,
) (settings *ovnport.Settings, mtus []int, err error) {
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
		if err := a.checkMapping(at, settings); err != nil {
			return nil, nil, err
		}
		if mtus[i], err = a.mtuOf(at.Network, settings); err != nil {
			return nil, nil, fmt.Errorf("interface %s: network %s: %w", at.Interface, at.Network.ID(), err)
		}
	}
	return settings, mtus, nil
}

// layOut puts everything into a plan except the ports.
func (p *planning) layOut(
	attachments []nad.Attachment, mtus []int, routing *nad.Routing, devices map[int]*agentapi.Device,
) *agentapi.Plan {
	plan := &agentapi.Plan{}
	for i := range attachments {
		at := &attachments[i]
		d := at.Delegate
		if at.Network != nil {
			plan.Interfaces = append(plan.Interfaces, agentapi.Interface{
				Name: at.Interface, Network: at.String(), MTU: mtus[i], Routes: at.Routes, Position: i,
				Gateways: gatewaysFor(at), Digest: at.Digest(),
			})
		}
		if d == nil {
			continue
		}
		plan.Delegates = append(plan.Delegates, agentapi.Delegate{
			Name: at.Interface, Network: at.String(), Chained: at.Network != nil, Conflist: d.Conflist,
			Capabilities: d.Capabilities, Args: d.Args,
			Device: devices[i], Position: i, Warning: d.Warning, Digest: at.Digest(),
		})
	}
	setTables(plan, attachments, routing.Routes)
	if p.present == nil {
		shareRoutes(plan, attachments)
	} else {
		p.separate(plan, attachments)
	}
	p.agent.setRouting(plan, routing)
	if len(plan.Delegates) > 0 && !p.sharing {
		plan.Apart()
	}
	return plan
}

// omitRoutesToItself omits the routes of a network that lead to the pod itself.
func (p *planning) omitRoutesToItself(i *agentapi.Interface, network *netmodel.Network) {
	var own []netip.Addr
	for _, a := range i.Addresses {
		own = append(own, a.Addr())
	}
	for _, v := range network.VirtualAddressesOf(p.pod) {
		own = append(own, v.Address)
	}
	others := network.ForOthers(own)
	isOthers := func(r conf.Route) bool { return slices.Contains(others, r) }
	i.Routes = slices.DeleteFunc(slices.Clone(i.Routes), isOthers)
	i.TableRoutes = slices.DeleteFunc(slices.Clone(i.TableRoutes), isOthers)
}

// gatewaysFor are the gateways that plugins behind ours are told. On an overlay network without a router, nobody has
// the address.
func gatewaysFor(at *nad.Attachment) []netip.Addr {
	n := at.Network
	if at.Delegate == nil || n.RouterName() == "" && n.Topology != netmodel.Localnet {
		return nil
	}
	return n.Gateways
}

// checkChaining refuses plugins behind ours for a plugin of the node that cannot run them.
func (p *planning) checkChaining(attachments []nad.Attachment) error {
	for i := range attachments {
		if at := &attachments[i]; at.Network != nil && at.Delegate != nil && !p.chaining {
			return conf.Errorf(conf.CodeTryAgain, "finish the upgrade of this node",
				"interface %s: network %s: the node's ovn-multinet plugin is older than its agent, and runs no plugins behind it",
				at.Interface, at)
		}
	}
	return nil
}

// setRouting puts the pod's own routes and its default routes into the plan.
func (a *Agent) setRouting(p *agentapi.Plan, r *nad.Routing) {
	for _, route := range r.Routes {
		p.Routes = append(p.Routes, agentapi.Route{Route: route.Route, Interface: route.Interface})
	}
	if r.Default != nil {
		p.Default = &agentapi.Default{
			Interface: r.Default.Interface, Gateways: r.Gateways, Keep: a.conf.KeepOnPrimary,
		}
	}
}

// writePorts writes the ports of all the plan's interfaces in one transaction of NB. notOwn are addresses that no
// interface of the pod may have. Dynamic addresses are not those that hosts outside use, either.
func (p *planning) writePorts(
	ctx context.Context, plan *agentapi.Plan, attachments []nad.Attachment, notOwn []netip.Addr,
) error {
	requests := make([]ovnport.Request, 0, len(plan.Interfaces))
	for _, i := range plan.Interfaces {
		at := &attachments[i.Position]
		if at.Network.ConflictWait > 0 && !p.probing {
			return errNoWait(at)
		}
		membership, err := p.agent.policyOfNew(ctx, at.Network.ID(), p.pod)
		if err != nil {
			return err
		}
		profiles, err := p.agent.profiles.of(ctx, at, p.pod)
		if err != nil {
			return fmt.Errorf("interface %s: %w", at.Interface, err)
		}
		request := ovnport.Request{
			Interface: at.Interface, Network: at.Network, IPs: at.IPs, MAC: at.MAC, Refusal: at.Refusal,
			Excluded: slices.Concat(notOwn, p.agent.used.of(at.String())),
			Older:    p.older[at.Interface], Policy: membership, Profiles: profiles,
		}
		if err := p.setIPAMClaim(ctx, &request, at); err != nil {
			return fmt.Errorf("interface %s: %w", at.Interface, err)
		}
		for _, ip := range request.IPs {
			if err := at.Network.CheckNamespace(ip.Addr(), p.owner.Namespace); err != nil {
				return conf.Errorf(conf.CodeNotAllowed, "request another address, or ask the owner of the network to change "+
					"subnetsBehind", "interface %s: %w", at.Interface, err)
			}
		}
		requests = append(requests, request)
	}
	var ports []ovnport.Port
	err := p.agent.metrics.timed(phasePorts, func() (err error) {
		ports, err = p.agent.nb.Ensure(ctx, p.owner, requests, p.supersedes)
		return err
	})
	for n, port := range ports {
		i := &plan.Interfaces[n]
		i.MAC, i.Addresses = port.MAC.String(), port.Addresses
		p.omitRoutesToItself(i, attachments[i.Position].Network)
		i.Probe = probeOf(attachments[i.Position].Network, port.Addresses)
		i.Port = agentapi.Port{Name: port.Name, UUID: port.UUID, Claims: port.Claims, Switch: port.Switch}
		for _, g := range port.Groups {
			i.Port.Groups = append(i.Port.Groups, agentapi.PortGroup(g))
		}
	}
	return p.explainInUse(ctx, err)
}
