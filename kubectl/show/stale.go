package show

import (
	"fmt"
	"io"
	"strings"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
)

// StaleSandboxes writes a line for each stale sandbox: the sandbox no longer exists, but has ports, veths or delegates.
func StaleSandboxes(w io.Writer, all []agentapi.StaleSandbox) error {
	if len(all) == 0 {
		_, err := fmt.Fprintln(w, "nothing is left on this node of containers that are gone")
		return err
	}
	t := table(w)
	fmt.Fprintln(t, "CONTAINER\tPOD\tREASON\tPORTS\tHOST VETH\tOTHER PLUGINS\tSTATE")
	for i := range all {
		r := &all[i]
		printf(t, "%.12s\t%s/%s\t%s\t%s\t%s\t%s\t%s\n", r.ContainerID, r.Namespace, r.Pod, r.Why,
			orDash(strings.Join(r.Ports, ",")), orDash(strings.Join(r.HostVeths, ",")),
			orDash(strings.Join(r.Delegates, ", ")), stateOf(r))
	}
	return t.Flush()
}

func stateOf(r *agentapi.StaleSandbox) string {
	switch {
	case r.Collected && r.Journal:
		return "deleted; the plugin deletes the rest in its next call"
	case r.Collected:
		return "deleted"
	case len(r.Ports) == 0 && len(r.HostVeths) == 0:
		return "waits for the plugin's next call"
	}
	return "goes when it is seen again"
}
