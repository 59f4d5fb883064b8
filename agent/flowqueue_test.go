package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
)

// queued is a pod in a queue, in a bubble of synctest.
type queued struct {
	giveBack func(installed bool) // nil: it has no place
	err      error
	cancel   context.CancelFunc
	ended    chan queued
}

// now reads what the wait of the pod has given so far.
func (p *queued) now() *queued {
	synctest.Wait()
	select {
	case end := <-p.ended:
		p.giveBack, p.err = end.giveBack, end.err
	default:
	}
	return p
}

func enter(t *testing.T, q *flowQueue, limit time.Duration) *queued {
	p := &queued{ended: make(chan queued, 1)}
	var ctx context.Context
	ctx, p.cancel = context.WithTimeout(t.Context(), limit)
	t.Cleanup(p.cancel)
	go func() {
		giveBack, err := q.enter(ctx)
		p.ended <- queued{giveBack: giveBack, err: err}
	}()
	return p.now()
}

// admitted lists the pods that have a place.
func admitted(pods []*queued) (indexes []int) {
	for i, p := range pods {
		if p.now().giveBack != nil {
			indexes = append(indexes, i)
		}
	}
	return indexes
}

// TestFlowQueueOrder: pods get their places in the order of their arrival. Those that have to wait come in waves. A pod
// that goes away before makes room for the next.
func TestFlowQueueOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newFlowQueue(2, 3, 30*time.Second)
		var pods []*queued
		for range 9 {
			pods = append(pods, enter(t, q, time.Hour))
		}
		wantPlaces := func(what string, want ...int) {
			t.Helper()
			if got := admitted(pods); !slices.Equal(got, want) {
				t.Errorf("%s: places of %v, want %v", what, got, want)
			}
		}
		wantPlaces("at first", 0, 1)
		pods[1].giveBack(true)
		wantPlaces("the second leaves", 0, 1)
		pods[1].giveBack(true) // again
		wantPlaces("only the first call counts", 0, 1)
		pods[3].cancel()
		wantPlaces("one that waits goes", 0, 1)
		pods[5].cancel()
		wantPlaces("another one goes", 0, 1)
		for i, place := range map[int]string{3: "place 2 of", 5: "place 3 of"} {
			if err := pods[i].err; !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), place) {
				t.Errorf("pod %d: %v, want %q", i, err, place)
			}
		}
		pods[0].giveBack(false)
		wantPlaces("the first one fails: all have left", 0, 1, 2, 4, 6)
		pods[2].giveBack(true)
		pods[4].giveBack(true)
		wantPlaces("one of the wave has no flows yet", 0, 1, 2, 4, 6)
		time.Sleep(stragglerTime - time.Millisecond)
		wantPlaces("a moment before the wave is over", 0, 1, 2, 4, 6)
		time.Sleep(time.Millisecond)
		wantPlaces("it holds a place, and nobody back", 0, 1, 2, 4, 6, 7)
		pods[7].giveBack(true)
		wantPlaces("one by one", 0, 1, 2, 4, 6, 7, 8)
		pods[6].giveBack(true)
		pods[8].giveBack(true)
		pods = append(pods, enter(t, q, time.Hour), enter(t, q, time.Hour))
		wantPlaces("nobody waits any more", 0, 1, 2, 4, 6, 7, 8, 9, 10)
		pods = append(pods, enter(t, q, time.Hour))
		pods[11].cancel()
		wantPlaces("the only one that waits goes", 0, 1, 2, 4, 6, 7, 8, 9, 10)
		pods[9].giveBack(true)
		pods = append(pods, enter(t, q, time.Hour))
		wantPlaces("another one comes", 0, 1, 2, 4, 6, 7, 8, 9, 10, 12)
		pods[10].giveBack(true)
		pods[12].giveBack(true)
		if len(q.waiting) != 0 || q.taken != 0 || q.installed != 9 || q.timer != nil {
			t.Errorf("in the end %d wait, %d places are taken, and %d got flows", len(q.waiting), q.taken, q.installed)
		}
	})
}

// TestFlowQueueSlowWave: as long as no pod of a wave has its flows, the next wave waits longer.
func TestFlowQueueSlowWave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newFlowQueue(2, 2, 30*time.Second)
		var pods []*queued
		for range 5 {
			pods = append(pods, enter(t, q, time.Hour))
		}
		for _, step := range []struct {
			after time.Duration
			ends  int // the pod that gets its flows; 0: none
			want  int
		}{
			{waveTime - time.Millisecond, 1, 2}, {stragglerTime - time.Millisecond, 0, 2}, {time.Millisecond, 0, 3},
			{0, 2, 4}, {waveTime, 0, 4}, {0, 3, 5},
		} {
			time.Sleep(step.after)
			if step.ends > 0 {
				pods[step.ends].now().giveBack(true)
			}
			if got := admitted(pods); len(got) != step.want {
				t.Errorf("%+v: places of %v", step, got)
			}
		}
	})
}

