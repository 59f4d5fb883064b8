package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
	"github.com/ovn-multinet/ovn-multinet/e2e/labtest"
)

// What e2e/cyclonus prints.
type (
	tableCase struct {
		Name  string
		Steps []tableStep
	}
	tableStep struct {
		Namespaces map[string]map[string]string
		Pods       []tablePod
		Policies   []json.RawMessage
		Entries    []tableEntry
	}
	tablePod struct {
		Namespace, Name string
		Labels          map[string]string
		IPs             []string
		Ports           []lab.Port
	}
	tableEntry struct {
		From, To, Protocol string
		Port               int
		Allowed            []bool // by IPv4, by IPv6
	}
)

// policyObject is what the test has to know of a policy.
type policyObject struct {
	Metadata struct{ Namespace, Name string }
	Spec     struct{ Ingress, Egress []policyRule }
}

type policyRule struct {
	Ports []policyPort
}

type policyPort struct{ Port intstr.IntOrString }

// namesPorts reports whether a policy of the case has a named port.
func (c *tableCase) namesPorts(t *testing.T) bool {
	for _, s := range c.Steps {
		for _, text := range s.Policies {
			var p policyObject
			if err := json.Unmarshal(text, &p); err != nil {
				t.Fatal(err)
			}
			for _, r := range append(p.Spec.Ingress, p.Spec.Egress...) {
				if slices.ContainsFunc(r.Ports, func(port policyPort) bool { return port.Port.Type == intstr.String }) {
					return true
				}
			}
		}
	}
	return false
}

// tablesEnv is how many cases of Cyclonus are probed, evenly distributed over all cases, and a fifth of them over those
// with named ports; "all" is the long form, and "names" has all cases with named ports.
const tablesEnv = "OVN_MULTINET_TABLES"

func chosen(t *testing.T, all []tableCase) []tableCase {
	var named, others []tableCase
	for _, c := range all {
		if c.namesPorts(t) {
			named = append(named, c)
		} else {
			others = append(others, c)
		}
	}
	n, err := strconv.Atoi(os.Getenv(tablesEnv))
	if err != nil {
		n = 20
	}
	switch {
	case os.Getenv(tablesEnv) == "names":
		return named
	case os.Getenv(tablesEnv) == "all" || n > len(all):
		return all
	}
	return append(evenly(others, n-n/5), evenly(named, n/5)...)
}

func evenly(all []tableCase, n int) (some []tableCase) {
	for i := range n {
		some = append(some, all[i*len(all)/n])
	}
	return some
}

// tables is a world with the pods of Cyclonus' model on one dual-stack network.
type tables struct {
	*world
	*prober
	faulty    bool      // see hasFaults
	open      tableStep // without policies
	pods      map[string]*lab.Pod
	addrs     map[string][]netip.Addr // of pods: IPv4, IPv6
	manifests map[string]string       // of namespaces and policies
	*tally
}

// tally counts the entries of tables that were compared, and those that differ.
type tally struct{ entries, differing int }

// TestPolicyTables: what passes between pods under policies is what Cyclonus says of them: in each case of its generator,
// for each pair of pods, port, protocol and family, by packets.
func TestPolicyTables(t *testing.T) {
	text, err := lab.Tables()
	if err != nil {
		t.Fatal(err)
	}
	var all []tableCase
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	w := &tables{world: parallelWorld(t, lab.Options{Nodes: 2}, nil), prober: newProber(), pods: map[string]*lab.Pod{},
		addrs: map[string][]netip.Addr{}, manifests: map[string]string{}, tally: &tally{}}
	cases := chosen(t, all)
	w.Test = labtest.New(t, patience+time.Duration(len(cases))*time.Minute)
	w.network("default/tables", `{"type":"ovn-multinet","subnets":"10.60.0.0/16,fd60::/64"}`)
	w.faulty = w.hasFaults()
	w.open = opened(all[0].Steps[0])
	w.make(w.open)
	w.agrees("without policies", w.open)
	for i, c := range cases {
		if i%5 == 4 {
			// The controller allows each namespace so many changes in a time. It stores that nowhere.
			w.Must(w.StopController(w.Ctx))
			w.Must(w.StartController(w.Ctx))
		}
		w.part(c.Name, func(_ *testing.T, sub *world) {
			with := *w
			with.world = sub
			with.run(c)
		})
	}
	t.Attr("policy.tables", fmt.Sprintf("%d of %d cases, %d entries, by IPv4 and IPv6, of TCP, UDP and SCTP: %d differ",
		len(cases), len(all), w.entries, w.differing))
	w.make(tableStep{})
	w.endNetworks("default/tables")
	w.AsBefore()
}

