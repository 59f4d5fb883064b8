package agent

import (
	"encoding/json"
	"errors"
	"net"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/conf"
)

// TestRefusals are the answers to requests that cannot be served.
func TestRefusals(t *testing.T) {
	r := newRig(t)
	r.start()
	for _, c := range []struct {
		name string
		req  agentapi.Request
		code uint
		word string
	}{
		{"newer protocol", agentapi.Request{Version: 99, Op: agentapi.OpPlan}, conf.CodeTryAgain, "version 99"},
		{"unknown operation", agentapi.Request{Version: agentapi.Version, Op: "dance"}, conf.CodeTryAgain, `"dance"`},
		{"no body", agentapi.Request{Version: agentapi.Version, Op: agentapi.OpBind, Body: json.RawMessage(`[]`)}, conf.CodeDecoding, "bind"},
		{"unknown pod", agentapi.Request{Version: agentapi.Version, Op: agentapi.OpPlan, Body: json.RawMessage(`{"containerID":"c9","namespace":"shop","pod":"gone"}`)}, conf.CodePodGone, "shop/gone"},
		{"another UID", agentapi.Request{Version: agentapi.Version, Op: agentapi.OpPlan, Body: json.RawMessage(`{"containerID":"c9","namespace":"shop","pod":"web","uid":"u-0"}`)}, conf.CodePodGone, "another one"},
	} {
		t.Run(c.name, func(t *testing.T) {
			conn, err := net.Dial("unix", r.conf.Socket)
			r.must(err)
			defer conn.Close()
			r.must(agentapi.Write(conn, c.req))
			var answer agentapi.Response
			r.must(agentapi.NewReader(conn).Read(&answer))
			if answer.Error == nil || answer.Error.Code != c.code || !strings.Contains(answer.Error.Msg, c.word) {
				t.Errorf("answer %+v, want code %d and %q", answer.Error, c.code, c.word)
			}
		})
	}
	if got := r.ports(); len(got) != 0 {
		t.Errorf("ports %v were made", got)
	}
}

// TestPanicIsAnError: one broken request does not end the agent.
// Conformance: F-21
func TestPanicIsAnError(t *testing.T) {
	r := newRig(t)
	r.start()
	r.source.panics = true
	_, err := r.plan("c1")
	if !conf.HasCode(err, conf.CodeInternal) || !strings.Contains(err.Error(), "panic") {
		t.Errorf("got %v", err)
	}
	r.source.panics = false
	if _, err := r.plan("c1"); err != nil {
		t.Errorf("after it: %v", err)
	}
	r.eventually("counted", func() bool { // the answer comes first
		return testutil.ToFloat64(r.agent.metrics.requests.WithLabelValues("plan", "999")) == 1
	})
}

// TestSocket is for root alone, has one agent, and is taken over from one that is dead.
func TestSocket(t *testing.T) {
	r := newRig(t)
	// What an agent that was killed leaves.
	old, err := net.ListenUnix("unix", &net.UnixAddr{Name: r.conf.Socket, Net: "unix"})
	r.must(err)
	old.SetUnlinkOnClose(false)
	r.must(old.Close())
	r.start()
	info, err := os.Stat(r.conf.Socket)
	r.must(err)
	if info.Mode().Perm() != 0o600 {
		t.Errorf("socket has mode %v", info.Mode())
	}
	if _, err := listen(r.conf.Socket); err == nil || !strings.Contains(err.Error(), "another agent") {
		t.Errorf("a second agent got the socket: %v", err)
	}
}

// TestNothingRunsOn: the end of an agent is the end of all that it started.
func TestNothingRunsOn(t *testing.T) {
	r := newRig(t)
	before := runtime.NumGoroutine()
	for range 3 {
		r.start()
		if _, err := r.plan("c1"); err != nil {
			t.Fatal(err)
		}
		conn, err := net.Dial("unix", r.conf.Socket) // a plugin that hangs must not hold the agent
		r.must(err)
		defer conn.Close()
		r.must(r.stop())
	}
	r.eventually("as many goroutines as before", func() bool { return runtime.NumGoroutine() <= before })
}

// TestNotReadyWithoutBridge: STATUS is not to say yes before the node can take ports.
func TestNotReadyWithoutBridge(t *testing.T) {
	r := newRig(t)
	r.ovs.VSCtl("--no-wait", "del-br", "br-int")
	ready := make(chan struct{})
	go func() {
		defer close(ready)
		r.eventually("serving", func() bool { return exists(r.conf.Socket) })
		_, err := r.plan("c1")
		if !conf.HasCode(err, conf.CodeTryAgain) || !strings.Contains(err.Error(), "br-int") {
			t.Errorf("a plan without the bridge: %v", err)
		}
		if exists(agentapi.ReadyMarker(r.conf.Socket)) {
			t.Error("marked as ready without the bridge")
		}
		r.ovs.VSCtl("--no-wait", "add-br", "br-int")
	}()
	r.start() // returns once ready
	<-ready
	if _, err := r.plan("c1"); err != nil && !errors.Is(err, agentapi.ErrClean) {
		t.Error(err)
	}
}
