package e2e

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

// acrossWorld has a pod on network red that policies are for, and pods on another network that reaches red. The pods
// bad are those that a policy denies.
type acrossWorld struct {
	*world
	far                            string // the other network
	db, good, bad, farGood, farBad *lab.Pod
}

func newAcrossWorld(w *world, far string) *acrossWorld {
	a := &acrossWorld{world: w, far: far}
	a.db = w.app(0, "db", "red", "db")
	a.good, a.bad = w.app(1, "good", "red", "good"), w.app(1, "bad", "red", "bad")
	a.farGood, a.farBad = w.app(0, "far-good", far, "good"), w.app(1, "far-bad", far, "bad")
	a.between(a.peers(), nil)
	return a
}

func (a *acrossWorld) peers() []*lab.Pod { return []*lab.Pod{a.good, a.bad, a.farGood, a.farBad} }

// between wants db and some pods to reach each other, in both families. The pods of closed do not reach db, and db does
// not reach them.
func (a *acrossWorld) between(open, closed []*lab.Pod) {
	a.T.Helper()
	a.ways(open, a.allowed, true, true)
	a.ways(closed, a.closed, true, true)
}

// ways checks connections from pods to db, and from db to pods.
func (a *acrossWorld) ways(pods []*lab.Pod, check func(place, string, string), toDB, fromDB bool) {
	a.T.Helper()
	for _, p := range pods {
		for _, what := range []string{"tcp/80", "udp/81"} {
			if toDB {
				for _, to := range a.Links(a.db)["net1"].IPs() {
					check(p, to, what)
				}
			}
			if fromDB {
				for _, to := range a.Links(p)["net1"].IPs() {
					check(a.db, to, what)
				}
			}
		}
	}
}

// says wants `kubectl multinet allowed` to say of connections to db what packets said.
func (a *acrossWorld) says(open, closed []*lab.Pod) {
	a.T.Helper()
	for _, p := range slices.Concat(open, closed) {
		for to, allowed := range a.verdicts(p, a.db, "tcp/80") {
			equal(a.T, fmt.Sprintf("allowed from %s to %s", p, to), allowed, slices.Contains(open, p))
		}
	}
}

// denies has a ClusterNetworkPolicy deny connections between db and bad pods, in one direction or in both.
func (a *acrossWorld) denies(networks, tier, direction string) {
	a.T.Helper()
	const of = `{action: %s, %s: [{pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: %s}}}}]}`
	rules := ""
	for word, side := range map[string]string{"ingress": "from", "egress": "to"} {
		if direction == word || direction == "both" {
			rules += fmt.Sprintf(`, %s: [`+of+`, `+of+`]`, word, "Accept", side, "good", "Deny", side, "bad")
		}
	}
	a.clusterPolicy("across", networks, fmt.Sprintf(`{tier: %s, priority: 1, `+
		`subject: {pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: db}}}}%s}`, tier, rules))
	a.clusterPolicyIs("across", `"ready": true`)
}

// relabel gives a pod another app.
func (a *acrossWorld) relabel(p *lab.Pod, app string) {
	p.Labels = map[string]string{"app": app}
	a.Must(p.WriteManifest())
}