// opened is a step without its policies.
func opened(s tableStep) tableStep {
	s.Policies, s.Entries = nil, slices.Clone(s.Entries)
	for i := range s.Entries {
		s.Entries[i].Allowed = []bool{true, true}
	}
	return s
}

// run runs a case. Then it deletes the policies: when each probe is answered again, no packet of the case is still on its
// way, so what has not come never comes.
func (w *tables) run(c tableCase) {
	var forbidden []sent
	for i, s := range c.Steps {
		name := fmt.Sprintf("case %s, step %d", c.Name, i+1)
		if w.make(s); w.agrees(name, s) {
			forbidden = append(forbidden, w.holds(name, s)...)
		}
	}
	w.make(w.open)
	w.agrees("without policies, after case "+c.Name, w.open)
	w.differ(w.came(forbidden))
}

// differ reports entries that are not as the table says.
func (w *tables) differ(entries []string) {
	if w.differing += len(entries); len(entries) > 0 {
		w.T.Errorf("%d entries differ: %s", len(entries), strings.Join(entries[:min(len(entries), 10)], "; "))
	}
}

// came lists the probes that have come.
func (w *tables) came(probes []sent) (all []string) {
	for _, p := range probes {
		if w.arrived(p.number) {
			all = append(all, p.String()+" has come")
		}
	}
	return all
}

// unanswered lists the probes that are not answered.
func (w *tables) unanswered(probes []sent) (all []string) {
	for _, p := range probes {
		if !w.answered(p.number) {
			all = append(all, p.String()+" is not answered")
		}
	}
	return all
}

// make has what a step has, and nothing else: namespaces, pods, policies.
func (w *tables) make(s tableStep) {
	files := map[string]string{}
	for name, labels := range s.Namespaces {
		files["ns."+name+".yaml"] = string(w.JSON(map[string]any{"apiVersion": "v1", "kind": "Namespace",
			"metadata": map[string]any{"name": name, "labels": labels}}))
	}
	var policies []policyObject
	for _, text := range s.Policies {
		var p policyObject
		w.Must(json.Unmarshal(text, &p))
		policies = append(policies, p)
		files[policyManifest(p.Metadata.Namespace+"."+p.Metadata.Name)] = string(text)
	}
	for file := range w.manifests {
		if _, stays := files[file]; !stays {
			w.Must(w.RemoveManifest(file))
		}
	}
	for file, text := range files {
		if w.manifests[file] != text {
			w.Must(w.WriteManifest(file, text))
		}
	}
	clear(w.manifests)
	maps.Copy(w.manifests, files)
	w.makePods(s.Pods)
	for _, p := range policies {
		w.policyIs(p.Metadata.Namespace+"/"+p.Metadata.Name, `"ready": true`)
	}
}

// makePods starts and ends pods, and changes their labels.
func (w *tables) makePods(pods []tablePod) {
	stays := map[string]bool{}
	for i, p := range pods {
		name := p.Namespace + "/" + p.Name
		stays[name] = true
		pod := w.pods[name]
		if pod == nil {
			pod = w.guest(i%2, p.Namespace, p.Name, string(w.JSON([]any{map[string]any{
				"name": "tables", "namespace": "default", "ips": p.IPs}})), p.Labels, p.Ports...)
			w.pods[name], w.addrs[name] = pod, nil
			for _, ip := range p.IPs {
				w.addrs[name] = append(w.addrs[name], netip.MustParseAddr(ip))
			}
			w.answer(pod, 80, 81)
			w.listen(w.world, pod, w.addrs[name])
		} else if !maps.Equal(pod.Labels, p.Labels) {
			pod.Labels = p.Labels
			w.Must(pod.WriteManifest())
		}
	}
	for name, pod := range w.pods {
		if !stays[name] {
			w.End(pod)
			delete(w.pods, name)
		}
	}
}

// sent is a probe that was sent.
type sent struct {
	tableEntry
	step   string
	family int
	number uint32
}

func (p sent) String() string {
	return fmt.Sprintf("%s: %s %d from %s to %s by IPv%d", p.step, p.Protocol, p.Port, p.From, p.To, 4+2*p.family)
}

