//go:build chaos

package chaos

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
	"github.com/ovn-multinet/ovn-multinet/netmodel/policy"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
)

// memberships are the groups of NB with their ports, "<group> <port>", and the groups that an agent may choose.
func (r *policyRace) memberships() (ports map[string]string, members map[string]bool, groups []policy.Entry) {
	tables := r.DumpTables(r.t, nb.LogicalSwitchPortTable, nb.PortGroupTable, nb.CoppTable)
	ports, members = map[string]string{}, map[string]bool{} // ports: by row key, the UID of the pod
	for _, row := range tables[nb.LogicalSwitchPortTable] {
		ports[row["_uuid"].(string)] = row["external_ids"].(map[string]string)["ovn-multinet/pod-uid"]
	}
	for _, row := range tables[nb.PortGroupTable] {
		for _, port := range ovndbtest.Strings(row["ports"]) {
			members[row["_uuid"].(string)+" "+port] = true
		}
	}
	for _, row := range tables[nb.CoppTable] {
		if row["_uuid"] == ovndb.PolicyKey("shop/blue", "shop") {
			x, err := policy.Decode(row["external_ids"].(map[string]string))
			must(r.t, err)
			groups = x.Entries
		}
	}
	return ports, members, groups
}

// selects is how many versions of a pod's labels a group selects, from one version on.
func selects(t *testing.T, e policy.Entry, p *policyPod, from int) (n, all int) {
	selector, err := labels.Parse(e.Pods)
	must(t, err)
	for _, has := range p.labels[from:] {
		if all++; selector.Matches(labels.Set(has)) {
			n++
		}
	}
	return n, all
}

// check counts, between two transactions, the ports that have left a group, or are in one, although no labels say
// so that the pod has had since the port's groups were last chosen.
func (r *policyRace) check() {
	r.mu.Lock()
	defer r.mu.Unlock()
	ports, members, groups := r.memberships()
	for port, uid := range ports {
		p := r.pods[uid]
		if p == nil || p.gone {
			continue
		}
		for _, e := range groups {
			n, all := selects(r.t, e, p, r.oldest[uid])
			id := e.Group + " " + port
			switch {
			case members[id] && n == 0:
				r.openings++
				r.say("OTHER: %s of %s is in the group of %s", port, uid, e.Selector)
			case members[id]:
				r.joined[id+" "+uid] = true
			case n == all && r.joined[id+" "+uid]:
				r.openings++
				r.say("OPENING: %s of %s is not in the group of %s any more", port, uid, e.Selector)
			}
		}
	}
	for id := range r.joined { // of groups that are gone
		group, _, _ := strings.Cut(id, " ")
		if !slices.ContainsFunc(groups, func(e policy.Entry) bool { return e.Group == group }) {
			delete(r.joined, id)
		}
	}
}

// wrong are the memberships that are not what the API has, when all is at rest.
func (r *policyRace) wrong() (words []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	ports, members, groups := r.memberships()
	var list []*policy.Policy
	for _, o := range r.policies {
		list = append(list, o.Policy)
	}
	set, _ := policy.NewSet("shop/blue", "shop", list, false)
	if len(groups) != len(set.Selectors()) {
		words = append(words, fmt.Sprintf("%d groups, want %d", len(groups), len(set.Selectors())))
	}
	for port, uid := range ports {
		p := r.pods[uid]
		if p == nil || p.gone {
			continue
		}
		for _, e := range groups {
			n, _ := selects(r.t, e, p, p.newest())
			if has := members[e.Group+" "+port]; has != (n == 1) {
				words = append(words, fmt.Sprintf("%s of %s is in the group of %s: %t", port, uid, e.Selector, has))
			}
		}
	}
	return words
}

// play has all actors race, in one order.
func (r *policyRace) play(rnd *rand.Rand) (turns int) {
	for range rnd.IntN(5) {
		r.change(rnd)
	}
	if rnd.IntN(2) == 0 {
		r.hear(rnd, true)
		r.idle()
	}
	all := make([]func(), policyActors)
	for i := range all {
		own := rand.New(rand.NewPCG(rnd.Uint64(), rnd.Uint64()))
		switch {
		case i < policyAgents:
			all[i] = func() { r.agent(i, own) }
		case i == policyAPI:
			all[i] = func() { r.api(own) }
		default:
			all[i] = func() { r.hears(own) }
		}
	}
	return r.run(rnd, all, func(int) {})
}

// TestPoliciesRace has changes of labels and of policies, ADDs by agents with older copies of their pods, DELs, and the
// controller's passes race, in each order of their transactions that a random number chooses. No port leaves a group
// that selects its pod, after no transaction, and in the end each group has exactly the ports that it selects.
func TestPoliciesRace(t *testing.T) {
	r := newPolicyRace(t)
	r.turns.before = r.check
	row := Row{Fault: "races of labels, policies, pods and a controller"}
	turns := 0
	for i := 0; i < *schedules && row.Lost+row.Residue < 10; i++ {
		seed := *firstSeed + uint64(i)
		rnd := rand.New(rand.NewPCG(seed, 2))
		r.begin()
		turns += r.play(rnd)
		r.hear(rnd, true)
		r.idle()
		r.check()
		var words []string
		ctx, cancel := limited()
		err := lab.Eventually(ctx, func() error { // a pass that failed is repeated
			if words = r.wrong(); len(words) > 0 {
				return errors.New("not at rest")
			}
			return nil
		})
		cancel()
		r.stop()
		row.Tries++
		row.Lost += r.openings
		row.Residue += len(words)
		if r.openings > 0 || err != nil {
			t.Errorf("seed %d: %d openings, in the end %v:\n%s", seed, r.openings, words, strings.Join(r.log, "\n"))
		}
	}
	t.Logf("%d turns", turns)
	report(t, row)
}
