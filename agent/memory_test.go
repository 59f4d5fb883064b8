package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
)

// bridgeOf is a configuration of another plugin of as many bytes.
func bridgeOf(size int) string {
	const text = `{"type":"bridge","note":""}`
	return strings.Replace(text, `"note":"`, `"note":"`+strings.Repeat("x", size-len(text)), 1)
}

// times is an annotation that names a network n times.
func times(n int, network string) string {
	return strings.TrimSuffix(strings.Repeat(network+",", n), ",")
}

// planSharing asks as a plugin of today does, and returns the number of the answer's bytes too.
func (r *rig) planSharing(ctx context.Context, id, networks string) (*agentapi.Plan, int, error) {
	var text json.RawMessage
	c := &agentapi.Client{Socket: r.conf.Socket, Patience: 10 * time.Second}
	defer c.Close()
	request := agentapi.PlanRequest{Sandbox: r.sandbox(id), Sharing: true, Annotations: map[string]string{conf.NetworksAnnotation: networks}}
	if err := c.Call(ctx, agentapi.OpPlan, request, &text); err != nil {
		return nil, 0, err
	}
	p := &agentapi.Plan{}
	return p, len(text), json.Unmarshal(text, p)
}

// A pod that names one NAD of 250 kB 64 times: its text is fetched once, and is in the plan once.
func TestBoundaryLargeNADNamedOften(t *testing.T) {
	const size = 250 << 10
	r := newRig(t)
	r.source.nads["big"] = testNAD{Config: bridgeOf(size)}
	r.start()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	p, bytes, err := r.planSharing(t.Context(), "c1", times(64, "big"))
	r.must(err)
	runtime.ReadMemStats(&after)
	t.Attr("boundary.bytes-per-plan", fmt.Sprint(bytes))
	// All that was ever allocated for it, by the plugin's side in this test too.
	allocated := after.TotalAlloc - before.TotalAlloc
	t.Attr("boundary.bytes-allocated-per-plan", fmt.Sprint(allocated))
	if allocated > 64*size {
		t.Errorf("%d bytes were allocated for a configuration of %d", allocated, size)
	}
	if len(p.Delegates) != 64 || bytes > size+20<<10 {
		t.Errorf("%d delegates in %d bytes", len(p.Delegates), bytes)
	}
	if len(r.source.fetched) != 1 {
		t.Errorf("fetched %q", r.source.fetched)
	}
	for i, d := range p.Delegates {
		if !json.Valid(d.Conflist) || len(d.Conflist) < size {
			t.Fatalf("delegate %d has a conflist of %d bytes", i, len(d.Conflist))
		}
	}
	// A second NAD is fetched too; a short one and OVN's are not. Nothing is kept for the next plan.
	r.source.nads["mid"], r.source.nads["low"] = testNAD{Config: bridgeOf(2000)}, testNAD{Config: bridgeOf(200)}
	r.source.fetched = nil
	_, _, err = r.planSharing(t.Context(), "c2", "big,blue,mid,low,big,mid")
	r.must(err)
	if got := strings.Join(r.source.fetched, " "); got != "shop/big shop/mid" {
		t.Errorf("fetched %s", got)
	}
}

// A plan that is made again, because a network is not in force as its NAD says, fetches no text a second time.
func TestBoundaryTextsAreFetchedOnceInAPlan(t *testing.T) {
	r := newRig(t)
	r.source.nads["big"] = testNAD{Config: bridgeOf(250 << 10)}
	r.source.nads["blue"] = testNAD{Config: strings.Replace(blue, "1400", "1300", 1)}
	r.start()
	p, _, err := r.planSharing(t.Context(), "c1", "big,blue")
	r.must(err)
	if len(p.Interfaces) != 1 || p.Interfaces[0].MTU != 1400 || len(r.source.fetched) != 1 {
		t.Errorf("interfaces %+v, fetched %q", p.Interfaces, r.source.fetched)
	}
}