// probe sends one probe for each entry and waits until those that are allowed are answered. forbidden has the other
// probes; open and closed is what passes, or does not pass, and should not. The forbidden probes of a group are sent
// before the allowed ones: when these are answered, those would have come too.
func (w *tables) probe(step string, entries []tableEntry) (forbidden []sent, open, closed []string) {
	groups := groups(step, entries)
	for _, key := range slices.Sorted(maps.Keys(groups)) {
		if w.faulty && strings.HasPrefix(key, "SCTP") {
			w.onNodes("dpctl/flush-conntrack")
		}
		var allowed []sent
		for _, pass := range []bool{false, true} {
			for _, p := range groups[key] {
				if p.Allowed[p.family] != pass {
					continue
				}
				p.number = w.send(p)
				if pass {
					allowed = append(allowed, p)
				} else {
					forbidden = append(forbidden, p)
				}
			}
		}
		ctx, cancel := context.WithTimeout(w.Ctx, answerWithin)
		_ = lab.Eventually(ctx, func() error {
			if all := w.unanswered(allowed); len(all) > 0 {
				return errors.New(all[0])
			}
			return nil
		})
		cancel()
		if closed = w.unanswered(allowed); len(closed) > 0 {
			break // the table is probed again
		}
	}
	return forbidden, w.came(forbidden), closed
}

// answerWithin is how long a table waits for answers before it is probed again.
const answerWithin = time.Second

func (w *tables) send(p sent) uint32 {
	number, err := w.prober.send(p.Protocol, w.addrs[p.From][p.family], w.addrs[p.To][p.family], p.Port)
	w.Must(err)
	return number
}

// hasFaults reports whether the nodes have Open vSwitch 3.1, as in Debian 12, with two faults of its userspace
// datapath:
//
//   - It knows a connection of SCTP by addresses alone, without ports. It takes an INIT for an answer to an INIT that went
//     the other way before. 3.2 reads the ports.
//   - When rules change, it may change the wrong one of two cached flows that overlap. The other one stays as it was, as
//     long as packets match it: a packet that is forbidden since then passes, or the other way about. 3.1.3 mends this
//     (Open vSwitch's commit 21410ff80, "dpif-netdev: Fix dpif_netdev_flow_put").
//
// There, the test deletes connections and cached flows. On newer versions it deletes nothing.
func (w *world) hasFaults() bool {
	version, err := w.Nodes[0].AppCtl(w.Ctx, "version")
	w.Must(err)
	return strings.HasPrefix(version, "ovs-vswitchd (Open vSwitch) 3.1.")
}

// onNodes runs ovs-appctl on each node.
func (w *world) onNodes(command string) {
	for _, n := range w.Nodes {
		_, err := n.AppCtl(w.Ctx, command)
		w.Must(err)
	}
}

// settle waits until the nodes have the flows of the rows in NB, and no cached flows of before. faulty is what hasFaults
// has told.
func (w *world) settle(faulty bool) {
	w.NBCtl("--wait=hv", "sync")
	w.onNodes("revalidator/wait")
	if faulty {
		w.onNodes("dpctl/del-flows")
	}
}

// groups divides the probes of a table. The probes of a group are sent at once: few enough that no queue drops one, and
// never two between the same pods by SCTP.
func groups(step string, entries []tableEntry) map[string][]sent {
	all := map[string][]sent{}
	for _, e := range entries {
		for family := range e.Allowed {
			key := fmt.Sprint(e.Protocol, e.Port, family)
			if e.Protocol == "SCTP" {
				key += fmt.Sprint(e.From < e.To)
			}
			all[key] = append(all[key], sent{tableEntry: e, step: step, family: family})
		}
	}
	return all
}

// agrees waits until what passes is what a table says.
func (w *tables) agrees(name string, s tableStep) bool {
	return w.eventually(func() []string {
		w.settle(w.faulty)
		_, open, closed := w.probe(name, s.Entries)
		return append(open, closed...)
	})
}

// holds probes a table once more. Now each forbidden probe that comes is an error at once. A probe may be lost on its way
// on a busy machine, so the table is probed until each allowed probe of one turn was answered.
func (w *tables) holds(name string, s tableStep) (forbidden []sent) {
	w.entries += 2 * len(s.Entries)
	w.eventually(func() []string {
		more, open, closed := w.probe(name, s.Entries)
		if w.differ(open); len(open) > 0 {
			return nil
		}
		forbidden = append(forbidden, more...)
		return closed
	})
	return forbidden
}

// eventually probes until nothing differs, and reports what still differs in the end.
func (w *tables) eventually(differing func() []string) bool {
	ctx, cancel := context.WithTimeout(w.Ctx, labtest.Soon)
	defer cancel()
	var last []string
	err := lab.Eventually(ctx, func() error {
		if last = differing(); len(last) > 0 {
			return errors.New(last[0])
		}
		return nil
	})
	w.differ(last)
	return err == nil
}
