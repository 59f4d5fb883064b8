package policies

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/ovn-multinet/ovn-multinet/controller/engine"
	"github.com/ovn-multinet/ovn-multinet/controller/nads"
	"github.com/ovn-multinet/ovn-multinet/controller/pods"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/netmodel/policy"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/policies"
)

// reading is a policy with the networks that it is for.
type reading struct {
	object   *policy.Object
	networks map[string]bool // networks of OVN on which it is served
	waiting  map[string]bool // networks of OVN on which its namespace has no place yet
	// waits says why the policy is not ready, although what it says is served on networks; nil: it is for no others.
	waits error
}

// reread is a policy that the source has shed, and that is served all the same.
type reread struct {
	shed *policy.Policy // policy.Object.Isolation of the shed one: another one belongs to another version
	full *policy.Policy
}

// maxLookups is how many NADs that are not known yet one pass over the policies of a namespace reads.
const maxLookups = 64

// readPolicies reads the policies of a namespace and notes them. It returns the networks that they are for, or were
// for. It writes nothing.
func (k *Kind) readPolicies(ctx context.Context, namespace string) (networks map[string]bool, err error) {
	p := k.known
	if err := errors.Join(p.list(ctx), k.listReach(ctx)); err != nil {
		return nil, err
	}
	all, err := p.of(ctx, namespace)
	if err != nil {
		return nil, err
	}
	readings, err := k.readNetworks(ctx, namespace, all)
	if err != nil {
		return nil, err
	}
	refused, err := p.refused(ctx, namespace, readings)
	if err != nil {
		return nil, err
	}
	sets, err := p.serve(ctx, namespace, readings, refused)
	if err != nil {
		return nil, err
	}
	k.reach.across(namespace, sets, readings)
	p.waiting[namespace] = map[string]bool{}
	for _, r := range readings {
		for network := range r.waiting {
			if sets[network] == nil {
				p.waiting[namespace][network] = true
			}
		}
	}
	k.judge(namespace, readings, refused)
	p.sets[namespace] = sets
	networks = maps.Clone(p.written[namespace])
	if networks == nil {
		networks = map[string]bool{}
	}
	for _, some := range []map[string]bool{p.waiting[namespace], keysOf(sets)} {
		maps.Copy(networks, some)
	}
	if namespace == "" {
		p.further = k.reach.further(sets)
		maps.Copy(networks, keysOf(p.further))
	}
	if len(sets) == 0 {
		delete(p.sets, namespace)
	}
	return networks, nil
}

func keysOf[V any](of map[string]V) map[string]bool {
	all := map[string]bool{}
	for key := range of {
		all[key] = true
	}
	return all
}

// readNetworks finds out which networks the policies of a namespace are for. Policies that are only for networks of
// other programs are not among the result.
func (k *Kind) readNetworks(
	ctx context.Context, namespace string, all []*policy.Object,
) (readings []*reading, err error) {
	named := map[string]bool{}
	if len(all) == 0 {
		k.noteNamed(namespace, named)
		return nil, nil
	}
	places, err := k.placesOf(ctx, namespace)
	if err != nil {
		return nil, err
	}
	for _, o := range all {
		r := &reading{object: o, networks: map[string]bool{}, waiting: map[string]bool{}}
		others, err := places.read(ctx, r, named)
		if err != nil {
			return nil, err
		}
		if others && len(r.networks) == 0 && r.waits == nil {
			continue
		}
		readings = append(readings, r)
	}
	if places.lookups > maxLookups {
		k.Engine.AddAfter(policiesItem(namespace), engine.RetryLast)
	}
	k.noteNamed(namespace, named)
	return readings, nil
}

// places knows on which networks a namespace has a place: its policies are served there. A network is its own, one of
// its NADs describes the network, or one of its pods requests the network.
type places struct {
	k         *Kind
	namespace string
	requested map[string]bool // networks that its pods request
	lookups   int
}

