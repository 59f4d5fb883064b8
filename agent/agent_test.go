package agent

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/journal"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
	"github.com/ovn-multinet/ovn-multinet/source"
)

// rig is an agent on a real NB and a real OVS database. There is no ovs-vswitchd and no ovn-controller behind them,
// so nothing is wired here: the lab does that.
type rig struct {
	t      *testing.T
	nb     *ovndbtest.Server
	ovs    *ovndbtest.Server
	proxy  *ovndbtest.Proxy // between the agent and NB
	source *pods
	conf   conf.Agent
	agent  *Agent
	log    logged
	stop   func() error // ends the agent; may be called twice

	cluster  string               // the agent's identity of the cluster; "": none
	registry *prometheus.Registry // of the agent's metrics
	passed   time.Duration        // by how much the reconcile passes' clock is ahead

	planTimeout time.Duration // the agent's; 0: as in a product
}

// logged is what the agent has logged.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// pods is a source with one pod, shop/web, and its networks, by name; at first shop/blue.
type pods struct {
	panics bool
	nads   map[string]testNAD

	onFetch func()            // called by LiveNAD; nil: nothing
	newer   map[string]string // configurations that only LiveNAD has yet

	mu      sync.Mutex
	gone    bool              // the pod is
	waits   map[string]func() // what WhenGone is to call, by the pod's UID
	ends    bool              // the pod ends while WhenGone is called
	checked bool              // Pod was called after WhenGone
	status  string            // what SetStatus was given last
	events  []string          // "<kind> <reason>: <message>"
	fetched []string          // what LiveNAD was asked for
}

// blue is the network shop/blue, as its NAD has it and as it is in force.
const blue = `{"type":"ovn-multinet","subnets":"10.1.0.0/24","mtu":1400}`

func (p *pods) Pod(_ context.Context, namespace, name, _ string) (*source.Pod, error) {
	if p.panics {
		panic("a source that is broken")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.checked = len(p.waits) > 0
	if namespace != "shop" || name != "web" || p.gone {
		return nil, source.ErrNotFound
	}
	return &source.Pod{Namespace: namespace, Name: name, UID: "u-1", NodeName: "node1"}, nil
}

func (p *pods) LivePod(ctx context.Context, namespace, name string) (*source.Pod, error) {
	return p.Pod(ctx, namespace, name, "")
}

func (p *pods) WhenGone(pod *source.Pod, call func()) (stop func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gone = p.ends; p.gone {
		return func() {}
	}
	p.waits = map[string]func(){pod.UID: call}
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.waits, pod.UID)
	}
}

// waiting tells whether a call waits for the end of the pod, which was there when the wait began.
func (p *pods) waiting() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.waits) > 0 && p.checked
}

// end deletes the pod.
func (p *pods) end() {
	p.mu.Lock()
	p.gone = true
	call := p.waits["u-1"]
	p.mu.Unlock()
	call()
}

func (p *pods) NAD(_ context.Context, namespace, name string) (*netmodel.NAD, error) {
	def, found := p.nads[name]
	if !found || namespace != "shop" {
		return nil, netmodel.ErrNotFound
	}
	return def.nad(namespace, name, def.Config, netmodel.KeptConfig), nil
}

// testNAD is a NAD as a test writes it.
type testNAD struct {
	Config, Resource, State string
	Deleting, HasFinalizer  bool
}

// nad is the NAD as a source reads it, with a text of at most keep bytes.
func (n testNAD) nad(namespace, name, config string, keep int) *netmodel.NAD {
	return &netmodel.NAD{
		Namespace: namespace, Name: name, Config: netmodel.ParseConfig(namespace, name, config, keep),
		Resource: n.Resource, State: n.State, Deleting: n.Deleting, HasFinalizer: n.HasFinalizer,
	}
}

// LiveNAD counts: an API server answers each time.
func (p *pods) LiveNAD(ctx context.Context, namespace, name string) (*netmodel.NAD, error) {
	p.mu.Lock()
	p.fetched = append(p.fetched, namespace+"/"+name)
	p.mu.Unlock()
	def, err := p.NAD(ctx, namespace, name)
	if err == nil {
		def = p.nads[name].nad(namespace, name, cmp.Or(p.newer[name], p.nads[name].Config), netmodel.MaxDelegateConfig)
	}
	if p.onFetch != nil {
		p.onFetch()
	}
	return def, err
}

func (p *pods) Pods(context.Context) ([]*source.Pod, error) { return nil, nil }

func (p *pods) SetStatus(_ context.Context, _ *source.Pod, status []byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.status = string(status)
	return nil
}

