//go:build kube

package scenarios

import (
	"fmt"
	"regexp"
	"strings"
)

// tools: the clients of OVN and Open vSwitch run in the pods of the chart's OVN, for an operator who reaches only the API
// server.
func (w *world) tools() {
	w.T.Helper()
	from, to := w.links("web-1")["net1"], w.links("web-2")["net1"]
	packet := fmt.Sprintf(`inport=="default/web-1/net1" && eth.src==%s && eth.dst==%s && ip4.src==%s && ip4.dst==%s && ip.ttl==64 && icmp4.type==8`,
		from.MAC, to.MAC, from.ips()[0], to.ips()[0])
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"nbctl", "--", "--bare", "--columns=name", "list", "Logical_Switch"}, `(?m)^default/blue$`},
		{[]string{"nbctl", "--node", "node3", "show", "default/blue"}, `port default/web-3/net1`},
		{[]string{"sbctl", "--", "--bare", "--columns=hostname", "list", "Chassis"}, `(?m)^node2$`},
		{[]string{"trace", "default/blue", packet}, `output to "default/web-2/net1"`},
		{[]string{"vsctl", "--node", "node2", "list-br"}, `(?m)^br-int$`},
		{[]string{"ofctl", "--node", "node2", "dump-flows", "br-int", "table=0"}, `cookie=0x`},
		{[]string{"appctl", "--node", "node2", "version"}, `^ovs-vswitchd \(Open vSwitch\)`},
		{[]string{"appctl", "--node", "node2", "--daemon", "ovn-controller", "connection-status"}, `^connected\n$`},
	} {
		if out, err := w.Multinet(w.Ctx, tt.args...); err != nil || !regexp.MustCompile(tt.want).MatchString(out) {
			w.T.Errorf("kubectl multinet %s: %v\n%s\nwant %s", strings.Join(tt.args, " "), err, out, tt.want)
		}
	}
	for _, tt := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"nbctl", "frobnicate"}, 1, "ovn-nbctl: unknown command 'frobnicate'"},
		{[]string{"vsctl", "--node", "node2", "br-exists", "br-none"}, 2, ""},
		{[]string{"vsctl", "show"}, 1, "--node is empty"},
		{[]string{"vsctl", "--node", "node9", "show"}, 1, `no pod with app=ovn-multinet-ovn-node runs on node "node9"`},
	} {
		out, err := w.Multinet(w.Ctx, tt.args...)
		if !strings.Contains(out, tt.want) || err == nil || !strings.Contains(err.Error(), fmt.Sprint("exit status ", tt.code)) {
			w.T.Errorf("kubectl multinet %s: %v\n%s\nwant exit status %d and %s", strings.Join(tt.args, " "), err, out, tt.code, tt.want)
		}
	}
}