// What is too large is refused with code 7, by its size and the bound, before ports are written and before a text is
// fetched that is over the bound.
func TestBoundaryPlansAreRefusedBySize(t *testing.T) {
	r := newRig(t)
	for _, name := range []string{"big", "biga", "bigb", "bigc", "bigd", "bige"} {
		r.source.nads[name] = testNAD{Config: bridgeOf(250 << 10)}
	}
	r.source.nads["huge"] = testNAD{Config: bridgeOf(1 << 20)}
	r.source.nads["ovn"] = testNAD{Config: `{"type":"ovn-multinet","subnets":"` + strings.Repeat("1", 20000) + `"}`}
	r.start()
	asked := 0
	r.proxy.Before(func(ovndbtest.Transact) { asked++ })
	sharing := func(networks string) func() error {
		return func() error { _, _, err := r.planSharing(t.Context(), "c1", networks); return err }
	}
	for _, tt := range []struct {
		name    string
		call    func() error
		want    string
		fetched int
	}{
		{"one over its bound", sharing("blue,huge"), "interface net2: network shop/huge: spec.config: 1048576 bytes are more than 262144", 0},
		{"five together", sharing("blue,biga,bigb,bigc,bigd,bige"),
			"interface net6: network shop/bige: the configurations of the pod's networks up to this one: 1280000 bytes are more than 1048576", 4},
		{"for a plugin that reads no shared conflist", func() error { _, err := r.planFor("c1", "blue,"+times(63, "big")); return err },
			"the plan for the pod's networks: 16", 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r.source.fetched = nil
			before := asked
			err := tt.call()
			code, msg, details := conf.Describe(err)
			if code != conf.CodeInvalidConfig || !strings.HasPrefix(msg, tt.want) || details == "" || !errors.Is(err, agentapi.ErrClean) {
				t.Errorf("got  %d %s (%s)\nwant 7 %s", code, msg, details, tt.want)
			}
			if len(r.source.fetched) != tt.fetched {
				t.Errorf("fetched %q, want %d", r.source.fetched, tt.fetched)
			}
			t.Attr("boundary.nb-requests-of-a-refused-plan", fmt.Sprint(asked-before))
		})
	}
	if got := r.proxy.Counts(); got.Committed != 0 || len(r.ports()) != 0 {
		t.Errorf("%d transactions wrote, ports %v", got.Committed, r.ports())
	}
	r.proxy.Before(nil)
	_, err := r.planFor("c1", "ovn")
	r.wantRefused(err, conf.CodeInvalidConfig, "network shop/ovn: spec.config: 20036 bytes are more than 16384")
	// A network that is in force stays what it was when its NAD becomes too large.
	r.source.nads["blue"] = testNAD{Config: r.source.nads["ovn"].Config}
	p, err := r.planFor("c2", "blue")
	r.must(err)
	if len(p.Interfaces) != 1 || p.Interfaces[0].MTU != 1400 {
		t.Errorf("plan %+v", p)
	}
}

// Pods that start at once: few plans with large configurations are made at a time, others wait, within their own
// time. Pods with small ones do not wait for them.
func TestBoundaryFewLargePlansAtOnce(t *testing.T) {
	const pods = 12
	r := newRig(t)
	r.source.nads["big"], r.source.nads["mid"] = testNAD{Config: bridgeOf(250 << 10)}, testNAD{Config: bridgeOf(2000)}
	gate, entered := make(chan struct{}), make(chan struct{}, 100)
	var mu sync.Mutex
	now, most := 0, 0
	count := func(n int) {
		mu.Lock()
		defer mu.Unlock()
		now += n
		most = max(most, now)
	}
	r.source.onFetch = func() {
		count(1)
		defer count(-1)
		entered <- struct{}{}
		<-gate
	}
	r.planTimeout = time.Hour // a machine may stall while the gate is shut
	r.start()
	ctx := context.WithoutCancel(t.Context())
	errs := make(chan error, pods)
	for i := range pods {
		go func() {
			_, _, err := r.planSharing(ctx, fmt.Sprint("c", i), times(4, "big"))
			errs <- err
		}()
	}
	for range maxLarge {
		<-entered
	}
	// One of ordinary size is fetched all the same.
	small := make(chan error, 1)
	go func() {
		_, _, err := r.planSharing(ctx, "small", times(4, "mid"))
		small <- err
	}()
	<-entered
	// One whose time is over says what it waits for.
	over, cancel := context.WithCancel(ctx)
	cancel()
	late := &agentapi.PlanRequest{Sandbox: r.sandbox("late"), Annotations: map[string]string{conf.NetworksAnnotation: "big"}}
	if _, err := r.agent.makePlan(over, late, newPlanNADs(r.agent)); !conf.HasCode(err, conf.CodeTryAgain) ||
		!strings.Contains(err.Error(), "network shop/big: 4 other pods of this node have networks with large configurations") {
		t.Errorf("a plan that waits for its time: %v", err)
	}
	close(gate)
	r.must(<-small)
	for range pods {
		r.must(<-errs)
	}
	t.Attr("boundary.large-plans-at-once", fmt.Sprint(most-1)) // without the one of ordinary size
	if most != maxLarge+1 {
		t.Errorf("%d plans had their texts at once, want %d and the one of ordinary size", most, maxLarge)
	}
}

