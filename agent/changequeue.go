package agent

import (
	"context"
	"encoding/json"
	"io"
	"time"

	"golang.org/x/time/rate"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
)

// What the pods of a node may change of their networks while they run. An annotation that is edited more often counts
// by its last value.
const (
	// A pod has changesOfPod changes at once, and then one in each changePeriodOfPod.
	changesOfPod      = 10
	changePeriodOfPod = 2 * time.Second
	// The pods of a namespace together on one node.
	changesOfNamespace      = 64
	changePeriodOfNamespace = 100 * time.Millisecond
	// inspectPasses is how many reconcile passes are between two inspections of a pod's interfaces.
	inspectPasses = 10
	// firstPause is the pause before a failed change is tried again. It doubles with each further failure.
	firstPause, longestPause = time.Second, 30 * time.Second
	// comparePause is the pause before a pod is compared again whose sandbox a call of the plugin holds, or whose turn has
	// not come.
	comparePause = 300 * time.Millisecond
	// answered is how long the plugin may take until it holds the lock of the sandbox that it was run for.
	answered = 10 * time.Second
)

// changeLimits are the limits of pods and namespaces.
type changeLimits struct {
	pods, namespaces map[string]*rate.Limiter
}

func newChangeLimits() *changeLimits {
	return &changeLimits{pods: map[string]*rate.Limiter{}, namespaces: map[string]*rate.Limiter{}}
}

// allow reports whether the pod may change now. A change that the namespace may not make costs the pod nothing.
func (l *changeLimits) allow(now time.Time, pod, namespace string) bool {
	ofPod := limiter(l.pods, pod, changePeriodOfPod, changesOfPod)
	if ofPod.TokensAt(now) < 1 {
		return false
	}
	return limiter(l.namespaces, namespace, changePeriodOfNamespace, changesOfNamespace).AllowN(now, 1) &&
		ofPod.AllowN(now, 1)
}

func limiter(all map[string]*rate.Limiter, key string, period time.Duration, burst int) *rate.Limiter {
	if all[key] == nil {
		all[key] = rate.NewLimiter(rate.Every(period), burst)
	}
	return all[key]
}

// prune forgets the limits that are as they were at the begin.
func (l *changeLimits) prune(now time.Time) {
	for _, all := range []map[string]*rate.Limiter{l.pods, l.namespaces} {
		for key, one := range all {
			if one.TokensAt(now) >= float64(one.Burst()) {
				delete(all, key)
			}
		}
	}
}

// pauseAfter is the pause after so many failures in a row.
func pauseAfter(failures int) time.Duration {
	return min(longestPause, firstPause<<min(max(failures-1, 0), 6))
}

// queue puts a pod into the queue that has these attachments now, unless it or its namespace has changed too often.
func (c *changes) queue(p *podChange, pod *netmodel.Pod, has []agentapi.Attachment) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	switch {
	case p.queued && c.programLives(now): // all workers of the program are busy
		p.due = now.Add(answered)
	case p.queued: // since answered ago
		c.tell(p, pod, "FailedAddingInterface", conf.Errorf(conf.CodeTryAgain, "does the pod of the DaemonSet attach run on "+
			"this node?", "the node's program ovn-multinet-attach does not ask for changes"))
	case !c.limits.allow(now, podID(pod), pod.Namespace):
		p.due = now.Add(comparePause)
	default:
		if p.failures == 0 {
			p.had = has
		}
		p.given = agentapi.Sandbox{Namespace: pod.Namespace, Pod: pod.Name, UID: pod.UID}
		if p.sandbox != nil {
			p.given = *p.sandbox
		}
		p.queued, p.due = true, now.Add(answered)
		c.ready = append(c.ready, p)
		signal(c.there)
	}
}

// programLives reports whether the program has asked for a pod lately, or has one. It needs the lock.
func (c *changes) programLives(now time.Time) bool {
	for _, p := range c.pods {
		if !p.handed.IsZero() {
			return true
		}
	}
	return now.Sub(c.asked) < answered
}

// next waits for a pod that is to be changed; nil: there was none until the end of ctx.
func (c *changes) next(ctx context.Context) *agentapi.Sandbox {
	for {
		c.mu.Lock()
		c.asked = time.Now()
		if len(c.ready) > 0 {
			p := c.ready[0]
			c.ready = c.ready[1:]
			if len(c.ready) > 0 {
				signal(c.there)
			}
			p.queued, p.handed = false, time.Now()
			p.due = p.handed.Add(answered)
			sandbox := p.given
			c.mu.Unlock()
			return &sandbox
		}
		c.mu.Unlock()
		select {
		case <-ctx.Done():
			return nil
		case <-c.there:
		}
	}
}

// ended notes how the plugin's run for a sandbox ended.
func (c *changes) ended(end *agentapi.ChangeEnded) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.pods {
		if p.given == end.Sandbox && !p.queued {
			p.end, p.handed, p.due = end, time.Time{}, time.Now()
			signal(c.wake)
		}
	}
}

// answerNextChange notes how the last change of a program ended, and gives it the next sandbox.
func (a *Agent) answerNextChange(ctx context.Context, conn io.Writer, r *agentapi.Request) {
	ctx, cancel := context.WithTimeout(ctx, a.timeFor(r))
	defer cancel()
	answer := agentapi.Response{Version: agentapi.AnswerVersion(r.Version)}
	body := agentapi.NextChangeRequest{}
	err := agentapi.CheckVersion(r.Version)
	if err == nil {
		err = json.Unmarshal(r.Body, &body)
	}
	if err != nil {
		answer.Error = agentapi.NewError(err)
	} else {
		if body.Ended != nil {
			a.changes.ended(body.Ended)
		}
		answer.Body, _ = json.Marshal(agentapi.NextChange{Change: a.changes.next(ctx)})
	}
	_ = agentapi.Write(conn, answer) // a program that does not get a sandbox does not run the plugin: see takeDue
}
