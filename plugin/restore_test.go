package plugin

import (
	"bytes"
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	"github.com/containernetworking/plugins/pkg/ns"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/internal/nettest"
)

// inPod runs commands in the pod's namespace, one a line, and returns what they print.
func (n *node) inPod(lines string) string {
	n.t.Helper()
	var printed []byte
	n.must(ns.WithNetNSPath(n.pod, func(ns.NetNS) error {
		for line := range strings.Lines(lines) {
			words := strings.Fields(line)
			if len(words) == 0 {
				continue
			}
			out, err := exec.Command(words[0], words[1:]...).CombinedOutput()
			if err != nil {
				n.t.Errorf("%s%s", line, out)
			}
			printed = append(printed, out...)
		}
		return nil
	}))
	return string(printed)
}

// routes are all routes of the pod's main table, with all that the kernel tells of them.
func (n *node) routes() string {
	n.t.Helper()
	return n.inPod("ip -4 -details route\nip -6 -details route")
}

// primaryRoutes makes eth0 of a pod, with routes of every kind.
const primaryRoutes = `
	ip link set lo up
	ip link add eth0 type veth peer name away
	ip link set away addrgenmode none up
	ip link set eth0 addrgenmode none up
	ip address add 10.244.1.2/24 dev eth0
	ip address add fd44::2/64 dev eth0 nodad
	ip route add default via 10.244.1.1 dev eth0 metric 100 proto bird src 10.244.1.2 mtu 1400 advmss 1300
	ip route append default via 10.244.1.9 dev eth0 metric 100
	ip route add default via 10.244.1.3 dev eth0 metric 700
	ip route add 10.96.0.0/12 via 10.244.1.7 dev eth0
	ip route add 10.97.0.0/16 dev eth0 scope link
	ip route add 10.244.0.0/16 via 10.244.1.1 dev eth0
	ip -6 route add default via fd44::1 dev eth0 metric 512 pref high mtu 1350
	ip -6 route add default via fd44::9 dev eth0 metric 1024 proto bird
	ip -6 route add fd96::/48 via fd44::7 dev eth0
`

// What a failed ADD changed of the primary interface's routes is undone: each of them is as it was.
func TestUndoRestoresRoutes(t *testing.T) {
	if !nettest.InOwn(t) {
		return
	}
	green := func(gateways ...string) *agentapi.Plan {
		p := &agentapi.Plan{
			Interfaces: []agentapi.Interface{{
				Name: "net1", Network: "shop/green", MAC: "0a:58:0a:02:00:05", MTU: 1400,
				Addresses: []netip.Prefix{netip.MustParsePrefix("10.2.0.5/24"), netip.MustParsePrefix("fd02::5/64")},
				Port:      agentapi.Port{Name: "shop/web/net1", UUID: "p-1"},
			}},
			Default: &agentapi.Default{Interface: "net1"},
		}
		for _, g := range gateways {
			p.Default.Gateways = append(p.Default.Gateways, netip.MustParseAddr(g))
		}
		return p
	}
	kept := green("10.2.0.1", "fd02::1")
	for _, k := range []string{"10.96.0.0/12", "10.97.0.0/16", "10.112.0.0/12", "fd96::/48", "fd97::/48"} {
		kept.Default.Keep = append(kept.Default.Keep, netip.MustParsePrefix(k))
	}
	routed := green("10.2.0.1")
	ten98 := conf.Route{Dst: netip.MustParsePrefix("10.98.0.0/16"), GW: netip.MustParseAddr("10.244.1.1")}
	routed.Routes = []agentapi.Route{{Route: ten98, Interface: "eth0"}}
	taken := green()
	taken.Default, taken.Routes = nil, []agentapi.Route{routed.Routes[0], routed.Routes[0]}
	const beyond = "ip route add default via 192.0.2.1 dev eth0 onlink metric 9"
	for _, tt := range []struct {
		name, further string
		plan          *agentapi.Plan
		adds          int  // how many of them succeed before one fails
		fails         uint // the code of the failure
	}{
		{"both families", "", green("10.2.0.1", "fd02::1"), 0, conf.CodeNoFlows},
		{"one family", "", green("fd02::1"), 0, conf.CodeNoFlows},
		{"networks that stay", "", kept, 0, conf.CodeNoFlows},
		{"a route of the pod", "", routed, 0, conf.CodeNoFlows},
		{"an ADD that is repeated", "", kept, 2, conf.CodeNoFlows},
		{"a gateway beyond the link", beyond, green("10.2.0.1"), 0, conf.CodeNoFlows},
		{"networks that stay, by a gateway beyond the link", beyond, kept, 0, conf.CodeNoFlows},
		{"the second gateway is not on the network", "", green("10.2.0.1", "fd77::1"), 0, conf.CodeInvalidConfig},
		{"the second route is there", "", taken, 0, conf.CodeInvalidConfig},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := newNode(t)
			n.pod = nettest.Namespace(t)
			n.inPod(primaryRoutes + tt.further)
			before, moved, fails := n.routes(), "", false
			n.agent(func(r *agentapi.Request) (any, []agentapi.Garbage, error) {
				if r.Op == agentapi.OpBind {
					moved = n.routes()
				}
				if r.Op == agentapi.OpBind && fails {
					return nil, nil, conf.Errorf(conf.CodeNoFlows, "is ovn-controller running?", "flows are not installed")
				}
				return tt.plan, nil, nil
			})
			annotations := `{"k8s.v1.cni.cncf.io/networks":"green"}`
			args := n.argsOf("c1", `,"runtimeConfig":{"io.kubernetes.cri.pod-annotations":`+annotations+`},"prevResult":`+prevResult)
			for range tt.adds {
				n.must((&Plugin{Stdout: &bytes.Buffer{}}).Add(args))
			}
			fails = true
			wantError(t, (&Plugin{Stdout: &bytes.Buffer{}}).Add(args), tt.fails)
			if tt.fails == conf.CodeNoFlows && moved == before {
				t.Errorf("no route was moved:\n%s", moved)
			}
			if after := n.routes(); after != before {
				t.Errorf("the routes are\n%swere\n%s", after, before)
			}
			n.wantState("the failed ADD", "release/c1@eth0")
		})
	}
}
