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
)

// TestNetworkAfterItsPod: a pod whose network is made after it comes up with no help but the runtime's next attempt.
func TestNetworkAfterItsPod(t *testing.T) {
	t.Parallel()
	const config = `{"type":"ovn-multinet","subnets":"10.20.0.0/24"}`
	t.Run("retried", func(t *testing.T) {
		w := newWorld(t, lab.Options{}, nil)
		p := w.pod(0, "web", "late")
		_, err := p.Add(w.ctx)
		w.refused(err, conf.CodeNetworkNotFound, "network shop/late is not found")
		w.nad("late", config)
		p = w.retried(p)
		w.consistent(p, []string{"net1"})
		peer := w.attached(0, "peer", "late")
		w.mustReach(p, w.links(peer)["net1"].IPs()...)
		w.end(p, peer)
		w.endNetworks("late")
		w.asBefore()
	})
	t.Run("waits", func(t *testing.T) {
		c := newCounted(t)
		c.must(c.Controller.Pause())
		c.nad("late", config)
		p := c.pod(0, "web", "late")
		c.reset()
		added := make(chan error, 1)
		go func() {
			_, err := p.Add(c.ctx)
			added <- err
		}()
		c.eventually(func() error {
			if c.nb.Counts().Refused == 0 {
				return errors.New("the ADD has not asked for the network yet")
			}
			return nil
		})
		c.must(c.Controller.Resume())
		c.must(<-added)
		c.consistent(p, []string{"net1"})
		c.end(p)
		c.endNetworks("late")
		c.asBefore()
	})
}

// retried does what kubelet does after a failed ADD, until one succeeds: it takes the sandbox away and makes another.
func (w *world) retried(p *lab.Pod) *lab.Pod {
	w.t.Helper()
	w.eventually(func() error {
		w.must(p.Del(w.ctx))
		w.must(p.RemoveNetNS())
		var err error
		p, err = p.NewSandbox(w.ctx)
		w.must(err)
		_, err = p.Add(w.ctx)
		if err != nil {
			w.clean(err)
		}
		return err
	})
	return p
}

// clean wants the error of an ADD whose network is not there, or not any more.
func (w *world) clean(err error) {
	w.t.Helper()
	var e *types.Error
	if !errors.As(err, &e) || e.Code != conf.CodeNetworkNotFound && e.Code != conf.CodeTryAgain || !strings.Contains(e.Msg, "network ") {
		w.t.Errorf("an ADD without its network ended with %v", err)
	}
}

// TestEqualNetworkIsNotWritten: a NAD that says the same in other words is no change, and neither is a controller that
// starts anew.
func TestEqualNetworkIsNotWritten(t *testing.T) {
	t.Parallel()
	w := newWorld(t, lab.Options{}, nil)
	w.network("same", `{"type":"ovn-multinet","subnets":"10.20.0.0/24,fd20::/64","excludeSubnets":"10.20.0.128/25,10.20.0.64/26","router":"main","routes":[{"dst":"10.98.0.0/16"},{"dst":"10.97.0.0/16"}],"mtu":1400}`)
	p := w.attached(0, "web", "same")
	w.settled()
	before, state := w.written(), read(t, w.stateFile("same"))
	for _, again := range []struct {
		name string
		do   func()
	}{
		{"other words", func() {
			w.nad("same", `{"mtu":1400,"routes":[{"gw":"10.20.0.1","dst":"10.97.0.0/16"},{"dst":"10.98.0.0/16","gw":"10.20.0.1"}],"router":"main","gateway":"fd20::1, 10.20.0.1","topology":"layer2","portSecurity":true,"excludeSubnets":"10.20.0.64/26, 10.20.0.128/25","subnets":"fd20::/64, 10.20.0.0/24","type":"ovn-multinet","name":"another","cniVersion":"1.1.0"}`)
		}},
		{"another file", func() {
			text := read(t, filepath.Join(w.Manifests, nadFile("same")))
			w.must(w.WriteManifest("all.yaml", "# moved\n---\n"+text))
			w.removeNAD("same")
		}},
		{"another controller", func() {
			w.must(w.KillController())
			w.must(w.StartController(w.ctx))
		}},
	} {
		t.Run(again.name, func(t *testing.T) {
			w := &world{Lab: w.Lab, t: t, ctx: w.ctx}
			again.do()
			w.settled()
			w.nothingWritten(before)
			equal(t, "state", read(t, w.stateFile("same")), state)
		})
	}
	w.end(p)
	w.must(w.RemoveManifest("all.yaml"))
	w.endNetworks("same")
	w.asBefore()
}