func (p *pods) Event(_ *source.Pod, kind source.EventKind, reason, message string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.events = append(p.events, fmt.Sprint(kind, " ", reason, ": ", message))
}

// told returns what was written and said about the pod.
func (p *pods) told() (status string, events []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.status, slices.Clone(p.events)
}

func (p *pods) Run(ctx context.Context) error { <-ctx.Done(); return nil }

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t, nb: ovndbtest.StartNB(t), ovs: ovndbtest.StartOVS(t), source: &pods{nads: map[string]testNAD{"blue": {Config: blue}}}}
	r.proxy = ovndbtest.StartProxy(t, r.nb.Endpoint())
	r.putSwitch("blue", blue)
	r.ovs.VSCtl("--no-wait", "add-br", "br-int", "--", "set", "Open_vSwitch", ".", "external_ids:system-id=chassis-1")
	dir := ovndbtest.TempDir(t)
	r.conf = conf.Agent{
		NodeName: "node1", Socket: filepath.Join(dir, "agent.sock"), StateDir: filepath.Join(dir, "state"),
		NB: conf.NB{Endpoints: []string{r.proxy.Endpoint()}}, OVSSocket: r.ovs.Socket, Bridge: "br-int", ReconcilePeriod: time.Hour,
	}
	return r
}

// saidKnown is what the agent logs when it has told NB of its node.
const saidKnown = "NB knows this node's chassis"

// build makes the agent, which does not run, with pods and networks of the source. close ends its connections.
func (r *rig) build(src Source) (close func()) {
	r.t.Helper()
	model, err := nb.FullDatabaseModel()
	r.must(err)
	c := ovndb.Config{
		Name: "NB", Endpoints: r.conf.NB.Endpoints, Model: model, Log: slog.New(slog.DiscardHandler),
	}
	if r.cluster != "" {
		c.Cluster = func(context.Context) (string, error) { return r.cluster, nil }
	}
	db, err := ovndb.Open(c)
	r.must(err)
	r.registry = prometheus.NewRegistry()
	r.agent, err = New(r.conf, src, db, r.registry, slog.New(slog.NewTextHandler(&r.log, nil)))
	r.must(err)
	r.agent.reconciler.stale.Now = func() time.Time { return time.Now().Add(r.passed) }
	return func() { r.agent.Close(); db.Close() }
}

// start runs the agent until the test's end, or until stop.
func (r *rig) start() {
	r.t.Helper()
	close := r.build(r.source)
	r.agent.planTimeout = cmp.Or(r.planTimeout, r.agent.planTimeout)
	known := strings.Count(r.log.String(), saidKnown)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.agent.Run(ctx) }()
	var once bool
	r.stop = func() error {
		if once {
			return nil
		}
		once = true
		cancel()
		err := <-ended
		close()
		return err
	}
	r.t.Cleanup(func() { r.must(r.stop()) })
	r.eventually("ready", func() bool { return exists(agentapi.ReadyMarker(r.conf.Socket)) })
	// What it says of its node, and its first look for what is gone, are not to be counted among what pods cost.
	r.eventually("looked", func() bool {
		return testutil.ToFloat64(r.agent.metrics.lastPass) > 0 || strings.Contains(r.log.String(), "delete what is stale")
	})
	r.eventually("known to NB", func() bool { return strings.Count(r.log.String(), saidKnown) > known })
	r.proxy.Reset()
}

// metric is the value of one that has no labels.
func (r *rig) metric(name string) float64 {
	r.t.Helper()
	families, err := r.registry.Gather()
	r.must(err)
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	r.t.Fatalf("there is no %s", name)
	return 0
}

func (r *rig) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) eventually(what string, is func() bool) {
	r.t.Helper()
	for giveUp := time.Now().Add(2 * time.Minute); !is(); {
		if time.Now().After(giveUp) {
			r.t.Fatalf("never %s", what)
		}
		runtime.Gosched()
	}
}

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
		{"the time was over", over, netmodel.ErrNotFound, false},
		{"the answer was too large, and the release failed", t.Context(),
			errors.Join(conf.Errorf(conf.CodeInvalidConfig, "", "%w: %w", errNotSent, agentapi.ErrTooLarge), errors.New("no database")), false},
	} {
		if got := clean(tt.ctx, tt.err); got != tt.want {
			t.Errorf("%s: clean is %t, want %t", tt.name, got, tt.want)
		}
	}
}

