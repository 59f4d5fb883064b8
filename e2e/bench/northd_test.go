//go:build bench

package bench

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
	"github.com/ovn-multinet/ovn-multinet/e2e/labtest"
)

// TestNorthd counts the recomputes of ovn-northd while pods come and go, on the OVN that runs here.
func TestNorthd(t *testing.T) {
	w := Here(t.Context())
	pods := *turns * 5
	p := report(t, "50-northd-"+w.OVN, "ovn-northd "+w.OVN, fmt.Sprintf(`Recomputes of ovn-northd's engine nodes, by its own
counters, over %d ADDs and DELs of pods with two networks. The agent uses NB over TLS, ovn-northd a unix socket.`, pods))
	s := &labtest.World{Test: labtest.New(t, patience), Lab: lab.Start(t, lab.Options{})}
	overTLS(t, s.Lab)
	s.Start()
	for i := range 2 {
		s.NAD(fmt.Sprint("ovn", i), fmt.Sprintf(`{"cniVersion":"1.0.0","name":"ovn%d","type":"ovn-multinet","subnets":"10.%d.0.0/16"}`, i, 60+i))
	}
	first := s.Pod(0, "first", "ovn0,ovn1")
	s.AddInTheEnd(first)
	before := recomputes(t, s.Lab)
	for i := range pods {
		s.End(s.Attached(0, fmt.Sprint("web-", i), "ovn0,ovn1"))
	}
	after := recomputes(t, s.Lab)
	s.End(first)
	for _, node := range []string{"northd", "lflow", "sync_from_sb"} {
		if _, known := after[node]; !known {
			continue
		}
		r := Number(node+", recomputes per pod", "", []float64{float64(after[node]-before[node]) / float64(pods)}, 0)
		if node != "sync_from_sb" { // it reads what ovn-controllers write, as for ports of any system
			r = r.AtMost(0)
			r.Bound = "ovn-northd " + w.OVN + " computes everything again when a port changes. Versions from 23.09 on do not: the part on " +
				"ovn-northd 25.03 counts the same pods."
		}
		p.Rows = append(p.Rows, r)
	}
}

// recomputes reads the counter of each engine node.
func recomputes(t testing.TB, l *lab.Lab) map[string]int {
	ctl := filepath.Join(l.Dir, "central", "ovn-northd.ctl")
	out, err := exec.Command("ovn-appctl", "-t", ctl, "inc-engine/show-stats").Output()
	must(t, err)
	counts := map[string]int{}
	for _, m := range regexp.MustCompile(`(?m)^Node: (\S+)\n- recompute:\s*(\d+)`).FindAllStringSubmatch(string(out), -1) {
		counts[m[1]] = get[int](t)(strconv.Atoi(m[2]))
	}
	if len(counts) == 0 {
		t.Fatalf("ovn-northd prints no counters:\n%s", out)
	}
	return counts
}
