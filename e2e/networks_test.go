package e2e

import (
	"errors"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
	"github.com/ovn-multinet/ovn-multinet/e2e/labtest"
)

// TestNetworkAfterItsPod: a pod whose network is made after it comes up with no help but the runtime's next attempt.
func TestNetworkAfterItsPod(t *testing.T) {
	t.Parallel()
	const config = `{"type":"ovn-multinet","subnets":"10.20.0.0/24"}`
	t.Run("retried", func(t *testing.T) {
		w := newWorld(t, lab.Options{}, nil)
		p := w.Pod(0, "web", "late")
		w.refused(w.TryAdd(p), conf.CodeNetworkNotFound, "network shop/late is not found")
		w.NAD("late", config)
		p = w.retried(p)
		w.consistent(p, []string{"net1"})
		peer := w.Attached(0, "peer", "late")
		w.MustReach(p, w.Links(peer)["net1"].IPs()...)
		w.End(p, peer)
		w.endNetworks("late")
		w.AsBefore()
	})
	t.Run("waits", func(t *testing.T) {
		c := newCounted(t)
		c.Must(c.Controller.Pause())
		c.NAD("late", config)
		p := c.Pod(0, "web", "late")
		c.reset()
		added := make(chan error, 1)
		go func() {
			_, err := p.Add(c.Ctx)
			added <- err
		}()
		c.Eventually(func() error {
			if c.nb.Counts().Refused == 0 {
				return errors.New("the ADD has not asked for the network yet")
			}
			return nil
		})
		c.Must(c.Controller.Resume())
		c.Must(<-added)
		c.consistent(p, []string{"net1"})
		c.End(p)
		c.endNetworks("late")
		c.AsBefore()
	})
}

// retried does what kubelet does after a failed ADD, until one succeeds: it takes the sandbox away and makes another.
func (w *world) retried(p *lab.Pod) *lab.Pod {
	w.Eventually(func() error {
		w.Must(p.Del(w.Ctx))
		w.Must(p.RemoveNetNS())
		var err error
		p = w.NewSandbox(p)
		_, err = p.Add(w.Ctx)
		if err != nil {
			w.clean(err)
		}
		return err
	})
	return p
}

// clean wants the error of an ADD whose network is not there, or not any more.
func (w *world) clean(err error) {
	var e *types.Error
	if !errors.As(err, &e) || e.Code != conf.CodeNetworkNotFound && e.Code != conf.CodeTryAgain || !strings.Contains(e.Msg, "network ") {
		w.T.Errorf("an ADD without its network ended with %v", err)
	}
}

// TestEqualNetworkIsNotWritten: a NAD that says the same in other words is no change, and neither is a controller that
// starts anew.
func TestEqualNetworkIsNotWritten(t *testing.T) {
	w := parallelWorld(t, lab.Options{}, nil)
	w.network("same", `{"type":"ovn-multinet","subnets":"10.20.0.0/24,fd20::/64","excludeSubnets":"10.20.0.128/25,10.20.0.64/26","router":"main","routes":[{"dst":"10.98.0.0/16"},{"dst":"10.97.0.0/16"}],"mtu":1400}`)
	p := w.Attached(0, "web", "same")
	w.settled()
	before, state := w.written(), read(t, w.stateFile("same"))
	for _, again := range []struct {
		name string
		do   func()
	}{
		{"other words", func() {
			w.NAD("same", `{"mtu":1400,"routes":[{"gw":"10.20.0.1","dst":"10.97.0.0/16"},{"dst":"10.98.0.0/16","gw":"10.20.0.1"}],"router":"main","gateway":"fd20::1, 10.20.0.1","topology":"layer2","portSecurity":true,"excludeSubnets":"10.20.0.64/26, 10.20.0.128/25","subnets":"fd20::/64, 10.20.0.0/24","type":"ovn-multinet","name":"another","cniVersion":"1.1.0"}`)
		}},
		{"another file", func() {
			text := read(t, filepath.Join(w.Manifests, labtest.NADFile("same")))
			w.Must(w.WriteManifest("all.yaml", "# moved\n---\n"+text))
			w.removeNAD("same")
		}},
		{"another controller", func() {
			w.Must(w.KillController())
			w.Must(w.StartController(w.Ctx))
		}},
	} {
		w.part(again.name, func(t *testing.T, w *world) {
			again.do()
			w.settled()
			w.nothingWritten(before)
			equal(t, "state", read(t, w.stateFile("same")), state)
		})
	}
	w.End(p)
	w.Must(w.RemoveManifest("all.yaml"))
	w.endNetworks("same")
	w.AsBefore()
}