// holds runs all that a Deny between networks has to hold against.
func (a *acrossWorld) holds() {
	good, bad := []*lab.Pod{a.good, a.farGood}, []*lab.Pod{a.bad, a.farBad}
	for _, networks := range []string{"*", "shop/red,shop/" + a.far, "shop/red"} {
		for _, tier := range []string{"Admin", "Baseline"} {
			for _, direction := range []string{"ingress", "egress"} {
				a.part(networks+" "+tier+" "+direction, func(_ *testing.T, w *world) {
					a := a.in(w)
					a.denies(networks, tier, direction)
					in := direction == "ingress"
					a.ways(bad, a.closed, in, !in)
					a.ways(bad, a.allowed, !in, in)
					a.ways(good, a.allowed, true, true)
				})
			}
		}
	}
	a.part("labels change on either network", func(_ *testing.T, w *world) {
		a := a.in(w)
		a.denies("shop/red", "Admin", "both")
		a.says(good, bad)
		a.relabel(a.farBad, "good")
		a.between([]*lab.Pod{a.farBad}, []*lab.Pod{a.bad})
		a.relabel(a.farGood, "bad")
		a.between(nil, []*lab.Pod{a.farGood})
		a.relabel(a.bad, "good")
		a.between([]*lab.Pod{a.bad, a.farBad}, []*lab.Pod{a.farGood})
		a.relabel(a.farGood, "good")
		a.relabel(a.farBad, "bad")
		a.relabel(a.bad, "bad")
		a.between(good, bad)
		a.relabel(a.db, "other")
		a.between(a.peers(), nil)
		a.relabel(a.db, "db")
		a.between(good, bad)
	})
	a.part("pods come and go", func(_ *testing.T, w *world) {
		a := a.in(w)
		for _, app := range []string{"bad", "good", "bad"} { // the address is the same
			late := a.Pod(1, "late", a.fixed())
			late.Labels = map[string]string{"app": app}
			a.Must(late.WriteManifest())
			a.Add(late)
			a.answer(late, 80, 81)
			if app == "bad" {
				a.between(nil, []*lab.Pod{late})
			} else {
				a.between([]*lab.Pod{late}, nil)
			}
			a.End(late)
		}
	})
	if a.far != "v100" { // a localnet network has no virtual addresses
		a.part("virtual addresses of Services", func(_ *testing.T, w *world) { a.in(w).services() })
	}
	a.part("a policy of a tenant for both networks", func(_ *testing.T, w *world) {
		a := a.in(w)
		a.Must(a.RemoveManifest(policyManifest("across")))
		a.between(a.peers(), nil)
		spec := `{podSelector: {matchLabels: {app: db}}, policyTypes: [Ingress, Egress], ` +
			`ingress: [{from: [{podSelector: {matchLabels: {app: good}}}]}], ` +
			`egress: [{to: [{podSelector: {matchLabels: {app: good}}}]}]}`
		a.policy("p", "red,"+a.far, spec)
		a.between(good, bad)
		a.says(good, bad)
		a.policy("p", "red", spec) // the peers are those of network red alone
		a.between([]*lab.Pod{a.good}, []*lab.Pod{a.bad, a.farGood, a.farBad})
		a.policy("p", "red,"+a.far, spec)
		a.between(good, bad)
		a.Must(a.RemoveManifest(policyManifest("p")))
		a.between(a.peers(), nil)
	})
}

// services checks connections by virtual addresses, to db and from db.
func (a *acrossWorld) services() {
	a.denies("shop/red", "Admin", "both")
	const ports = `{name: http, port: 80}, {name: dns, protocol: UDP, port: 81}`
	toDB := a.service("db", serviceYAML("db", "red", "auto", ports, ""))
	toGood := a.service("good", serviceYAML("good", a.far, "auto", ports, ""))
	toBad := a.service("bad", serviceYAML("bad", a.far, "auto", ports, ""))
	for i := range toDB {
		for _, what := range []string{"tcp/80", "udp/81"} {
			for _, p := range []*lab.Pod{a.good, a.farGood} {
				a.allowed(p, toDB[i], what)
			}
			a.allowed(a.db, toGood[i], what)
			a.allowed(a.farGood, toBad[i], what)
			for _, p := range []*lab.Pod{a.bad, a.farBad} {
				a.denied(p, toDB[i], what)
			}
			a.denied(a.db, toBad[i], what)
		}
	}
	for _, name := range []string{"db", "good", "bad"} {
		a.Must(a.RemoveManifest(serviceManifest(name)))
	}
}

func (a *acrossWorld) in(w *world) *acrossWorld {
	sub := *a
	sub.world = w
	return &sub
}

// fixed requests the other network, with addresses that the next pod has again. On a layer3 network, no pod may choose.
func (a *acrossWorld) fixed() string {
	ips := map[string]string{"black": `["10.22.0.77","fd22::77"]`, "v100": `["10.50.0.77","fd50::77"]`}[a.far]
	if ips == "" {
		return a.far
	}
	return fmt.Sprintf(`[{"name":%q,"ips":%s}]`, a.far, ips)
}