// TestUpdateForNewPods changes a network under a running pod: what is for new pods, only they get.
func TestUpdateForNewPods(t *testing.T) {
	t.Parallel()
	w := newWorld(t, lab.Options{Nodes: 2}, nil)
	w.network("live", `{"type":"ovn-multinet","subnets":"10.20.0.0/28","routes":[{"dst":"10.98.0.0/16"}]}`)
	old := w.attached(0, "old", `[{"name":"live","ips":["10.20.0.9"]}]`)
	peer := w.attached(1, "peer", `[{"name":"live","ips":["10.20.0.10"]}]`)
	ping := w.pinging(old, "10.20.0.10")
	before, routes := w.links(old)["net1"], w.routes(old, "-4")
	row := w.portRow(old, "net1")

	for _, c := range []struct {
		name, config string
		look         func(w *world, now *lab.Pod)
	}{
		{"routes", `{"type":"ovn-multinet","subnets":"10.20.0.0/28","routes":[{"dst":"10.97.0.0/16"}]}`, func(w *world, now *lab.Pod) {
			got := w.routes(now, "-4")
			equal(w.t, "the new route, the old route", []bool{
				slices.Contains(got, "10.97.0.0/16 via 10.20.0.1 dev net1"), slices.Contains(got, "10.98.0.0/16 via 10.20.0.1 dev net1"),
			}, []bool{true, false})
		}},
		{"mtu", `{"type":"ovn-multinet","subnets":"10.20.0.0/28","mtu":1300}`, func(w *world, now *lab.Pod) {
			equal(w.t, "MTU", w.links(now)["net1"].MTU, 1300)
		}},
		{"excludeSubnets", `{"type":"ovn-multinet","subnets":"10.20.0.0/28","excludeSubnets":"10.20.0.8/29,10.20.0.4/30,10.20.0.2/32"}`, func(w *world, now *lab.Pod) {
			equal(w.t, "address", w.links(now)["net1"].Prefixes(), []string{"10.20.0.3/28"}) // all that is left
			full := w.pod(0, "full", "live")
			_, err := full.Add(w.ctx)
			w.refused(err, conf.CodeNoAddressLeft, "shop/live")
			fixed := w.pod(0, "fixed", `[{"name":"live","ips":["10.20.0.11"]}]`)
			_, err = fixed.Add(w.ctx)
			w.refused(err, conf.CodeInvalidConfig, "10.20.0.11", "excludeSubnets")
			w.end(full, fixed)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := &world{Lab: w.Lab, t: t, ctx: w.ctx}
			w.network("live", c.config)
			now := w.attached(0, "now", "live")
			w.consistent(now, []string{"net1"})
			w.mustReach(now, "10.20.0.9", "10.20.0.10")
			c.look(w, now)
			equal(t, "link of the running pod", w.links(old)["net1"], before)
			equal(t, "routes of the running pod", w.routes(old, "-4"), routes)
			equal(t, "port of the running pod", w.portRow(old, "net1"), row)
			ping.goesOn()
			w.end(now)
		})
	}
	ping.stop()
	w.end(old, peer)
	w.endNetworks("live")
	w.asBefore()
}

