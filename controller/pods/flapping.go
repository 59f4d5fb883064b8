package pods

import (
	"time"
)

// A pod that keeps changing between ready and not ready makes OVN compute its Services, or the routes to it, again at
// each change. So a pod that has become ready freeReturns times within a short time counts as not ready for a while
// when it is ready again. This time doubles with each return, from firstWait to lastWait. It begins anew when the pod
// has been ready for steadyAfter.
const (
	freeReturns = 3
	firstWait   = 2 * time.Second
	lastWait    = time.Minute
	steadyAfter = 5 * time.Minute
)

// Flapping has the pods that a kind asks for, and how they have changed. Only the worker uses it.
type Flapping struct {
	now  func() time.Time
	pods map[string]*podChanges // by UID
}

// podChanges are the changes of one pod.
type podChanges struct {
	ready   bool      // as it counts
	since   time.Time // the time of the last change
	returns int       // how often it became ready
}

// NewFlapping returns a Flapping without pods.
func NewFlapping() *Flapping { return &Flapping{time.Now, map[string]*podChanges{}} }

// Ready reports whether a pod counts as ready. If not, and the pod is ready, wait is the time until it does. uid is the
// pod's, and more.
func (f *Flapping) Ready(uid string, is bool) (ready bool, wait time.Duration) {
	now := f.now()
	p := f.pods[uid]
	if p == nil {
		p = &podChanges{ready: is, since: now}
		f.pods[uid] = p
	}
	if p.ready && now.Sub(p.since) > steadyAfter {
		p.returns = 0
	}
	if is && !p.ready {
		if p.returns >= freeReturns {
			wait = min(firstWait<<(p.returns-freeReturns), lastWait) - now.Sub(p.since)
		}
		if wait > 0 {
			return false, wait
		}
		p.returns = min(p.returns+1, freeReturns+10)
	}
	if is != p.ready {
		p.ready, p.since = is, now
	}
	return is, 0
}

// Forget deletes the pods that have not changed for a while.
func (f *Flapping) Forget() {
	for uid, p := range f.pods {
		if f.now().Sub(p.since) > steadyAfter {
			delete(f.pods, uid)
		}
	}
}