// TestUpdateForNewPods changes a network under a running pod: what is for new pods, only they get.
func TestUpdateForNewPods(t *testing.T) {
	w := parallelWorld(t, lab.Options{Nodes: 2}, nil)
	w.network("live", `{"type":"ovn-multinet","subnets":"10.20.0.0/28","routes":[{"dst":"10.98.0.0/16"}]}`)
	old := w.Attached(0, "old", `[{"name":"live","ips":["10.20.0.9"]}]`)
	peer := w.Attached(1, "peer", `[{"name":"live","ips":["10.20.0.10"]}]`)
	ping := w.pinging(old, "10.20.0.10")
	before, routes := w.Links(old)["net1"], w.routes(old, "-4")
	row := w.portRow(old, "net1")

	for _, c := range []struct {
		name, config string
		look         func(w *world, now *lab.Pod)
	}{
		{"routes", `{"type":"ovn-multinet","subnets":"10.20.0.0/28","routes":[{"dst":"10.97.0.0/16"}]}`, func(w *world, now *lab.Pod) {
			got := w.routes(now, "-4")
			equal(w.T, "the new route, the old route", []bool{
				slices.Contains(got, "10.97.0.0/16 via 10.20.0.1 dev net1"), slices.Contains(got, "10.98.0.0/16 via 10.20.0.1 dev net1"),
			}, []bool{true, false})
		}},
		{"mtu", `{"type":"ovn-multinet","subnets":"10.20.0.0/28","mtu":1300}`, func(w *world, now *lab.Pod) {
			equal(w.T, "MTU", w.Links(now)["net1"].MTU, 1300)
		}},
		{"excludeSubnets", `{"type":"ovn-multinet","subnets":"10.20.0.0/28","excludeSubnets":"10.20.0.8/29,10.20.0.4/30,10.20.0.2/32"}`, func(w *world, now *lab.Pod) {
			equal(w.T, "address", w.Links(now)["net1"].Prefixes(), []string{"10.20.0.3/28"}) // all that is left
			full := w.Pod(0, "full", "live")
			w.refused(w.TryAdd(full), conf.CodeNoAddressLeft, "shop/live")
			fixed := w.Pod(0, "fixed", `[{"name":"live","ips":["10.20.0.11"]}]`)
			w.refused(w.TryAdd(fixed), conf.CodeInvalidConfig, "10.20.0.11", "excludeSubnets")
			w.End(full, fixed)
		}},
	} {
		w.part(c.name, func(t *testing.T, w *world) {
			w.network("live", c.config)
			now := w.Attached(0, "now", "live")
			w.consistent(now, []string{"net1"})
			w.MustReach(now, "10.20.0.9", "10.20.0.10")
			c.look(w, now)
			equal(t, "link of the running pod", w.Links(old)["net1"], before)
			equal(t, "routes of the running pod", w.routes(old, "-4"), routes)
			equal(t, "port of the running pod", w.portRow(old, "net1"), row)
			ping.goesOn()
			w.End(now)
		})
	}
	ping.stop()
	w.End(old, peer)
	w.endNetworks("live")
	w.AsBefore()
}

// TestSubnetGrows: of a subnet that became wider new pods get addresses, and running pods keep theirs.
func TestSubnetGrows(t *testing.T) {
	w := parallelWorld(t, lab.Options{Nodes: 2}, nil)
	w.network("grow", `{"type":"ovn-multinet","subnets":"10.20.0.0/28"}`)
	a, b := w.Attached(0, "a", "grow"), w.Attached(1, "b", "grow")
	filler := w.Attached(0, "filler", strings.TrimSuffix(strings.Repeat("grow,", 11), ",")) // 13 hosts beside the gateway
	w.full("grow")
	ping := w.pinging(a, w.Links(b)["net1"].IPs()[0])
	links, row := w.Links(a)["net1"], w.portRow(a, "net1")

	w.network("grow", `{"type":"ovn-multinet","subnets":"10.20.0.0/24"}`)
	c, d := w.Attached(0, "c", "grow"), w.Attached(1, "d", "grow")
	was, is := netip.MustParsePrefix("10.20.0.0/28"), netip.MustParsePrefix("10.20.0.0/24")
	for _, p := range []*lab.Pod{c, d} {
		w.consistent(p, []string{"net1"})
		for _, text := range w.Links(p)["net1"].Prefixes() {
			if addr := netip.MustParsePrefix(text); was.Contains(addr.Addr()) || !is.Contains(addr.Addr()) || addr.Bits() != is.Bits() {
				t.Errorf("%s got %s, want an address of what %s has grown by, with its prefix length", p, addr, was)
			}
		}
	}
	w.MustReach(c, w.Links(d)["net1"].IPs()...)
	equal(t, "link of the running pod", w.Links(a)["net1"], links)
	equal(t, "port of the running pod", w.portRow(a, "net1"), row)
	ping.stop()

	// A pod that comes back into a second sandbox keeps its address, with the new prefix length.
	again := w.NewSandbox(b)
	want := w.Links(b)["net1"].IPs()
	w.Add(again)
	w.consistent(again, []string{"net1"})
	equal(t, "address in the second sandbox", w.Links(again)["net1"].IPs(), want)
	w.MustReach(again, w.Links(a)["net1"].IPs()...)
	w.Must(b.Del(w.Ctx))
	w.Must(b.RemoveNetNS())
	w.End(a, again, c, d, filler)
	w.endNetworks("grow")
	w.AsBefore()
}

