package agent

import (
	"testing"
	"time"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
)

// After a replacement, new ports wait for the agents of all nodes, and for this agent's own repair pass.
func TestNewPortsWaitForRepairs(t *testing.T) {
	var n newPorts
	may := func(what string, after time.Duration, want bool) {
		t.Helper()
		n.since = time.Now().Add(-after)
		if _, err := n.mayBegin(); (err == nil) != want {
			t.Errorf("%s, %v after the replacement: error %v", what, after, err)
		}
	}
	may("no replacement", 0, true)
	n.pause()
	may("nothing is repaired", newPortsPause, false)
	may("nothing is repaired", newPortsPauseLast/2, false)
	may("nothing is repaired", newPortsPauseLast, true)
	n.restored(0)
	may("a pass that began before has ended", newPortsPause, false)
	n.restored(1)
	may("repaired", newPortsPause/2, false)
	may("repaired", newPortsPause, true)
	n.pause()
	may("replaced again", newPortsPause, false)
}

// After NB was replaced, no pod gets new ports, neither early nor by its ADD. A pod whose ports were written while NB
// was replaced does not keep them.
func TestNewPortsAfterAReplacement(t *testing.T) {
	r := newRig(t)
	r.start()
	r.proxy.Before(func(tr ovndbtest.Transact) {
		if tr.Writes {
			r.proxy.Before(nil)
			r.agent.NBReplaced() // after the plan has begun, and before its ports are written
		}
	})
	wantRefused := func(what string) {
		t.Helper()
		if _, err := r.plan("c1"); !conf.HasCode(err, conf.CodeTryAgain) {
			t.Errorf("%s: error %v, want code %d", what, err, conf.CodeTryAgain)
		}
	}
	wantRefused("replaced during the plan")
	r.must(r.call(agentapi.OpRelease, agentapi.Release{Sandbox: r.sandbox("c1")}, nil)) // as the plugin does
	wantRefused("replaced")
	r.agent.PodBound(r.boundPod("blue"))
	r.earlyDone()
	r.wantPorts(map[string]string{})
	n := &r.agent.newPorts
	n.mu.Lock()
	n.since = n.since.Add(-newPortsPause)
	n.mu.Unlock()
	r.eventually("the agent's repair pass has ended", func() bool {
		_, err := r.plan("c1")
		return err == nil
	})
}
