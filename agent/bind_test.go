package agent

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/conf"
)

// Nobody waits for the flows of a pod that is gone: there is no ovn-controller here, so they never come.
func TestBindEndsWithThePod(t *testing.T) {
	for _, tt := range []struct {
		name   string
		before bool // the pod is gone before the wait begins
	}{{"while it waits", false}, {"before it waits", true}} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t)
			r.start()
			p, err := r.plan("c1")
			r.must(err)
			r.source.ends = tt.before
			bound := make(chan error, 1)
			go func() {
				primary := json.RawMessage(`{"cniVersion":"1.0.0"}`)
				bound <- r.call(agentapi.OpBind, agentapi.BindRequest{Sandbox: r.sandbox("c1"), Plan: *p, Primary: primary}, nil)
			}()
			if !tt.before {
				r.eventually("waiting", r.source.waiting)
				r.source.end()
			}
			err = <-bound
			if !conf.HasCode(err, conf.CodePodGone) || !strings.Contains(err.Error(), "pod shop/web is") {
				t.Errorf("got %v, want code %d", err, conf.CodePodGone)
			}
			if status, events := r.source.told(); status != "" || len(events) > 0 {
				t.Errorf("the pod has status %s and events %q", status, events)
			}
			if r.source.waiting() {
				t.Error("it waits for the end of the pod still")
			}
		})
	}
}
