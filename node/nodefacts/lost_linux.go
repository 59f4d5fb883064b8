package nodefacts

import (
	"slices"
	"strings"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/node/journal"
)

// maxLost is how many interfaces the facts name.
const maxLost = 20

// lostInterfaces are the interfaces of pods whose host-side veths the kernel does not have, as
// "<namespace>/<pod>/<interface>". Sandboxes that a call of the plugin is changing do not count.
func lostInterfaces(node root, proc procfs) (lost []string) {
	state, _, err := node.path(conf.DefaultStateDir)
	if err != nil {
		return nil
	}
	all, _, err := journal.Dir(state).Summaries()
	if err != nil {
		return nil
	}
	links := proc.links()
	for i := range all {
		e := &all[i]
		if e.Plan == nil || e.FailedAttempts > 0 || len(e.Changing) > 0 {
			continue
		}
		for _, n := range e.Plan.Interfaces {
			if !slices.Contains(links, agentapi.HostVeth(e.Sandbox.ContainerID, n.Name)) {
				lost = append(lost, e.Sandbox.Namespace+"/"+e.Sandbox.Pod+"/"+n.Name)
			}
		}
	}
	slices.Sort(lost)
	return lost[:min(len(lost), maxLost)]
}

// links are the names of the node's links.
func (p procfs) links() (names []string) {
	for line := range strings.Lines(p.text("net/dev")) {
		if name, _, is := strings.Cut(line, ":"); is {
			names = append(names, strings.TrimSpace(name))
		}
	}
	return names
}