// While flows are installed, a pod waits as long as its request lasts. When none are installed for the time of one pod,
// it fails, and says at which place.
func TestFlowQueuePatience(t *testing.T) {
	t.Run("it moves", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			q := newFlowQueue(1, 1, 30*time.Second)
			pods := []*queued{enter(t, q, time.Hour)}
			for range 20 {
				pods = append(pods, enter(t, q, time.Hour))
			}
			for i := range 20 {
				time.Sleep(29 * time.Second)
				pods[i].now().giveBack(true)
			}
			if got := admitted(pods); len(got) != 21 {
				t.Errorf("after %v places of %v, want all", 20*29*time.Second, got)
			}
		})
	})
	t.Run("it stands still", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			q := newFlowQueue(1, 1, 30*time.Second)
			first, second, third := enter(t, q, time.Hour), enter(t, q, time.Hour), enter(t, q, time.Hour)
			time.Sleep(20 * time.Second)
			first.giveBack(true)
			synctest.Wait()
			time.Sleep(29 * time.Second)
			if second.now().giveBack == nil || third.now().err != nil {
				t.Errorf("the second has no place, or the third fails: %v", third.err)
			}
			time.Sleep(2 * time.Second)
			if err := third.now().err; !conf.HasCode(err, conf.CodeNoFlows) || !strings.Contains(err.Error(), "waited 50s") ||
				!strings.Contains(err.Error(), "place 1 of") || !strings.Contains(err.Error(), "for 30s") {
				t.Errorf("got %v, want code %d", err, conf.CodeNoFlows)
			}
		})
	})
	t.Run("its time is over", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			q := newFlowQueue(1, 1, 30*time.Second)
			first, second, third := enter(t, q, time.Hour), enter(t, q, time.Hour), enter(t, q, 40*time.Second)
			time.Sleep(20 * time.Second)
			first.giveBack(true)
			time.Sleep(21 * time.Second)
			if err := third.now().err; !conf.HasCode(err, conf.CodeTryAgain) || !errors.Is(err, context.DeadlineExceeded) ||
				!strings.Contains(err.Error(), "; 1 pods got their flows meanwhile") || second.now().giveBack == nil {
				t.Errorf("got %v, want code %d", err, conf.CodeTryAgain)
			}
		})
	})
}

// A node's agent adds the OVS ports of few pods at a time, in the order in which the pods come. A pod whose plugin ends
// leaves the queue. Real databases; the test stands in for ovn-controller, so that it decides when flows are installed.
func TestBindsWaitForEachOther(t *testing.T) {
	r := newRig(t)
	proxy := ovndbtest.StartProxy(t, r.ovs.Endpoint())
	r.conf.OVSSocket = proxy.Socket
	r.start()
	var added atomic.Int32 // pods whose OVS ports were added
	proxy.Before(func(tx ovndbtest.Transact) {
		if slices.ContainsFunc(tx.Ops, func(op ovndbtest.Op) bool { return op["op"] == "insert" && op["table"] == "Interface" }) {
			added.Add(1)
		}
	})
	const pods = maxPodsAtFlows + 4 // the last ones are a wave
	var binds []*queuedBind
	for i := range pods {
		binds = append(binds, r.bindPod(i))
		r.eventually("in the queue", func() bool {
			waiting, taken := r.agent.flows.state()
			return taken == min(i+1, maxPodsAtFlows) && waiting == i+1-taken
		})
	}
	r.eventually("added", func() bool { return added.Load() == maxPodsAtFlows })
	binds[maxPodsAtFlows+1].cancel()
	r.eventually("gone", func() bool { waiting, _ := r.agent.flows.state(); return waiting == 3 })
	if err := <-binds[maxPodsAtFlows+1].ended; err == nil {
		t.Error("a plugin that ended got an answer")
	}
	order := slices.Delete(slices.Collect(func(yield func(int) bool) {
		for i := range pods {
			if !yield(i) {
				return
			}
		}
	}), maxPodsAtFlows+1, maxPodsAtFlows+2)
	for n, i := range order {
		veth := agentapi.HostVeth(binds[i].sandbox, "net1")
		r.eventually(fmt.Sprintf("pod %d in Open vSwitch", i), func() bool { return r.inOVS(veth) })
		if got, want := int(added.Load()), min(maxPodsAtFlows+n, pods-1); got > want { // if the wave's time is over, one by one
			t.Errorf("the OVS ports of %d pods were added after %d pods had their flows, want %d", got, n, want)
		}
		r.ovs.VSCtl("--no-wait", "set", "Interface", veth, "external_ids:ovn-installed=true")
		r.must(<-binds[i].ended)
	}
	if waiting, taken := r.agent.flows.state(); waiting != 0 || taken != 0 {
		t.Errorf("in the end %d pods wait and %d have a place", waiting, taken)
	}
}

// state returns how many pods wait, and how many have a place.
func (q *flowQueue) state() (waiting, taken int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.waiting), q.taken
}

type queuedBind struct {
	sandbox string
	ended   chan error
	cancel  context.CancelFunc
}

// bindPod begins a bind of one interface, with a sandbox and a port of its own.
func (r *rig) bindPod(i int) *queuedBind {
	ctx, cancel := context.WithTimeout(r.t.Context(), 5*time.Minute)
	r.t.Cleanup(cancel)
	b := &queuedBind{sandbox: fmt.Sprint("q", i), ended: make(chan error, 1), cancel: cancel}
	c := &agentapi.Client{Socket: r.conf.Socket}
	plan := agentapi.Plan{Interfaces: []agentapi.Interface{{
		Name: "net1", Network: "shop/blue", MAC: "0a:58:0a:01:00:05", Port: agentapi.Port{Name: fmt.Sprintf("shop/web-%d/net1", i)},
	}}}
	go func() {
		b.ended <- c.Call(ctx, agentapi.OpBind, agentapi.BindRequest{
			Sandbox: r.sandbox(b.sandbox), Plan: plan, Primary: json.RawMessage(`{"cniVersion":"1.0.0"}`),
		}, nil)
	}()
	return b
}