// TestSubnetGrows: of a subnet that became wider new pods get addresses, and running pods keep theirs.
func TestSubnetGrows(t *testing.T) {
	t.Parallel()
	w := newWorld(t, lab.Options{Nodes: 2}, nil)
	w.network("grow", `{"type":"ovn-multinet","subnets":"10.20.0.0/28"}`)
	a, b := w.attached(0, "a", "grow"), w.attached(1, "b", "grow")
	filler := w.attached(0, "filler", strings.TrimSuffix(strings.Repeat("grow,", 11), ",")) // 13 hosts beside the gateway
	w.full("grow")
	ping := w.pinging(a, w.links(b)["net1"].IPs()[0])
	links, row := w.links(a)["net1"], w.portRow(a, "net1")

	w.network("grow", `{"type":"ovn-multinet","subnets":"10.20.0.0/24"}`)
	c, d := w.attached(0, "c", "grow"), w.attached(1, "d", "grow")
	was, is := netip.MustParsePrefix("10.20.0.0/28"), netip.MustParsePrefix("10.20.0.0/24")
	for _, p := range []*lab.Pod{c, d} {
		w.consistent(p, []string{"net1"})
		for _, text := range w.links(p)["net1"].Prefixes() {
			if addr := netip.MustParsePrefix(text); was.Contains(addr.Addr()) || !is.Contains(addr.Addr()) || addr.Bits() != is.Bits() {
				t.Errorf("%s got %s, want an address of what %s has grown by, with its prefix length", p, addr, was)
			}
		}
	}
	w.mustReach(c, w.links(d)["net1"].IPs()...)
	equal(t, "link of the running pod", w.links(a)["net1"], links)
	equal(t, "port of the running pod", w.portRow(a, "net1"), row)
	ping.stop()

	// A pod that comes back into a second sandbox keeps its address, with the new prefix length.
	again, err := b.NewSandbox(w.ctx)
	w.must(err)
	want := w.links(b)["net1"].IPs()
	w.add(again)
	w.consistent(again, []string{"net1"})
	equal(t, "address in the second sandbox", w.links(again)["net1"].IPs(), want)
	w.mustReach(again, w.links(a)["net1"].IPs()...)
	w.must(b.Del(w.ctx))
	w.must(b.RemoveNetNS())
	w.end(a, again, c, d, filler)
	w.endNetworks("grow")
	w.asBefore()
}

// full wants that a network has no address left.
func (w *world) full(network string) {
	w.t.Helper()
	p := w.pod(0, "one-too-many", network)
	_, err := p.Add(w.ctx)
	w.refused(err, conf.CodeNoAddressLeft, "shop/"+network, "no address left")
	w.end(p)
}

// TestRefusedUpdate changes what running pods cannot follow: it is refused and said why, they go on, and so do new pods,
// by what is in force.
func TestRefusedUpdate(t *testing.T) {
	t.Parallel()
	w := newWorld(t, lab.Options{Nodes: 2}, nil)
	const config = `{"type":"ovn-multinet","subnets":"10.20.0.0/24,fd20::/64","router":"main"}`
	w.network("firm", config)
	a, b := w.attached(0, "a", "firm"), w.attached(1, "b", "firm")
	ping := w.pinging(a, w.links(b)["net1"].IPs()[0])
	switchRow := w.switchOf("shop/firm")
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
		t.Run(c.name, func(t *testing.T) {
			w := &world{Lab: w.Lab, t: t, ctx: w.ctx}
			w.nad("firm", c.config)
			w.notReady("firm", c.says...)
			now := w.attached(0, "now", "firm")
			// An address that most of the refused configurations do not have, or have for the gateway.
			fixed := w.attached(0, "fixed", `[{"name":"firm","ips":["10.20.0.254"]}]`)
			for _, p := range []*lab.Pod{now, fixed} {
				w.consistent(p, []string{"net1"})
				w.mustReach(p, w.links(b)["net1"].IPs()...)
				w.mustReach(p, "10.20.0.1", "fd20::1")
			}
			w.mustReach(b, "10.20.0.254")
			equal(t, "logical switch", w.switchOf("shop/firm"), switchRow)
			ping.goesOn()
			w.end(now, fixed)
			w.network("firm", config) // and ready again
		})
	}
	ping.stop()
	w.end(a, b)

	// With nobody on it any more the network follows.
	w.network("firm", `{"type":"ovn-multinet","subnets":"10.21.0.0/25,fd21::/64","gateway":"10.21.0.9","router":"main"}`)
	c := w.attached(0, "c", "firm")
	w.consistent(c, []string{"net1"})
	w.mustReach(c, "10.21.0.9", "fd21::1")
	w.end(c)
	w.endNetworks("firm")
	w.asBefore()
}
