package show

import (
	"fmt"
	"io"
	"time"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
)

// FailedDELs writes a line for each sandbox that has delegates whose DEL failed.
func FailedDELs(w io.Writer, all []agentapi.FailedDEL) error {
	if len(all) == 0 {
		_, err := fmt.Fprintln(w, "nothing is left behind on this node")
		return err
	}
	t := table(w)
	fmt.Fprintln(t, "CONTAINER\tPOD\tNETWORKS\tTRIES\tLAST TRY\tSTATE\tCOMPLAINT")
	for i := range all {
		l := &all[i]
		networks := make([]string, len(l.Delegates))
		for n, d := range l.Delegates {
			networks[n] = d.Interface + " on " + d.Network
			if d.Device != "" {
				networks[n] += " with " + d.Device
			}
		}
		state := "tried again"
		if l.Forgotten {
			state = "forgotten"
		}
		printf(t, "%.12s\t%s/%s\t%s\t%d\t%s\t%s\t%s\n", l.ContainerID, l.Namespace, l.Pod, words(networks),
			l.FailedAttempts, l.Since.Format(time.DateTime), state, orDash(l.LastError))
	}
	return t.Flush()
}
