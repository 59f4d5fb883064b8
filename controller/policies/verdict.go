package policies

import (
	"fmt"
	"maps"
	"slices"

	"github.com/ovn-multinet/ovn-multinet/netmodel/policy"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/policies"
)

// judged is what is known of a policy: one verdict over all its networks, which is written when NB has the rows of the
// last one.
type judged struct {
	object *policy.Object
	policy *policy.Policy // the content by which it was judged; nil: it is refused
	why    error          // why it is not ready; nil: it is
	// pending are the networks whose rows NB does not have yet.
	pending map[string]bool
	limits  map[string]error // by network: policy.Set.Limit
}

// judge notes the verdicts on the policies of a namespace. Those that have nothing to wait for are written at once.
func (k *Kind) judge(namespace string, all []*reading, refused map[string]error) {
	p := k.known
	before, now := p.judged[namespace], map[string]*judged{}
	present := map[string]bool{}
	var together map[string][]string
	if namespace == "" {
		together = k.reach.together()
	}
	for _, r := range all {
		id := r.object.ID()
		present[id] = true
		v := &judged{
			object: r.object, policy: p.contentOf(r.object), why: r.waits, pending: maps.Clone(r.networks),
			limits: map[string]error{},
		}
		if namespace == "" {
			k.reach.extend(v, together)
		}
		if why := refused[id]; why != nil {
			v.policy, v.why = nil, p.refusedBecause(r.object, why)
			if namespace == "" { // its former content is in NB already
				clear(v.pending)
			}
		}
		if namespace == "" && v.policy != nil && v.why == nil {
			v.why = k.reach.unenforced(v.policy, r.networks)
		}
		if was := before[id]; was != nil && v.equal(was) {
			v.keep(was)
		}
		now[id] = v
		k.put(v)
	}
	if p.judged[namespace] = now; len(now) == 0 {
		delete(p.judged, namespace)
	}
	k.states.refused.Keep(namespace, present)
}

// extend has the verdict wait for the networks, too, that reach those of the policy: their pods are peers.
func (r *reach) extend(v *judged, together map[string][]string) {
	if v.policy == nil || len(v.policy.Peers()) == 0 {
		return
	}
	ways := map[string]bool{}
	for network := range v.pending {
		for _, way := range r.words(network) {
			ways[way] = true
		}
	}
	for way := range ways {
		for _, network := range together[way] {
			v.pending[network] = true
		}
	}
}

// equal reports whether NB needs the same rows for both verdicts.
func (v *judged) equal(was *judged) bool {
	return v.policy == was.policy && v.object.Isolation == was.object.Isolation &&
		fmt.Sprint(v.why) == fmt.Sprint(was.why)
}

// keep keeps what an equal verdict has of the networks that are written.
func (v *judged) keep(was *judged) {
	for network := range v.pending {
		limit, done := was.limits[network]
		if done {
			delete(v.pending, network)
			v.limits[network] = limit
		}
	}
}

// refusedBecause is why a policy is refused, and what that means for its pods.
func (p *known) refusedBecause(o *policy.Object, why error) error {
	switch {
	case len(p.accepted[o.ID()]) > 0:
		return fmt.Errorf("%w; what was accepted before stays", why)
	case o.Isolation == nil:
		return why
	}
	words := "ingress and egress"
	switch {
	case o.Isolation.Egress == nil:
		words = "ingress"
	case o.Isolation.Ingress == nil:
		words = "egress"
	}
	return fmt.Errorf("refused, so %s have no %s on its networks: %w", o.Isolation.Subject, words, why)
}

// put queues the verdict on a policy to be written, if no network is pending.
func (k *Kind) put(v *judged) {
	if len(v.pending) > 0 {
		return
	}
	why := v.why
	for _, network := range slices.Sorted(maps.Keys(v.limits)) {
		if why == nil {
			why = v.limits[network]
		}
	}
	k.states.set(v.object, why)
}

// scopeWritten notes that NB has the rows of a scope.
func (k *Kind) scopeWritten(s policies.Scope, set *policy.Set) {
	for _, v := range k.judged[s.Namespace] {
		_, known := v.limits[s.Network]
		if !v.pending[s.Network] && !known {
			continue
		}
		delete(v.pending, s.Network)
		v.limits[s.Network] = nil
		if v.policy != nil {
			v.limits[s.Network] = set.Limit(v.policy)
		}
		k.put(v)
	}
}
