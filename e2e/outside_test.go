package e2e

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/controller/configfile"
	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbrows"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/outside"
)

// poolsConfig gives the gateway a pool of outside addresses, and the namespace the VLAN of the gateway.
const poolsConfig = gatewayConfig + `    addressPools:
      public: {addresses: "192.0.2.16/28,2001:db8::110-2001:db8::11f", namespaces: {shop: 4}}
physicalNetworks:
  provider:
  - {vlans: "42", namespaces: [shop]}
`

// outsideWorld has router /core with the pool.
type outsideWorld struct {
	*recount
	router *netmodel.Router
	host   *lab.Outside
	rows   *outside.Outside
}

func newOutsideWorld(t *testing.T) *outsideWorld {
	t.Helper()
	return configuredOutsideWorld(t, poolsConfig)
}

func configuredOutsideWorld(t *testing.T, config string) *outsideWorld {
	t.Helper()
	w := &outsideWorld{recount: &recount{world: newGatewayWorld(t, config, 0, 1), pods: map[string]*lab.Pod{}}}
	w.gatewayStands(0, 1)
	_, opened, err := configfile.Open(w.Dir + "/controller.yaml")
	w.Must(err)
	w.router, w.rows = opened.Routers["/core"], w.client()
	w.host = w.outside("host", 42, "192.0.2.9/24", "2001:db8::9/64")
	w.incremental = w.ovnSince(2309)
	return w
}

// step runs a subtest in the same world.
func (w *outsideWorld) step(name string, step func(*testing.T, *outsideWorld)) {
	w.part(name, func(t *testing.T, sub *world) {
		counts := *w.recount
		counts.world = sub
		step(t, &outsideWorld{&counts, w.router, w.host, w.rows})
	})
}

// client returns a client of its own that writes outside addresses.
func (w *outsideWorld) client() *outside.Outside {
	model, err := nb.FullDatabaseModel()
	w.Must(err)
	db, err := ovndb.Open(ovndb.Config{Name: "NB", Endpoints: []string{"unix:" + w.NBSocket()}, Model: model,
		LeaderOnly: true, Log: slog.New(slog.DiscardHandler)})
	w.Must(err)
	w.T.Cleanup(db.Close)
	w.Must(db.WaitConnected(w.Ctx))
	return outside.New(nbrows.NewStore(db))
}

// wanted returns what NB should have for a pod's first further interface.
func (w *outsideWorld) wanted(p *lab.Pod, kind outside.Kind, fixed ...string) *outside.Wanted {
	port := w.portRow(p, "net1")
	want := &outside.Wanted{
		Router: w.router, User: outside.User{Namespace: p.Namespace, Pod: p.Name, Interface: "net1"}, Kind: kind,
		PortKey: port.UUID, PortName: p.Namespace + "/" + p.Name + "/net1", Distributed: true,
	}
	for _, text := range w.inCore(p) {
		want.Inside = append(want.Inside, netip.MustParseAddr(text))
	}
	for _, text := range fixed {
		want.Fixed = append(want.Fixed, netip.MustParseAddr(text))
	}
	return want
}

// ensure returns the outside addresses, sorted.
func (w *outsideWorld) ensure(want *outside.Wanted) (addresses []string) {
	result, err := w.rows.Ensure(w.Ctx, want)
	w.Must(err)
	for _, a := range result.Addresses {
		addresses = append(addresses, a.String())
	}
	slices.Sort(addresses)
	return addresses
}

func (w *outsideWorld) remove(wants ...*outside.Wanted) {
	for _, want := range wants {
		_, err := w.rows.Delete(w.Ctx, outside.Key{Router: "/core", User: want.User})
		w.Must(err)
	}
}

// floats wants the host to reach a pod at its outside addresses, and to see these as the pod's. OVN announces no IPv6
// address: after a change of its MAC neighbours send to the old one until they ask again, here within 48 s. The host
// asks at once.
func (w *outsideWorld) floats(p *lab.Pod, addresses []string) {
	w.T.Helper()
	w.NBCtl("--wait=hv", "sync")
	w.Exec(w.host, "ip", "-6", "neigh", "flush", "dev", "eth0")
	for _, a := range addresses {
		begin := time.Now()
		w.MustReach(w.host, a)
		w.T.Logf("%s is reached at %s after %v", p, a, time.Since(begin).Round(10*time.Millisecond))
	}
	w.becomes(func() error { return w.sees(w.host, p, addresses) })
}