func (k *Kind) placesOf(ctx context.Context, namespace string) (*places, error) {
	l := &places{k: k, namespace: namespace, requested: map[string]bool{}}
	if namespace == "" {
		return l, nil
	}
	pods, err := k.Source.PolicyPods(ctx, namespace)
	for _, pod := range pods {
		for _, nad := range pod.Requests {
			if network := k.NADs.Network(nad); network != "" && k.MayUse(namespace, nad) {
				l.requested[network] = true
			}
		}
	}
	return l, err
}

// at reports whether the namespace has a place on a network. One that had a place keeps it as long as one of its ports
// is there: without its policies the port would be open.
func (l *places) at(ctx context.Context, network string) (bool, error) {
	p := l.k.known
	if l.namespace == "" || l.k.NADs.Owns(l.namespace, network) || l.requested[network] {
		return true, nil
	}
	if !p.written[l.namespace][network] || p.waiting[l.namespace][network] {
		return false, nil
	}
	keys, err := p.Rows.OwnMembers(ctx, policies.Scope{Network: network, Namespace: l.namespace})
	if err != nil || len(keys) == 0 {
		return false, err
	}
	ports, err := p.Ports.ByKey(ctx, keys)
	return slices.ContainsFunc(ports, func(port pods.Port) bool { return port.Namespace == l.namespace }), err
}

// read notes the networks of a policy. others reports whether some are of other programs. It adds the NADs to named.
func (l *places) read(ctx context.Context, r *reading, named map[string]bool) (others bool, err error) {
	if r.object.ForAll() {
		for _, id := range l.k.allNetworks() {
			if err := l.note(ctx, r, id, allOf); err != nil {
				return false, err
			}
		}
		return false, nil
	}
	for _, nad := range r.object.Networks() {
		named[nad] = true
		id, err := l.network(ctx, nad)
		if unreadable, ok := errors.AsType[*nads.SourceFailed](err); ok {
			return false, unreadable
		}
		if _, ok := errors.AsType[*nads.NotOVN](err); ok {
			others = true
			continue
		}
		if err != nil {
			l.wait(r, nad, err)
			continue
		}
		if err := l.note(ctx, r, id, nad); err != nil {
			return false, err
		}
	}
	return others, nil
}

// allOf stands for the name of a NAD where a policy is for all networks.
const allOf = ""

// note notes that a policy is for a network.
func (l *places) note(ctx context.Context, r *reading, network, nad string) error {
	there, err := l.at(ctx, network)
	switch {
	case err != nil:
		return err
	case there:
		r.networks[network] = true
	case nad != allOf:
		r.waiting[network] = true
		l.wait(r, nad, nil)
	}
	return nil
}

// wait notes that a policy waits for a NAD. About a NAD of another namespace the answer is the same if it does not
// exist and if the namespace has no pod there.
func (l *places) wait(r *reading, nad string, why error) {
	if r.waits != nil {
		return
	}
	if engine.NamespaceOf(nad) == l.namespace && why != nil || l.namespace == "" {
		r.waits = &waits{why}
		return
	}
	r.waits = &waits{fmt.Errorf("annotation %s: NetworkAttachmentDefinition %s does not exist, or no pod of namespace %s "+
		"is on its network", policy.ForAnnotation, nad, l.namespace)}
}

// waits says that a policy is not ready, although nothing is wrong with it.
type waits struct{ error }

func (w *waits) Unwrap() error { return w.error }

// network returns the network that a NAD describes. NADs that did not exist when they were last read are not read again
// before they are new.
func (l *places) network(ctx context.Context, nad string) (string, error) {
	p := l.k.known
	if id := l.k.NADs.Network(nad); id != "" {
		return id, nil
	}
	gone := fmt.Errorf("annotation %s: NetworkAttachmentDefinition %s does not exist", policy.ForAnnotation, nad)
	if p.missing[nad] {
		return "", gone
	}
	if l.lookups++; l.lookups > maxLookups {
		return "", gone
	}
	id, err := l.k.NADs.NetworkNamed(ctx, policy.ForAnnotation, "policies", nad)
	if errors.Is(err, netmodel.ErrNotFound) {
		p.missing[nad] = true
	}
	return id, err
}