// over ends the pods and the networks.
func (a *acrossWorld) over() {
	a.End(append(a.peers(), a.db)...)
	a.endNetworks("red", a.far)
	a.NBCtl("--wait=hv", "sync")
	equal(a.T, "groups of ports of policies", a.NBCtl("--bare", "--columns=_uuid", "find", "Port_Group",
		"external_ids:ovn-multinet/selector!=\"\""), "")
}

// TestBoundaryDenyAcrossRouter: a Deny for pods by their labels holds for pods on another network of the router.
func TestBoundaryDenyAcrossRouter(t *testing.T) {
	w := parallelWorld(t, lab.Options{Nodes: 2}, nil)
	w.network("red", routed(1, "main"))
	w.network("black", routed(2, "main"))
	a := newAcrossWorld(w, "black")
	a.holds()
	a.over()
	a.AsBefore()
}

// TestBoundaryDenyAcrossLayer3: it holds for pods on a layer3 network of the router.
func TestBoundaryDenyAcrossLayer3(t *testing.T) {
	w := parallelWorld(t, lab.Options{Nodes: 2}, nil)
	w.network("red", `{"type":"ovn-multinet","router":"main","subnets":"10.21.0.0/24,fd21::/64",`+
		`"routes":[{"dst":"10.128.0.0/22"},{"dst":"fd80::/62"}]}`)
	w.network("wide", fmt.Sprintf(wide, `,"router":"main","routes":[{"dst":"10.21.0.0/24"},{"dst":"fd21::/64"}]`))
	a := newAcrossWorld(w, "wide")
	a.holds()
	a.over()
	a.AsBefore()
}

// TestBoundaryDenyAcrossVLAN: it holds for pods on another network of the VLAN.
func TestBoundaryDenyAcrossVLAN(t *testing.T) {
	t.Parallel()
	w := newWireWorld(t, grantedVLANs)
	w.network("red", onVLAN(100, ""))
	w.network("v100", onVLAN(100, ""))
	a := newAcrossWorld(w, "v100")
	a.holds()
	a.over()
	a.asBeforeOutside()
}

// TestBoundaryDenyWithoutSource: on a VLAN, pods may send from 0.0.0.0, as ARP probes do (RFC 5227). A Deny for
// pods by their labels holds for such packets.
func TestBoundaryDenyWithoutSource(t *testing.T) {
	t.Parallel()
	w := newWireWorld(t, grantedVLANs)
	w.network("red", onVLAN(100, ""))
	w.network("v100", onVLAN(100, ""))
	db, good := w.station(0, "db", "red", 0), w.station(1, "good", "red", 1)
	capture, err := db.pod.Capture("net1")
	w.Must(err)
	a := &acrossWorld{world: w}
	for _, network := range []string{"red", "v100"} {
		bad := w.station(1, "bad", network, 2)
		for _, want := range []string{"passes", "dropped"} {
			if want == "dropped" {
				a.denies("shop/red", "Admin", "ingress")
			}
			i := 0
			w.becomes(func() error {
				i++
				text := fmt.Sprintf("(from nobody on %s, %s, %d)", network, want, i)
				got := w.fate(capture, text, func() {
					w.send(bad.pod, "net1", packet4(db.mac, bad.mac, netip.IPv4Unspecified(), db.v4, text)[0])
				}, func(mark string) {
					w.send(good.pod, "net1", packet4(db.mac, good.mac, good.v4, db.v4, mark)[0])
				})
				if got != want {
					return fmt.Errorf("the packet %s %s", text, got)
				}
				return nil
			})
		}
		w.Must(w.RemoveManifest(policyManifest("across")))
		w.End(bad.pod)
	}
	w.Must(capture.Close())
	w.End(db.pod, good.pod)
	w.endNetworks("red", "v100")
	w.asBeforeOutside()
}