// A configuration that grew since the source heard of it counts as what it is now: the plan is a large one.
func TestBoundaryGrownConfigurationIsLarge(t *testing.T) {
	r := newRig(t)
	r.source.nads["grown"], r.source.nads["mid"] = testNAD{Config: bridgeOf(2000)}, testNAD{Config: bridgeOf(2001)}
	r.source.newer = map[string]string{"grown": bridgeOf(250 << 10)}
	var free []bool
	r.source.onFetch = func() {
		is := r.agent.large.TryAcquire(maxLarge)
		if is {
			r.agent.large.Release(maxLarge)
		}
		free = append(free, is)
	}
	r.start()
	_, _, err := r.planSharing(t.Context(), "c1", "grown,mid")
	r.must(err)
	if want := []bool{true, false}; !slices.Equal(free, want) {
		t.Errorf("at its fetches all turns of large plans are free: %v, want %v", free, want)
	}
}

// A plugin that goes away while its plan waits gives its turn back.
func TestBoundaryWaitingPlansEndWithTheirPlugin(t *testing.T) {
	r := newRig(t)
	r.source.nads["big"] = testNAD{Config: bridgeOf(250 << 10)}
	r.start()
	r.must(r.agent.large.Acquire(t.Context(), maxLarge))
	conn, err := net.Dial("unix", r.conf.Socket)
	r.must(err)
	body, err := json.Marshal(agentapi.PlanRequest{Sandbox: r.sandbox("c1"), Sharing: true, Annotations: map[string]string{conf.NetworksAnnotation: "big"}})
	r.must(err)
	r.must(agentapi.Write(conn, agentapi.Request{Version: agentapi.Version, Op: agentapi.OpPlan, Body: body}))
	r.eventually("waiting", func() bool { return r.agent.sandboxes.usersOf("c1") == 1 })
	r.must(conn.Close())
	r.eventually("ended", func() bool { return r.agent.sandboxes.usersOf("c1") == 0 })
	r.agent.large.Release(maxLarge)
	_, _, err = r.planSharing(t.Context(), "c1", "big")
	r.must(err)
	r.eventually("done", func() bool { return r.agent.sandboxes.usersOf("c1") == 0 })
	if !r.agent.large.TryAcquire(maxLarge) {
		t.Error("a plan that ended still has its turn")
	}
}

// What the controller says against a network may be a tenant's words: it is one short line of the pod's error.
func TestBoundaryRefusalIsShort(t *testing.T) {
	r := newRig(t)
	state, err := json.Marshal(netmodel.NetworkState{Reason: "no\n\x1b[2J" + strings.Repeat("y", 5000)})
	r.must(err)
	r.source.nads["new"] = testNAD{Config: blue, State: string(state)}
	r.start()
	_, err = r.planFor("c1", "new")
	if msg := fmt.Sprint(err); !strings.Contains(msg, "refused: no ?[2Jyyy") || len(msg) > conf.MaxMessage || strings.ContainsAny(msg, "\n\x1b") {
		t.Errorf("%d bytes: %.300q", len(msg), msg)
	}
	for line := range strings.Lines(r.log.String()) {
		if len(line) > conf.MaxMessage+500 {
			t.Errorf("a line of %d bytes in the log: %.300q", len(line), line)
		}
	}
}
