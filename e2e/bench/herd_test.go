//go:build bench

package bench

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
	"github.com/ovn-multinet/ovn-multinet/e2e/labtest"
)

// herdNetworks is how many further networks each pod of the herd has.
const herdNetworks = 4

// herdGoal is the most that our ADDs may take of a peer's time.
const herdGoal = 0.2

// TestHerd attaches many pods of one node at once.
func TestHerd(t *testing.T) {
	s := newSite(t)
	p := report(t, "30-herd", "A herd", fmt.Sprintf(`%d pods × %d networks on one node: all ADDs at once, then all DELs at
once. The time is that until the last one has ended; memory is the peak of the agent or of Multus' daemon. The ports of our pods
are ports of Open vSwitch with the userspace datapath, whose one main thread adds them; those of Multus are on a Linux bridge.
The straight line is one process that makes the same interfaces one after the other and waits for the flows of all (see the
floor). Agent and controller use NB over TLS.`, *herd, herdNetworks))
	add, del := map[string][]float64{}, map[string][]float64{}
	failed, last := map[string]int{}, map[string]herdCost{}
	for range max(1, *turns/10) {
		for _, sys := range s.systems {
			took := s.herd(sys)
			add[sys.name], del[sys.name] = append(add[sys.name], took.add.Seconds()), append(del[sys.name], took.del.Seconds())
			failed[sys.name] += took.failed
			last[sys.name] = took
			if sys.daemon != nil {
				p.Rows = append(p.Rows, Number(sys.name+", peak of memory", "MB", []float64{took.peak}, 0))
			}
			p.Rows = append(p.Rows, Number(sys.name+", failed ADDs", "", []float64{float64(took.failed)}, 0),
				Number(sys.name+", CPU of ovs-vswitchd during the ADDs", "s", []float64{took.vswitchd.Seconds()}, 0))
		}
	}
	us := s.systems[0].name
	var networks []string
	for i := range herdNetworks {
		networks = append(networks, fmt.Sprint("ovn", i))
	}
	began := get[time.Duration](t)(cpuOf(s.node.VSwitchd.Pid()))
	line := newFloor(&labtest.World{Test: s.Test, Lab: s.Lab}).herd(*herd, networks)
	lineCPU := get[time.Duration](t)(cpuOf(s.node.VSwitchd.Pid())) - began
	p.Rows = append(p.Rows, Number("straight line, all interfaces", "s", []float64{line.Seconds()}, 0),
		Number("straight line, CPU of ovs-vswitchd", "s", []float64{lineCPU.Seconds()}, 0))
	for _, sys := range s.systems[1:] {
		adds := Compare("all ADDs", "s", sys.name, add[us], add[sys.name], herdGoal)
		lineRatio := line.Seconds() / Median(add[sys.name])
		adds.Bound = fmt.Sprintf("%s The straight line, without any of these processes, takes %s s, %s of %s, of which %d of %d ADDs "+
			"failed. %s", last[us].bound(), short(line.Seconds()), short(lineRatio), sys.name, failed[sys.name],
			*herd*len(add[sys.name]), beyond(lineRatio, herdGoal))
		p.Rows = append(p.Rows, adds,
			Compare("all DELs", "s", sys.name, del[us], del[sys.name], 0))
	}
}

// herdCost is what one herd took.
type herdCost struct {
	add, del time.Duration
	vswitchd time.Duration // CPU time of ovs-vswitchd during the ADDs
	// CPU time of all plugins' processes, of those before ours alone, and of the daemon, during the ADDs.
	plugins, before, daemon time.Duration

	inUse  float64 // share of the machine's CPU during the ADDs
	failed int
	peak   float64
}

// bound says what the ADDs of a herd spent their time on.
func (c herdCost) bound() string {
	s := func(d time.Duration) string { return short(d.Seconds()) }
	return fmt.Sprintf("During the %s s of our ADDs %.0f %% of the machine's CPU was in use: ovs-vswitchd used %s s, the processes "+
		"of Flannel and portmap %s s, those of our plugin %s s, our agent %s s.",
		s(c.add), 100*c.inUse, s(c.vswitchd), s(c.before), s(c.plugins-c.before), s(c.daemon))
}

func (s *site) herd(sys *system) (c herdCost) {
	pods := make([]*lab.Pod, *herd)
	for i := range pods {
		pods[i] = s.pod(sys, herdNetworks)
	}
	if sys.daemon != nil {
		s.Must(resetPeak(sys.daemon.Pid()))
	}
	before := get[time.Duration](s.T)(cpuOf(s.node.VSwitchd.Pid()))
	var failed atomic.Int64
	daemon := s.daemonCPU(sys)
	used, all := cpuTime()
	s.node.ForgetRuns()
	c.add = s.atOnce(pods, func(p *lab.Pod) {
		if _, err := p.Add(s.Ctx, sys.opts...); err != nil && failed.Add(1) == 1 {
			s.T.Logf("%s: the first failed ADD: %v", sys.name, err)
		}
	})
	c.vswitchd = get[time.Duration](s.T)(cpuOf(s.node.VSwitchd.Pid())) - before
	usedAfter, allAfter := cpuTime()
	c.inUse, c.daemon = (usedAfter-used)/max(1, allAfter-all), s.daemonCPU(sys)-daemon
	runs := chainOf(s.node.Runs())
	c.plugins, c.before = runs.ours.cpu+runs.before.cpu, runs.before.cpu
	c.del = s.atOnce(pods, func(p *lab.Pod) {
		if err := p.Del(s.Ctx, sys.opts...); err != nil {
			s.T.Errorf("%s: DEL: %v", sys.name, err)
		}
	})
	if sys.daemon != nil {
		c.peak = get[float64](s.T)(peak(sys.daemon.Pid()))
	}
	c.failed = int(failed.Load())
	for _, p := range pods {
		s.deleted(sys, p) // otherwise its address is missing in the next herd
		s.gone(p)
	}
	return c
}

func (s *site) atOnce(pods []*lab.Pod, do func(*lab.Pod)) time.Duration {
	return stopwatch(func() {
		var all errgroup.Group
		for _, p := range pods {
			all.Go(func() error {
				do(p)
				return nil
			})
		}
		s.Must(all.Wait())
	})
}