// refused returns the policies that are refused, by ID, with the reason. It reads policies again that the source has
// shed and that are within the limits.
func (p *known) refused(ctx context.Context, namespace string, all []*reading) (map[string]error, error) {
	var candidates []policy.Candidate
	refused := map[string]error{}
	for _, r := range all {
		o := r.object
		if o.Policy == nil && !o.Shed {
			refused[o.ID()] = errors.New(o.Refusal)
			continue
		}
		candidates = append(candidates, policy.Candidate{
			ID: o.ID(), Created: o.Created(), Policy: p.contentOf(o), Bytes: o.Size, Stays: p.stays(o),
			Networks: slices.Concat(slices.Collect(maps.Keys(r.networks)), slices.Collect(maps.Keys(r.waiting))),
		})
	}
	admission, warning := p.admit(namespace, candidates)
	if admission.NoRoom && p.judged[namespace] == nil { // the first pass of this controller over the namespace
		if err := p.markAccepted(ctx, namespace, candidates); err != nil {
			return nil, err
		}
		admission, warning = p.admit(namespace, candidates)
	}
	maps.Copy(refused, admission.Refused)
	if warning != "" {
		p.warn(all, refused, warning)
	}
	full := map[string]*reread{}
	for _, r := range all {
		o := r.object
		if !o.Shed || refused[o.ID()] != nil {
			continue
		}
		if known := p.contentOf(o); known == nil {
			again, err := p.Source.Policy(ctx, o.Namespace, o.Name)
			if errors.Is(err, netmodel.ErrNotFound) || err == nil && again.Policy == nil {
				refused[o.ID()] = errors.New("the policy has changed meanwhile") // its own pass follows
				continue
			}
			if err != nil {
				return nil, &nads.SourceFailed{Err: err}
			}
			p.full[o.ID()] = &reread{o.Isolation, again.Policy}
		}
		full[o.ID()] = p.full[o.ID()]
	}
	maps.DeleteFunc(p.full, func(id string, _ *reread) bool {
		return engine.NamespaceOf(id) == namespace && full[id] == nil
	})
	return refused, nil
}

// admit decides which policies a namespace may have, and notes what they need. warning says that the namespace comes
// near to a limit.
func (p *known) admit(
	namespace string, candidates []policy.Candidate,
) (admission *policy.Admission, warning string) {
	item, room := policiesItem(namespace), policy.Room{Tiers: p.Rows.Tiers()}
	if namespace == "" {
		return policy.Admit(namespace, candidates, room), ""
	}
	room.Others, room.Limit = p.Engine.Others(namespace, item), p.Engine.Limits(namespace)
	admission = policy.Admit(namespace, candidates, room)
	p.Engine.Await(namespace, item, admission.NoRoom)
	if len(candidates) == 0 {
		p.Engine.Free(item)
		return admission, ""
	}
	return admission, p.Engine.Use(namespace, item, admission.Needs)
}

// warn records an Event about the limits of a namespace, for its youngest policy that is not refused.
func (p *known) warn(all []*reading, refused map[string]error, warning string) {
	var youngest *policy.Object
	for _, r := range all {
		if refused[r.object.ID()] == nil && (youngest == nil || r.object.Created() > youngest.Created()) {
			youngest = r.object
		}
	}
	if youngest != nil {
		p.Source.PolicyEvent(youngest, true, "NearLimit", warning)
	}
}

// stays reports whether NB has a policy with this content, as far as this controller has read it before.
func (p *known) stays(o *policy.Object) bool {
	was := p.judged[o.Namespace][o.ID()]
	if was == nil || was.policy == nil {
		return false
	}
	if content := p.contentOf(o); content != nil { // a write of the state makes another copy of the same content
		return was.policy.Text == content.Text
	}
	return was.object.Isolation == o.Isolation
}

