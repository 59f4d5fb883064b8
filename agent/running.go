package agent

import (
	"context"
	"slices"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/nad"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
)

// change tells the plugin what the annotation of a running pod says now, beside what its sandbox has.
func (a *Agent) change(ctx context.Context, r *agentapi.ChangeRequest, send deliver) error {
	pod, err := a.podOf(ctx, &r.Sandbox)
	if err != nil {
		return err
	}
	has := presentIn(&r.Present)
	requests, err := nad.ParseRequestsOf(conf.NetworkAnnotations(pod.Annotations), pod.Namespace, r.Interface, has)
	if err != nil {
		return err
	}
	change, err := nad.Compare(requests, has)
	if err != nil {
		return err
	}
	repair, err := conf.Repair(pod.Annotations)
	if err != nil {
		return err
	}
	return send(agentapi.Change{Remove: change.Remove, Add: change.Add, Positions: change.Positions, Repair: repair})
}

// presentIn are the attachments of a plan.
func presentIn(p *agentapi.Plan) (has []nad.Present) {
	for _, at := range p.List() {
		has = append(has, nad.Present{Interface: at.Interface, Network: at.Network, Digest: at.Digest})
	}
	return has
}

// furtherRequests are the requests for interfaces that a running pod does not have, with their places in the
// annotation.
func furtherRequests(
	all []nad.Request, has []nad.Present,
) (further []nad.Request, positions map[string]int, err error) {
	change, err := nad.Compare(all, has)
	if err != nil {
		return nil, nil, err
	}
	positions = map[string]int{}
	for i := range all {
		s := &all[i]
		if !slices.Contains(change.Add, s.Interface) {
			continue
		}
		if s.DefaultRoute != nil {
			return nil, nil, conf.Errorf(conf.CodeInvalidConfig, "remove the key, or delete the pod, so that it is made again",
				"interface %s: default-route: the default route of a running pod stays where it is", s.Interface)
		}
		further, positions[s.Interface] = append(further, *s), i
	}
	return further, positions, nil
}

// routing is what the pod requests beside the routes of its networks. A running pod keeps the routes that it has.
func (p *planning) routing(attachments []nad.Attachment) (*nad.Routing, error) {
	if p.present == nil {
		return nad.ParseRouting(p.annotations, attachments, p.sandbox.Interface)
	}
	for i := range attachments {
		if at := &attachments[i]; at.Resource != "" {
			return nil, conf.Errorf(conf.CodeInvalidConfig, "delete the pod, so that it is made again",
				"interface %s: network %s: it takes a device of %s, and kubelet gives a device only to a pod that starts",
				at.Interface, at, at.Resource)
		}
	}
	return &nad.Routing{}, nil
}

// separate keeps the new interfaces of a running pod apart from those that it has: what the pod sends from the
// addresses of a new interface follows a table of its own, and the routes of a network that the pod is on already stay
// as they are.
func (p *planning) separate(plan *agentapi.Plan, attachments []nad.Attachment) {
	taken := map[int]bool{}
	for i := range p.present.Interfaces {
		taken[p.present.Interfaces[i].Table] = true
	}
	for k := range plan.Interfaces {
		i := &plan.Interfaces[k]
		network := attachments[i.Position].Network
		key := ovndb.SwitchKey(network.SwitchName())
		if slices.ContainsFunc(p.present.Interfaces, func(has agentapi.Interface) bool { return has.Port.Switch == key }) {
			i.Routes = nil
		}
		if len(p.present.Interfaces) == 0 && i.Table == 0 {
			continue
		}
		if i.Table == 0 {
			setTableRoutes(i, network, nil)
		}
		for i.Table = agentapi.FirstTable; taken[i.Table]; {
			i.Table++
		}
		taken[i.Table] = true
	}
}
