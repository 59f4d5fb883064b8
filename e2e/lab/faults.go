package lab

import (
	"context"
	"errors"
	"slices"
	"strings"
)

// conntrackFault ends the userspace datapath of Open vSwitch 3.1: its connection tracker aborts when it finds one half of
// a translated connection instead of the other. OVN translates every connection that a policy admits.
const conntrackFault = "assertion conn->conn_type == CT_CONN_TYPE_DEFAULT failed in conn_update_state()"

// EndStaleFlows makes the nodes' datapaths ask for all of their flows anew, if they are the userspace datapath of Open
// vSwitch 3.1, and reports whether they are. When the OpenFlow rules change, ovs-vswitchd 3.1 changes the flows in its
// datapath. If one of these changes fails, it does not notice, and the flow forwards by the former rules as long as packets
// use it. Seen with pods that got a Service: its answers came from the backend's address for as long as the client asked,
// while the rules were right. A packet that comes meanwhile may be lost: call it only where one is sent again.
func (l *Lab) EndStaleFlows(ctx context.Context) (bool, error) {
	version, err := tool(ctx, "ovs-vswitchd", "--version")
	if err != nil || l.datapath != userspace || !strings.Contains(version, ") 3.1.") {
		return false, err
	}
	for _, n := range l.Nodes {
		_, nodeErr := n.AppCtl(ctx, "dpctl/del-flows")
		err = errors.Join(err, nodeErr)
	}
	return true, err
}

// faultsOf returns the known faults of OVN and Open vSwitch that the lab's nodes have had: what happened, in words. It asks
// ovn-controller to compute its flows anew, so it is for a test that has failed.
func (l *Lab) faultsOf(ctx context.Context) (all []string, err error) {
	for _, n := range l.Nodes {
		if n.VSwitchd != nil && n.VSwitchd.Faults() > 0 {
			all = append(all, n.VSwitchd.Name+" lost its connections: it has aborted, and was started again")
		}
		if n.OVNController == nil || !n.OVNController.Running() || !n.VSwitchd.Running() {
			continue
		}
		lost, lostErr := n.lostFlows(ctx)
		err = errors.Join(err, lostErr)
		if len(lost) > 0 {
			all = append(all, n.OVNController.Name+" had lost OpenFlow rules: "+strings.Join(lost[:min(len(lost), 3)], "; "))
		}
	}
	return all, err
}

// lostFlows returns the OpenFlow rules that ovn-controller should have installed, and installs only when it computes all of
// them anew. ovn-controller 23.03 computes what has changed, and sometimes misses a part.
func (n *Node) lostFlows(ctx context.Context) ([]string, error) {
	if _, err := n.lab.NBCtl(ctx, timeoutArg(ctx), "--wait=hv", "sync"); err != nil {
		return nil, err
	}
	before, err := n.OFCtl(ctx, "dump-flows", "--no-stats")
	if err == nil {
		err = n.RecomputeFlows(ctx)
	}
	if err != nil {
		return nil, err
	}
	_, err = n.lab.NBCtl(ctx, timeoutArg(ctx), "--wait=hv", "sync")
	after, dumpErr := n.OFCtl(ctx, "dump-flows", "--no-stats")
	return newRules(before, after), errors.Join(err, dumpErr)
}

// newRules returns the rules of the second dump that the first one has not, whatever they do.
func newRules(before, after string) (rules []string) {
	had := map[string]bool{}
	for line := range strings.Lines(before) {
		rule, _, _ := strings.Cut(strings.TrimSpace(line), " actions=")
		had[rule] = true
	}
	for line := range strings.Lines(after) {
		rule, _, is := strings.Cut(strings.TrimSpace(line), " actions=")
		if is && !had[rule] {
			rules = append(rules, rule)
		}
	}
	slices.Sort(rules)
	return rules
}
