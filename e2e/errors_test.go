package e2e

import (
	"testing"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

// TestBadInput asks for what cannot be: each gets its code and one line that names the thing, and leaves nothing.
// Conformance: F-12
func TestBadInput(t *testing.T) {
	t.Parallel()
	w := newWorld(t, lab.Options{}, nil)
	w.must(w.WriteManifest("typo.yaml", "apiVersion: k8s.cni.cncf.io/v1\nkind: NetworkAttachmentDefinition\nmetadata: {namespace: shop, name: typo}\nspec: {config: '{\"type\":\"ovn-multinet\",\"subnet\":\"10.9.0.0/24\"}'}\n"))
	w.must(w.WriteManifest("other.yaml", "apiVersion: k8s.cni.cncf.io/v1\nkind: NetworkAttachmentDefinition\nmetadata: {namespace: shop, name: other}\nspec: {config: '{\"type\":\"bridge\"}'}\n"))
	holder := w.attached(0, "holder", `[{"name":"blue","ips":["10.1.0.7"],"mac":"02:00:00:00:00:07"}]`)
	full := make([]*lab.Pod, 5) // a /29 has six hosts, of which one is the gateway
	for i := range full {
		full[i] = w.attached(0, "full-"+string(rune('a'+i)), "tiny")
	}
	for _, c := range []struct {
		name, networks string
		code           uint
		words          []string
	}{
		{"unknown network", "nowhere", conf.CodeNetworkNotFound, []string{"net1", "network shop/nowhere is not found"}},
		{"unknown network of two", "blue,nowhere", conf.CodeNetworkNotFound, []string{"net2", "shop/nowhere"}},
		{"malformed annotation", `[{"name":"blue"`, conf.CodeInvalidConfig, []string{networksAnnotation, "JSON"}},
		{"null element", `[null]`, conf.CodeInvalidConfig, []string{"element 0"}},
		{"unknown key", `[{"name":"blue","ip":["10.1.0.8"]}]`, conf.CodeInvalidConfig, []string{`"ip"`, `did you mean "ips"`}},
		{"outside the subnet", `[{"name":"blue","ips":["10.7.0.8"]}]`, conf.CodeInvalidConfig, []string{"10.7.0.8", "10.1.0.0/16", "shop/blue"}},
		{"in use", `[{"name":"blue","ips":["10.1.0.7"]}]`, conf.CodeInUse, []string{"10.1.0.7", "shop/holder"}},
		{"MAC in use", `[{"name":"blue","mac":"02:00:00:00:00:07"}]`, conf.CodeInUse, []string{"02:00:00:00:00:07", "shop/holder"}},
		{"network address", `[{"name":"blue","ips":["10.1.0.0"]}]`, conf.CodeInvalidConfig, []string{"10.1.0.0", "network address"}},
		{"broadcast address", `[{"name":"blue","ips":["10.1.255.255"]}]`, conf.CodeInvalidConfig, []string{"10.1.255.255", "broadcast address"}},
		{"gateway address", `[{"name":"blue","ips":["10.1.0.1"]}]`, conf.CodeInvalidConfig, []string{"10.1.0.1", "gateway"}},
		{"excluded address", `[{"name":"blue","ips":["10.1.255.9"]}]`, conf.CodeInvalidConfig, []string{"10.1.255.9", "excludeSubnets"}},
		{"subnet full", "tiny", conf.CodeNoAddressLeft, []string{"shop/tiny", "no address left"}},
		{"unknown key in the network", "typo", conf.CodeInvalidConfig, []string{"shop/typo", `"subnet"`, `did you mean "subnets"`}},
		{"another plugin's network", "other", conf.CodeNotAllowed, []string{"shop/other", `"bridge"`}},
		{"one interface name twice", "blue@data,green@data", conf.CodeInvalidConfig, []string{`"data"`, "element 1", "element 0"}},
		{"the primary interface's name", "blue@eth0", conf.CodeInvalidConfig, []string{`"eth0"`}},
		{"a leased MAC's form", `[{"name":"blue","mac":"0a:58:00:00:00:01"}]`, conf.CodeInvalidConfig, []string{"0a:58:00:00:00:01"}},
		{"good before bad", `[{"name":"green"},{"name":"blue","ips":["10.1.0.7"]}]`, conf.CodeInUse, []string{"net2", "10.1.0.7"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			sub := &world{Lab: w.Lab, t: t, ctx: w.ctx}
			p := sub.pod(0, "bad", c.networks)
			sub.base = sub.snapshot()
			_, err := p.Add(w.ctx)
			sub.refused(err, c.code, c.words...)
			sub.end(p)
			sub.asBefore()
		})
	}
	w.end(append(full, holder)...)
	w.must(w.RemoveManifest("typo.yaml"))
	w.must(w.RemoveManifest("other.yaml"))
	w.asBefore()
}

// TestPodWithoutManifest: a pod that its source does not know is not attached with invented addresses.
// Conformance: F-9
func TestPodWithoutManifest(t *testing.T) {
	t.Parallel()
	w := newWorld(t, lab.Options{}, nil)
	p := w.pod(0, "web", "blue")
	w.must(p.RemoveManifest())
	_, err := p.Add(w.ctx)
	w.refused(err, conf.CodePodGone, "pod shop/web is not found")
	w.end(p)
	w.asBefore()
}

// TestNotChained: first in the conflist, or alone, is no way to run.
// Conformance: N-127
func TestNotChained(t *testing.T) {
	t.Parallel()
	w := newWorld(t, lab.Options{}, nil)
	p := w.pod(0, "web", "blue")
	_, err := p.Add(w.ctx, lab.OnlyOurs(nil))
	w.refused(err, conf.CodeInvalidConfig, "prevResult")
	w.must(p.RemoveNetNS())
	w.must(p.RemoveManifest())
	w.asBefore()
}

// TestInterfaceTaken: a name that something else in the pod has already is refused when the kernel says so, and
// what was made before is undone.
// Conformance: C-31
func TestInterfaceTaken(t *testing.T) {
	t.Parallel()
	w := newWorld(t, lab.Options{}, nil)
	p := w.pod(0, "web", "green,blue@taken")
	_, err := p.Exec(w.ctx, "ip", "link", "add", "taken", "type", "veth", "peer", "name", "other")
	w.must(err)
	_, err = p.Add(w.ctx)
	w.refused(err, conf.CodeInvalidConfig, "interface taken", "already")
	if links := w.links(p); len(links) != 2 && len(links) != 3 {
		t.Errorf("interfaces were left in the pod: %v", links)
	}
	w.end(p)
	w.asBefore()
}