// full wants that a network has no address left.
func (w *world) full(network string) {
	p := w.Pod(0, "one-too-many", network)
	w.refused(w.TryAdd(p), conf.CodeNoAddressLeft, "shop/"+network, "no address left")
	w.End(p)
}

// TestRefusedUpdate changes what running pods cannot follow: it is refused and said why, they go on, and so do new pods,
// by what is in force.
func TestRefusedUpdate(t *testing.T) {
	w := parallelWorld(t, lab.Options{Nodes: 2}, nil)
	const config = `{"type":"ovn-multinet","subnets":"10.20.0.0/24,fd20::/64","router":"main"}`
	w.network("firm", config)
	a, b := w.Attached(0, "a", "firm"), w.Attached(1, "b", "firm")
	ping := w.pinging(a, w.Links(b)["net1"].IPs()[0])
	accepted := w.accepted("shop/firm")
	for _, c := range []struct {
		name, config string
		says         []string
	}{
		{"shrunk", `{"type":"ovn-multinet","subnets":"10.20.0.0/25,fd20::/64","router":"main"}`, []string{"subnets: 10.20.0.0/24", "10.20.0.0/25", "2 ports"}},
		{"moved", `{"type":"ovn-multinet","subnets":"10.21.0.0/24,fd20::/64","router":"main"}`, []string{"subnets: 10.20.0.0/24", "10.21.0.0/24"}},
		{"moved, IPv6", `{"type":"ovn-multinet","subnets":"10.20.0.0/24,fd21::/64","router":"main"}`, []string{"subnets: fd20::/64", "fd21::/64"}},
		{"a family less", `{"type":"ovn-multinet","subnets":"10.20.0.0/24","router":"main"}`, []string{"subnets: fd20::/64"}},
		{"gateway", `{"type":"ovn-multinet","subnets":"10.20.0.0/24,fd20::/64","gateway":"10.20.0.254","router":"main"}`, []string{"gateway: 10.20.0.1", "10.20.0.254"}},
		{"gateway, by growth", `{"type":"ovn-multinet","subnets":"10.20.0.0/16,fd20::/64","gateway":"10.20.1.1","router":"main"}`, []string{"gateway: 10.20.0.1"}},
		{"spoilt", `{"type":"ovn-multinet","subnets":"10.20.0.0/24,fd20::/64","ruoter":"main"}`, []string{`"ruoter"`, `"router"`}},
	} {
		w.part(c.name, func(t *testing.T, w *world) {
			w.NAD("firm", c.config)
			w.notReady("firm", c.says...)
			now := w.Attached(0, "now", "firm")
			// An address that most of the refused configurations do not have, or have for the gateway.
			fixed := w.Attached(0, "fixed", `[{"name":"firm","ips":["10.20.0.254"]}]`)
			for _, p := range []*lab.Pod{now, fixed} {
				w.consistent(p, []string{"net1"})
				w.MustReach(p, w.Links(b)["net1"].IPs()...)
				w.MustReach(p, "10.20.0.1", "fd20::1")
			}
			w.MustReach(b, "10.20.0.254")
			equal(t, "what is accepted", w.accepted("shop/firm"), accepted)
			ping.goesOn()
			w.End(now, fixed)
			w.network("firm", config) // and ready again
		})
	}
	ping.stop()
	w.End(a, b)

	// With nobody on it any more the network follows.
	w.network("firm", `{"type":"ovn-multinet","subnets":"10.21.0.0/25,fd21::/64","gateway":"10.21.0.9","router":"main"}`)
	c := w.Attached(0, "c", "firm")
	w.consistent(c, []string{"net1"})
	w.MustReach(c, "10.21.0.9", "fd21::1")
	w.End(c)
	w.endNetworks("firm")
	w.AsBefore()
}
