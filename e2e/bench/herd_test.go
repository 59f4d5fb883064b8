//go:build bench

package bench

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

// herdNetworks is how many further networks each pod of the herd has.
const herdNetworks = 4

// TestHerd attaches many pods of one node at once.
func TestHerd(t *testing.T) {
	s := newSite(t)
	p := report(t, "30-herd", "A herd", fmt.Sprintf(`%d pods × %d networks on one node: all ADDs at once, then all DELs at
once. The time is that until the last one has ended; memory is the peak of the agent or of Multus' daemon. The ports of our pods
are ports of Open vSwitch with the userspace datapath, whose one main thread adds them; those of Multus are on a Linux bridge.`, *herd, herdNetworks))
	add, del := map[string][]float64{}, map[string][]float64{}
	for range max(1, *turns/10) {
		for _, sys := range s.systems {
			took := s.herd(sys)
			add[sys.name], del[sys.name] = append(add[sys.name], took.add.Seconds()), append(del[sys.name], took.del.Seconds())
			if sys.daemon != nil {
				p.Rows = append(p.Rows, Number(sys.name+", peak of memory", "MB", []float64{took.peak}, 0))
			}
			p.Rows = append(p.Rows, Number(sys.name+", failed ADDs", "", []float64{float64(took.failed)}, 0),
				Number(sys.name+", CPU of ovs-vswitchd during the ADDs", "s", []float64{took.vswitchd.Seconds()}, 0))
		}
	}
	us := s.systems[0].name
	for _, sys := range s.systems[1:] {
		p.Rows = append(p.Rows, Compare("all ADDs", "s", sys.name, add[us], add[sys.name], 0.2),
			Compare("all DELs", "s", sys.name, del[us], del[sys.name], 0))
	}
}

// herdCost is what one herd took.
type herdCost struct {
	add, del time.Duration
	vswitchd time.Duration // CPU time of ovs-vswitchd during the ADDs
	failed   int
	peak     float64
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
	c.add = s.atOnce(pods, func(p *lab.Pod) {
		if _, err := p.Add(s.Ctx, sys.opts...); err != nil && failed.Add(1) == 1 {
			s.T.Logf("%s: the first failed ADD: %v", sys.name, err)
		}
	})
	c.vswitchd = get[time.Duration](s.T)(cpuOf(s.node.VSwitchd.Pid())) - before
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
