package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
)

// TestClean: a plugin that hears of a clean plan asks for no release.
func TestClean(t *testing.T) {
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for _, tt := range []struct {
		name string
		ctx  context.Context
		err  error
		want bool
	}{
		{"refused before anything is written", t.Context(), netmodel.ErrNotFound, true},
		{"the database's word is missing", t.Context(), fmt.Errorf("plan: %w", ovndb.ErrUnknownOutcome), false},
		{"the ports were written while NB was replaced", t.Context(), fmt.Errorf("plan: %w", &ovndb.Replaced{}), false},
		{"the time was over", over, netmodel.ErrNotFound, false},
		{"the answer was too large, and the release failed", t.Context(),
			errors.Join(conf.Errorf(conf.CodeInvalidConfig, "", "%w: %w", errNotSent, agentapi.ErrTooLarge), errors.New("no database")), false},
	} {
		if got := clean(tt.ctx, tt.err); got != tt.want {
			t.Errorf("%s: clean is %t, want %t", tt.name, got, tt.want)
		}
	}
}

// TestPluginGoneBeforeItsPlan: nobody else knows of the ports, so the agent releases them.
func TestPluginGoneBeforeItsPlan(t *testing.T) {
	r := newRig(t)
	r.start()
	conn, err := net.Dial("unix", r.conf.Socket)
	r.must(err)
	// The ports are written after the plugin has gone.
	r.proxy.Before(func(tr ovndbtest.Transact) {
		if tr.Writes {
			_ = conn.Close()
		}
	})
	body, err := json.Marshal(agentapi.PlanRequest{Sandbox: r.sandbox("c1"), Annotations: map[string]string{conf.NetworksAnnotation: "blue"}})
	r.must(err)
	r.must(agentapi.Write(conn, agentapi.Request{Version: agentapi.Version, Op: agentapi.OpPlan, Body: body}))
	r.eventually("released", func() bool { c := r.proxy.Counts(); return c.Committed >= 1 && len(r.ports()) == 0 })
}