// markAccepted notes which policies of a namespace NB has with the same content. The states say the same, but the
// namespace can write them.
func (p *known) markAccepted(ctx context.Context, namespace string, candidates []policy.Candidate) error {
	inNB := map[string]*policy.Policy{}
	for network := range p.written[namespace] {
		some, err := p.Rows.Accepted(ctx, policies.Scope{Network: network, Namespace: namespace})
		if err != nil {
			return err
		}
		for name, one := range some {
			inNB[namespace+"/"+name] = one
		}
	}
	for i := range candidates {
		c := &candidates[i]
		switch was := inNB[c.ID]; {
		case was == nil:
		case c.Policy != nil:
			c.Stays = was.Text == c.Policy.Text
		default: // it is not in memory
			c.Stays = was.Bytes() == c.Bytes && was.Created == c.Created
		}
	}
	return nil
}

// contentOf returns a policy with its content; nil if it is refused, or shed and not read again.
func (p *known) contentOf(o *policy.Object) *policy.Policy {
	if known := p.full[o.ID()]; o.Shed && known != nil && known.shed == o.Isolation {
		return known.full
	}
	return o.Policy
}

// serve returns what NB should have of the policies, by network: the content of those that are accepted, and what
// stands for those that are refused.
func (p *known) serve(
	ctx context.Context, namespace string, all []*reading, refused map[string]error,
) (sets map[string][]*served, err error) {
	sets = map[string][]*served{}
	present := map[string]bool{}
	var isolated []*reading
	for _, r := range all {
		o := r.object
		present[o.ID()] = true
		switch {
		case refused[o.ID()] == nil:
			for network := range r.networks {
				sets[network] = append(sets[network], &served{o, p.contentOf(o)})
			}
		case o.Isolation != nil:
			isolated = append(isolated, r)
		case namespace == "":
			before, err := p.acceptedBefore(ctx, o)
			if err != nil {
				return nil, err
			}
			for network, former := range before {
				sets[network] = append(sets[network], &served{o, former})
			}
		}
	}
	isolate(sets, isolated)
	if namespace == "" {
		maps.DeleteFunc(p.accepted, func(id string, _ map[string]*policy.Policy) bool { return !present[id] })
	}
	return sets, nil
}

// isolate adds what stands for policies that are refused. The oldest ones have a policy of their own. Of the others,
// one on each network isolates all pods of the namespace.
func isolate(sets map[string][]*served, refused []*reading) {
	slices.SortFunc(refused, func(a, b *reading) int {
		return policy.ByAge(a.object.Isolation, b.object.Isolation)
	})
	whole := map[string]bool{}
	for i, r := range refused {
		for network := range r.networks {
			switch {
			case i < policy.MaxIsolations:
				sets[network] = append(sets[network], &served{r.object, r.object.Isolation})
			case !whole[network]:
				whole[network] = true
				sets[network] = append(sets[network], &served{r.object, r.object.Isolation.IsolateAll()})
			}
		}
	}
}

// across has the peers of policies selected on all networks that reach the policy's network: of ClusterNetworkPolicies
// on all of them, of a MultiNetworkPolicy on those that the policy is for.
func (r *reach) across(namespace string, sets map[string][]*served, readings []*reading) {
	networks := map[*policy.Object]map[string]bool{}
	for _, one := range readings {
		networks[one.object] = one.networks
	}
	type of struct {
		policy *policy.Policy
		words  string
	}
	known := map[of]*policy.Policy{} // many networks have the same
	for network, all := range sets {
		for _, s := range all {
			words := r.words(network)
			if namespace != "" {
				words = []string{r.joint(network, networks[s.object])}
			}
			key := of{s.policy, fmt.Sprint(words)}
			if known[key] == nil {
				known[key] = s.policy.Across(words...)
			}
			s.policy = known[key]
		}
	}
}