// usersOf is how many have a lock or wait for it.
func (l *locks) usersOf(what string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.taken[what]; e != nil {
		return e.users
	}
	return 0
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func (r *rig) sandbox(id string) agentapi.Sandbox {
	return agentapi.Sandbox{ContainerID: id, Interface: "eth0", Conflist: "cbr0", Namespace: "shop", Pod: "web", UID: "u-1"}
}

func (r *rig) call(op string, body, out any) error {
	c := &agentapi.Client{Socket: r.conf.Socket, Patience: 10 * time.Second}
	defer c.Close()
	ctx, cancel := context.WithTimeout(r.t.Context(), 2*time.Minute)
	defer cancel()
	return c.Call(ctx, op, body, out)
}

func (r *rig) plan(id string) (*agentapi.Plan, error) {
	return r.planFor(id, "blue,blue")
}

func (r *rig) planFor(id, networks string) (*agentapi.Plan, error) {
	return r.planBy(id, map[string]string{conf.NetworksAnnotation: networks})
}

func (r *rig) planBy(id string, annotations map[string]string) (*agentapi.Plan, error) {
	p := &agentapi.Plan{}
	err := r.call(agentapi.OpPlan, agentapi.PlanRequest{Sandbox: r.sandbox(id), Annotations: annotations}, p)
	return p, err
}

// ports lists the ports in NB with their sandboxes.
func (r *rig) ports() map[string]string {
	r.t.Helper()
	out := map[string]string{}
	for _, row := range r.nb.Dump(r.t, "Logical_Switch_Port") {
		ids, _ := row["external_ids"].(map[string]string)
		out[row["name"].(string)] = ids["ovn-multinet/sandbox"]
	}
	return out
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

// TestReleaseLeftBehind: what a DEL could not tell an agent is done at the agent's start.
func TestReleaseLeftBehind(t *testing.T) {
	r := newRig(t)
	r.start()
	p, err := r.plan("c1")
	r.must(err)
	if got := r.ports(); len(got) != 2 || got["shop/web/net1"] != "c1" {
		t.Fatalf("ports %v", got)
	}
	r.must(r.stop())
	release := agentapi.Release{Version: agentapi.Version, Sandbox: r.sandbox("c1"), Planned: true, Ports: []agentapi.Port{p.Interfaces[0].Port, p.Interfaces[1].Port}}
	for name, c := range map[string]struct{ file, text string }{
		"whole":   {"c1@eth0", string(marshal(t, release))},
		"damaged": {"c1@eth0", `{"version":1,"sand`},
	} {
		t.Run(name, func(t *testing.T) {
			r.t = t
			path := filepath.Join(r.conf.StateDir, journal.ReleaseDir, c.file)
			r.must(os.WriteFile(path, []byte(c.text), 0o600))
			r.start()
			r.eventually("released", func() bool { return len(r.ports()) == 0 && !exists(path) })
			_, err := r.plan("c1") // for the next round
			r.must(err)
			r.must(r.stop())
		})
	}
}

func marshal(t *testing.T, v any) []byte {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestReleaseWaitsForNB: a DEL is answered although NB hangs; the file stays until NB has agreed. A plan of the same
// sandbox in between must not lose its ports to the late release.
func TestReleaseWaitsForNB(t *testing.T) {
	r := newRig(t)
	r.start()
	p, err := r.plan("c1")
	r.must(err)
	path := filepath.Join(r.conf.StateDir, journal.ReleaseDir, "c1@eth0")
	release := agentapi.Release{Version: agentapi.Version, Sandbox: r.sandbox("c1"), Planned: true, Ports: []agentapi.Port{p.Interfaces[0].Port, p.Interfaces[1].Port}}
	r.must(os.WriteFile(path, marshal(t, release), 0o600))
	r.nb.Pause()
	var done agentapi.Released
	r.must(r.call(agentapi.OpRelease, release, &done))
	if done.Done || !exists(path) {
		t.Errorf("answered %+v while NB hangs, file there: %t", done, exists(path))
	}
	planned := make(chan error, 1)
	go func() {
		_, err := r.plan("c1")
		planned <- err
	}()
	r.nb.Resume()
	r.must(<-planned)
	r.eventually("done with the release", func() bool { return !exists(path) })
	// Whatever is still to come of the old release has come once its lock is free.
	unlock, err := r.agent.sandboxes.take(t.Context(), "c1")
	r.must(err)
	defer unlock()
	if got := r.ports(); len(got) != 2 {
		t.Errorf("ports %v: the old release took the new ports", got)
	}
}

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
	n := testutil.ToFloat64(r.agent.metrics.requests.WithLabelValues("plan", "999"))
	if n != 1 {
		t.Errorf("%v panics are counted, want 1", n)
	}
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