// tunnelled counts the packets between pod and host that come through the tunnels of the gateway's node.
func (w *outsideWorld) tunnelled(p *lab.Pod, addresses []string) (count int) {
	c, err := w.Nodes[w.gatewayComesTo(0, 1)].Capture()
	w.Must(err)
	defer c.Close()
	w.MustReach(w.host, addresses...)
	w.MustReach(p, "192.0.2.9", "2001:db8::9")
	for _, a := range []string{"192.0.2.9", "2001:db8::9"} {
		n, err := c.GeneveWith(netip.MustParseAddr(a))
		w.Must(err)
		count += n
	}
	return count
}

// TestOutsideAddresses: pods have addresses of the physical network, in both directions or only as their source. The
// test writes the rows itself: it counts what each change costs.
func TestOutsideAddresses(t *testing.T) {
	t.Parallel()
	w := newOutsideWorld(t)
	w.network("hidden", outOf(1, ""))
	w.network("plain", `{"type":"ovn-multinet","topology":"localnet","physicalNetworkName":"provider","vlanID":42,"subnets":"192.0.2.0/24"}`)
	web := w.Attached(2, "web", "hidden")
	w.MustReach(web, "192.0.2.9", "2001:db8::9")
	w.before = w.settled()

	fixed := []string{"192.0.2.17", "2001:db8::111"}
	want := w.wanted(web, outside.Floating, fixed...)
	w.costs(0, "outside: a floating address", func() { w.ensure(want) })
	w.floats(web, fixed)
	equal(t, "packets by the gateway's node, if the pod's node translates", w.tunnelled(web, fixed), 0)

	thief, err := w.Nodes[0].NewPod(w.Ctx, "shop", "thief", map[string]string{"k8s.v1.cni.cncf.io/networks": `[{"name":"plain","ips":["192.0.2.17"]}]`})
	w.Must(err)
	w.refused(w.TryAdd(thief), conf.CodeInUse, "address 192.0.2.17", "is in use by pod shop/web interface net1 by router /core (floating address)")
	w.End(thief)

	w.step("without the mapping", func(t *testing.T, w *outsideWorld) {
		want.Distributed = false
		heard, err := w.host.Capture()
		w.Must(err)
		defer heard.Close()
		w.before = w.settled()
		w.costs(0, "outside: the other form", func() { w.ensure(want) })
		w.Eventually(func() error { // neighbours hear of the other MAC
			macs, err := heard.Announced(want.Fixed[0])
			if err == nil && !slices.Contains(macs, "0a:58:c0:00:02:0a") {
				err = fmt.Errorf("%s is announced at %v", want.Fixed[0], macs)
			}
			return err
		})
		w.floats(web, fixed)
		if n := w.tunnelled(web, fixed); n == 0 {
			t.Error("no packet came by the gateway's node")
		}
		w.VSCtl(w.Nodes[2], "remove", "Open_vSwitch", ".", "external_ids", "ovn-bridge-mappings")
		w.floats(web, fixed)
		w.VSCtl(w.Nodes[2], "set", "Open_vSwitch", ".", "external_ids:ovn-bridge-mappings=provider:br-ex")
	})
	w.step("the pod moves", func(t *testing.T, w *outsideWorld) {
		w.End(web)
		web = w.Attached(1, "web", "hidden")
		want = w.wanted(web, outside.Floating) // any address: it stays
		equal(t, "addresses after the move", w.ensure(want), fixed)
		w.floats(web, fixed)
	})
	w.step("egress", func(_ *testing.T, w *outsideWorld) { w.egress() })
	w.step("two pods want one address", func(t *testing.T, w *outsideWorld) { w.race(t) })

	w.before = w.settled()
	w.costs(0, "outside: an address deleted", func() { w.remove(want) })
	w.becomes(func() error { return w.sees(w.host, web, []string{"192.0.2.10", "2001:db8::10"}) })
	for _, a := range fixed {
		w.mustNotReach(w.host, "eth0", a)
	}
	w.End(web)
	w.endNetworks("hidden", "plain")
	w.asBeforeOutside()
}

func (w *outsideWorld) egress() {
	var pods []*lab.Pod
	var wants []*outside.Wanted
	var address []string
	for i := range 3 {
		p := w.Attached(i, fmt.Sprintf("out-%d", i), "hidden")
		wants, pods = append(wants, w.wanted(p, outside.Egress)), append(pods, p)
		w.before = w.settled()
		w.costs(0, "outside: a pod behind an egress address", func() { address = w.ensure(wants[i]) })
	}
	other := w.Attached(2, "other", "hidden")
	for _, p := range pods {
		w.becomes(func() error { return w.sees(w.host, p, address) })
	}
	w.becomes(func() error { return w.sees(w.host, other, []string{"192.0.2.10", "2001:db8::10"}) })
	w.remove(wants...)
	w.End(append(pods, other)...)
}

