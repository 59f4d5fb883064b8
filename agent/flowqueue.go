package agent

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/ovn-multinet/ovn-multinet/conf"
)

// How many pods have new OVS ports without flows at a time. ovn-controller installs the flows of all ports that it
// finds in one pass, and reports none of them before the end of the pass: with 480 ports at once, the first flows were
// reported after 12 s. Each pass of ovn-controller and of ovs-vswitchd looks at all ports of the node, so the fewer
// passes, the less work. So pods that have to wait because maxPodsAtFlows others have no flows are admitted in waves:
// the next one when all pods of the present one have their flows. A pod that gets no flows holds nobody back: the wave
// is over stragglerTime after the last pod has got its flows, and waveTime after its begin if none has.
const (
	maxPodsAtFlows = 16
	podsOfAWave    = 64
	waveTime       = 10 * time.Second
	stragglerTime  = 2 * time.Second
)

// flowQueue lets some pods at a time have OVS ports without flows. The other pods wait, first come, first served.
type flowQueue struct {
	places, wave int           // how many pods are admitted one by one, and together
	patience     time.Duration // how long a pod waits while no flows of any pod are installed

	mu        sync.Mutex
	taken     int           // pods that have a place
	timer     *time.Timer   // of the present wave; nil while nobody waits
	late      bool          // the wave is over, and some of it have no flows: pods that wait are admitted one by one
	waiting   []*flowWaiter // in their order
	installed int           // pods whose flows were installed
	moved     time.Time     // when the last of them was
}

type flowWaiter struct {
	admitted chan struct{} // closed when the pod has its place
	arrived  time.Time
	before   int // the queue's installed at the arrival
}

func newFlowQueue(places, wave int, patience time.Duration) *flowQueue {
	return &flowQueue{places: places, wave: wave, patience: patience}
}

// enter waits for a place. giveBack gives the place back and says whether flows were installed; only the first call has
// an effect. While the flows of other pods are installed, a pod waits until the end of ctx. Otherwise it waits for the
// queue's patience.
func (q *flowQueue) enter(ctx context.Context) (giveBack func(installed bool), err error) {
	w := q.push()
	timer := time.NewTimer(q.patience)
	defer timer.Stop()
	for {
		select {
		case <-w.admitted:
			var once sync.Once
			return func(installed bool) { once.Do(func() { q.giveBack(installed) }) }, nil
		case <-ctx.Done():
			if place, ok := q.remove(w); ok {
				return nil, q.endOfTime(w, place, ctx.Err())
			}
			q.giveBack(false) // it has just got its place
			return nil, ctx.Err()
		case <-timer.C:
			rest := q.patience - q.idle(w)
			if rest > 0 {
				timer.Reset(rest)
			} else if place, ok := q.remove(w); ok {
				return nil, q.standstill(w, place)
			}
		}
	}
}

func (q *flowQueue) push() *flowWaiter {
	q.mu.Lock()
	defer q.mu.Unlock()
	w := &flowWaiter{admitted: make(chan struct{}), arrived: time.Now(), before: q.installed}
	q.waiting = append(q.waiting, w)
	q.admit()
	return w
}

// admit gives places to the first pods that wait. It needs the lock.
func (q *flowQueue) admit() {
	most := q.places
	switch {
	case q.timer == nil: // nobody has waited
	case q.taken == 0:
		q.late, most = false, q.wave
		q.timer.Reset(waveTime)
	case !q.late:
		return
	}
	for q.taken < most && len(q.waiting) > 0 {
		close(q.waiting[0].admitted)
		q.waiting = q.waiting[1:]
		q.taken++
	}
	if len(q.waiting) == 0 {
		q.nobodyWaits()
	} else if q.timer == nil {
		q.timer = time.AfterFunc(waveTime, q.endWave)
	}
}

func (q *flowQueue) nobodyWaits() {
	if q.timer != nil {
		q.timer.Stop()
	}
	q.timer, q.late = nil, false
}

// endWave is the end of a wave's time.
func (q *flowQueue) endWave() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.timer != nil {
		q.late = true
		q.admit()
	}
}

func (q *flowQueue) giveBack(installed bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if installed {
		q.installed++
		q.moved = time.Now()
		if q.timer != nil && !q.late {
			q.timer.Reset(stragglerTime)
		}
	}
	q.taken--
	q.admit()
}

// idle is how long no flows of any pod were installed while the pod waited.
func (q *flowQueue) idle(w *flowWaiter) time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.moved.After(w.arrived) {
		return time.Since(q.moved)
	}
	return time.Since(w.arrived)
}

// remove removes a pod from the queue, and returns the place that the pod had; false: the pod has been admitted.
func (q *flowQueue) remove(w *flowWaiter) (place int, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := slices.Index(q.waiting, w)
	if i >= 0 {
		q.waiting = slices.Delete(q.waiting, i, i+1)
		if len(q.waiting) == 0 {
			q.nobodyWaits()
		}
	}
	return i + 1, i >= 0
}

// standstill is the error of a pod that waited while no flows of any pod were installed.
func (q *flowQueue) standstill(w *flowWaiter, place int) error {
	return conf.Errorf(conf.CodeNoFlows,
		"is ovn-controller running on this node and connected to the Southbound database?",
		"%s; no flows of any pod were installed for %v", w.waited(place), q.patience)
}

// endOfTime is the error of a pod whose request ended while it waited.
func (q *flowQueue) endOfTime(w *flowWaiter, place int, err error) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return conf.Errorf(conf.CodeTryAgain, "the node starts many pods at once; the runtime repeats the ADD",
		"%s; %d pods got their flows meanwhile: %w", w.waited(place), q.installed-w.before, err)
}

func (w *flowWaiter) waited(place int) string {
	return fmt.Sprintf("the pod waited %v until other pods of the node have their flows, at last at place %d of the queue",
		time.Since(w.arrived).Round(time.Second), place)
}
