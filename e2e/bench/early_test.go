//go:build bench

package bench

import (
	"fmt"
	"testing"
	"time"

	"github.com/ovn-multinet/ovn-multinet/e2e/labtest"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
)

// TestEarly measures the ADD of a pod beside few ports and beside many, which ovn-northd has to pass through.
func TestEarly(t *testing.T) {
	const ports = 10_000
	w := Here(t.Context())
	p := report(t, "55-early-"+w.OVN, "Early ports, OVN "+w.OVN, fmt.Sprintf(`One pod with one network, from ADD to flows, in an NB
with some ports and in the same NB with %d ports of another network. With early ports the ADD comes 1 s after the pod's binding,
without them at once. The four series come one after the other. Agent and controller use NB over TLS.`, ports))
	s := emptySite(t)
	n := parse(t, portsNetwork)
	s.Must(s.Apply(s.Ctx, labtest.Manifest(portsNetwork, portsConfig)))
	s.startController()
	measure := func(early bool) (add []float64) {
		pause := time.Duration(0)
		if early {
			pause = time.Second
		}
		sys := s.startAgent(fmt.Sprintf("--early-ports=%t", early))
		s.warmUp(sys)
		for range *turns {
			pod := s.pod(sys, 1)
			time.Sleep(pause)
			add = append(add, ms(s.call(sys, func() error {
				_, err := pod.Add(s.Ctx)
				return err
			}).wall))
			s.Must(pod.Del(s.Ctx))
			s.gone(pod)
		}
		s.Must(sys.daemon.Stop(s.Ctx))
		return add
	}
	central := func() float64 {
		return ms(get[time.Duration](t)(cpuOf(s.Northd.Pid())) + get[time.Duration](t)(cpuOf(s.SB.Pid())))
	}
	few, fewEarly := measure(false), measure(true)
	server := ovndbtest.AttachNB(t, s.NBSocket())
	for from := 0; from < ports; from += 1000 {
		fill(t, server, n, from, from+1000)
	}
	many := measure(false)
	before := central()
	manyEarly := measure(true)
	row := Compare("with early ports", "ms", "few ports", manyEarly, fewEarly, 1.3)
	row.Bound = fmt.Sprintf("ovn-northd %s and the server of its Southbound database use %s ms of CPU for the ADD and DEL of one pod "+
		"beside the many ports, most of it to compute everything again. A part of that falls into the second before the ADD, a part "+
		"into the ADD. The part on ovn-northd 25.03, which does not compute everything again, has the same rows.",
		w.OVN, short((central()-before)/float64(*turns)))
	p.Rows = append(p.Rows, row, Compare("without early ports", "ms", "few ports", many, few, 0))
}
