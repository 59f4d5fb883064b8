//go:build chaos

package chaos

import (
	"fmt"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
)

// TestNBReplaced empties NB, and restores an older backup of it, under running pods. Nobody helps: networks and ports
// come back by themselves, with the same addresses. Pods start meanwhile: none gets the address of a pod whose port is
// not back yet.
func TestNBReplaced(t *testing.T) {
	s := newPodLoad(t, lab.Options{})
	for _, c := range []struct {
		name   string
		backup bool
	}{{"NB restored from an older backup", true}, {"NB emptied", false}} {
		s.begin("before")
		s.step()
		var content []byte
		if c.backup {
			content = s.Read(s.NBFile())
			// As the leader does every five minutes. A younger backup looks like the database itself.
			s.NBCtl("set", "Copp", ovndb.ClusterKey, `external_ids:"ovn-multinet/age"=1000`)
		}
		s.step() // the backup has pods that end, and lacks pods that start
		s.step()
		s.stop()
		row := Row{Fault: fmt.Sprintf("%s, under %d pods", c.name, len(s.live))}
		s.begin("meanwhile")
		s.RestoreNB(content)
		s.step()
		s.step()
		s.stop()
		row.Lost, row.Residue = s.comesBack(s.nb)
		report(t, s.finish(row))
	}
}
