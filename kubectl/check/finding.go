// Package check owns what `kubectl multinet check` finds: whether a cluster has what ovn-multinet needs, and what an
// installation lacks. It changes nothing, except for the short-lived pods of Inspector.
package check

import (
	"cmp"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Level says how much a finding matters.
type Level string

// The levels: with an error, ovn-multinet does not work or harms another program.
const (
	OK      Level = "ok"
	Warning Level = "warning"
	Error   Level = "error"
)

// Finding is one result of a check.
type Finding struct {
	Level Level  `json:"level"`
	What  string `json:"what"` // the name of the check, one of Checks
	Cause string `json:"cause"`
	Fix   string `json:"fix,omitempty"`
	// Nodes are the nodes with this finding; empty: the whole cluster.
	Nodes []string `json:"nodes,omitempty"`
	// Unread says that the check could not be made.
	Unread bool `json:"unread,omitempty"`
	// Pending says that something goes on, and ends by itself.
	Pending bool `json:"pending,omitempty"`

	forbidden bool // unread because a right is missing
}

// Checks has the name of each check and its meaning. docs/install.md has the same table, with what to do.
var Checks = []struct{ What, Meaning string }{
	{"kubernetes-version", "Kubernetes is 1.30 or later"},
	{"admission-policies", "the API server serves ValidatingAdmissionPolicy"},
	{"nad-crd", "the API server serves NetworkAttachmentDefinition in version v1"},
	{"nodes", "nodes are Ready, run Linux, and have an architecture with images"},
	{"container-runtime", "the container runtime, and the version of CNI that it supports"},
	{"distribution", "the Kubernetes distribution, and the chart's value for it"},
	{"primary-network", "which program makes the first interface of pods"},
	{"meta-plugins", "no other meta-plugin, such as Multus, writes a conflist"},
	{"other-ovn", "no other program owns OVN and `br-int` on the nodes"},
	{"second-install", "no second ovn-multinet is in another namespace"},
	{"namespace", "the namespace `ovn-multinet` admits the agent's pods"},
	{"nb-endpoints", "the endpoints of NB are given, and the nodes reach them"},
	{"subnets", "networks do not overlap the cluster's own networks"},
	{"keep-on-primary", "`agent.keepOnPrimary` has the networks of pods and Services"},
	{"agents", "the agent and the installer are ready on each node"},
	{"attach", "the program that changes the networks of running pods runs on each node, if `attach.enabled`"},
	{"controllers", "the controllers are ready"},
	{"leader", "one of the controllers leads"},
	{"ovn-databases", "OVN's databases and `ovn-northd` answer on each node that has them"},
	{"raft", "NB and SB each have a leader that hears all their servers, and an `ovn-northd` is active"},
	{"ovn-nodes", "Open vSwitch and `ovn-controller` answer on each node, and `ovn-controller` reaches " +
		"the Southbound database"},
	{"ovn-authority", "the authority of the certificates of OVN's programs is valid"},
	{"startup-taint", "no node waits for its agent before it takes pods"},
	{"updates", "all pods of ovn-multinet have the latest version"},
	{"pod-networks", "no pod runs without the networks that its annotation names"},
	{"refused-objects", "no NAD, policy, Service or pod with an outside address is refused"},
	{"operator-objects", "the operator's objects are accepted, and nothing is missing for them"},
	{"places", "controllers and OVN's databases run on control planes, if the cluster has any"},
	{"distrusted", "a node that is distrusted has no access to OVN"},
	{"tunnel-keys", "OVN has its large range of tunnel keys: no chassis lists VXLAN"},
	{"nb-secrets", "the Secrets with the keys for NB are complete"},
	{"versions", "all programs have the same version"},
	{"inspection", "each node could be inspected"},
	{"conflist", "the node has the primary network's conflist, and no file comes before ours"},
	{"cni-plugins", "the node has the plugins that this conflist runs"},
	{"plugin-folder", "the installer can write the node's folders"},
	{"kernel-modules", "the kernel has openvswitch and geneve"},
	{"ports", "no other program uses the ports of Geneve and of OVN's databases"},
	{"open-vswitch", "Open vSwitch answers, and ovn-controller has made `br-int`; or the chart will bring both"},
	{"pod-interfaces", "no interface of a running pod was lost on the node"},
	{"inotify", "the node has enough inotify instances"},
}

func ok(what, cause string, args ...any) Finding {
	return Finding{Level: OK, What: what, Cause: fmt.Sprintf(cause, args...)}
}

func warning(what, fix, cause string, args ...any) Finding {
	return Finding{Level: Warning, What: what, Fix: fix, Cause: fmt.Sprintf(cause, args...)}
}

func fault(what, fix, cause string, args ...any) Finding {
	return Finding{Level: Error, What: what, Fix: fix, Cause: fmt.Sprintf(cause, args...)}
}

func unread(what, fix string, err error) Finding {
	return Finding{Level: Error, What: what, Fix: fix, Cause: fmt.Sprintf("cannot be read: %v", err), Unread: true,
		forbidden: apierrors.IsForbidden(err)}
}

// at returns the finding as that of a node.
func (f Finding) at(node string) Finding {
	f.Nodes = []string{node}
	return f
}

// on returns the findings as those of a node.
func on(node string, findings []Finding) []Finding {
	for i := range findings {
		findings[i].Nodes = []string{node}
	}
	return findings
}

// Sort merges findings that differ only in their nodes, and sorts all in the order of Checks.
func Sort(findings []Finding) []Finding {
	merged := []Finding{}
	for _, f := range findings {
		same := slices.IndexFunc(merged, func(m Finding) bool {
			return m.What == f.What && m.Level == f.Level && m.Cause == f.Cause && m.Fix == f.Fix && len(m.Nodes) > 0
		})
		if same < 0 || len(f.Nodes) == 0 {
			merged = append(merged, f)
			continue
		}
		merged[same].Nodes = append(merged[same].Nodes, f.Nodes...)
	}
	for i := range merged {
		slices.Sort(merged[i].Nodes)
	}
	slices.SortStableFunc(merged, func(a, b Finding) int { return cmp.Compare(position(a.What), position(b.What)) })
	return merged
}

func position(what string) int {
	return slices.IndexFunc(Checks, func(c struct{ What, Meaning string }) bool { return c.What == what })
}

// Exit codes of the command.
const (
	ExitOK     = 0
	ExitErrors = 1
	ExitUnread = 2 // a check could not be made, and no other check found an error
)

// ExitCode returns the exit code of the command.
func ExitCode(findings []Finding) int {
	code := ExitOK
	for _, f := range findings {
		switch {
		case f.Level == Error && !f.Unread:
			return ExitErrors
		case f.Unread:
			code = ExitUnread
		}
	}
	return code
}