func (w *outsideWorld) race(t *testing.T) {
	pods := []*lab.Pod{w.Attached(0, "a", "hidden"), w.Attached(2, "b", "hidden")}
	var wants []*outside.Wanted
	errs := make([]chan error, len(pods))
	for i, p := range pods {
		wants = append(wants, w.wanted(p, outside.Floating, "192.0.2.20"))
		errs[i] = make(chan error, 1)
	}
	for i, rows := range []*outside.Outside{w.client(), w.client()} {
		go func() {
			_, err := rows.Ensure(w.Ctx, wants[i])
			errs[i] <- err
		}()
	}
	var winners []*lab.Pod
	for i, p := range pods {
		err := <-errs[i]
		if err == nil {
			winners = append(winners, p)
			continue
		}
		if _, refused := errors.AsType[*nbrows.Refused](err); !refused || !strings.Contains(err.Error(), "address 192.0.2.20 on physical network provider, VLAN 42 is in use by pod shop/") {
			t.Errorf("error %v", err)
		}
	}
	if len(winners) != 1 {
		t.Fatalf("%d of two pods have the address", len(winners))
	}
	w.becomes(func() error { return w.sees(w.host, winners[0], []string{"192.0.2.20", "2001:db8::10"}) })
	w.MustReach(w.host, "192.0.2.20")
	w.remove(wants...)
	w.End(pods...)
}

// requests sets the annotation by which a pod requests outside addresses, also of a running pod.
func (w *outsideWorld) requests(p *lab.Pod, text string) {
	w.T.Helper()
	p.Annotations["ovn-multinet/outside-addresses"] = text
	if text == "" {
		delete(p.Annotations, "ovn-multinet/outside-addresses")
	}
	w.Must(p.WriteManifest())
}

// TestOutsideByAnnotation: the controller serves the annotation of a pod. The pod's node translates a floating address if
// it has the bridge. The addresses follow the pod to another node, end with the annotation and with the pod, and nobody
// gets more than the operator grants.
func TestOutsideByAnnotation(t *testing.T) {
	t.Parallel()
	w := newOutsideWorld(t)
	w.network("hidden", outOf(1, ""))
	w.before = w.settled()
	fixed := []string{"192.0.2.17", "2001:db8::111"}
	const both = `[{"interface":"net1","floating":"192.0.2.17,2001:db8::111"}]`
	web := w.Pod(2, "web", "hidden")
	w.requests(web, both)
	w.Add(web)
	w.floats(web, fixed)
	equal(t, "packets by the gateway's node, if the pod's node translates", w.tunnelled(web, fixed), 0)
	shown := strings.Join(strings.Fields(w.Multinet("network", "show", "shop/hidden")), " ")
	const row = "192.0.2.17 floating public shop/web net1 2001:db8::111 floating public shop/web net1"
	if !strings.Contains(shown, row) {
		t.Errorf("kubectl multinet network show: %s; want %s", shown, row)
	}

	other := w.Attached(0, "other", "hidden")
	w.requests(other, both)
	w.says("address 192.0.2.17 on physical network provider, VLAN 42 is in use by pod shop/web interface net1")
	w.requests(other, `[{"interface":"net1","floating":"192.0.2.99"}]`)
	w.says("address 192.0.2.99 is in no pool of router /core")
	w.requests(other, `[{"interface":"net1","egress":"192.0.2.20,2001:db8::112"}]`)
	w.becomes(func() error { return w.sees(w.host, other, []string{"192.0.2.20", "2001:db8::112"}) })

	w.End(web)
	web = w.Pod(1, "web", "hidden")
	w.requests(web, both)
	w.Add(web)
	w.floats(web, fixed)
	w.Must(w.KillController())
	w.floats(web, fixed)
	w.Must(w.StartController(w.Ctx))

	w.requests(web, "")
	w.requests(other, "")
	w.becomes(func() error { return w.sees(w.host, web, []string{"192.0.2.10", "2001:db8::10"}) })
	w.becomes(func() error { return w.sees(w.host, other, []string{"192.0.2.10", "2001:db8::10"}) })
	for _, a := range fixed {
		w.mustNotReach(w.host, "eth0", a)
	}
	w.End(web, other)
	w.endNetworks("hidden")
	w.asBeforeOutside()
}

// says waits until the controller has said something in an event.
func (w *outsideWorld) says(text string) {
	w.T.Helper()
	w.Eventually(func() error {
		log, err := os.ReadFile(filepath.Join(w.Dir, "central", "controller.log"))
		if err == nil && !strings.Contains(string(log), text) {
			err = fmt.Errorf("the controller does not say %q", text)
		}
		return err
	})
}
