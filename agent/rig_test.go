package agent

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
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
	panics      bool
	nads        map[string]testNAD
	annotations map[string]string              // of the pod
	anyUID      bool                           // the pod is the one with each UID
	labels      map[string]string              // of the pod
	liveLabels  map[string]string              // as LivePod reads them; nil: the same
	ports       []string                       // of the pod, named
	others      map[string]*netmodel.Pod       // that LivePod has, by name
	claims      map[string]*netmodel.IPAMClaim // by "<namespace>/<name>"
	claimReads  int
	ended       bool // the pod has
	runs        bool // a container of the pod does

	onFetch func()            // called by LiveNAD; nil: nothing
	newer   map[string]string // configurations that only LiveNAD has yet

	mu      sync.Mutex
	gone    bool              // the pod is
	waits   map[string]func() // what WhenGone is to call, by the pod's UID
	ends    bool              // the pod ends while WhenGone is called
	checked bool              // Pod was called after WhenGone
	status  string            // what SetStatus was given last
	// noStatus is the error of SetStatus; nil: it writes.
	noStatus                    error
	statusWrites, statusDeletes int      // requests
	events                      []string // "<kind> <reason>: <message>"
	fetched                     []string // what LiveNAD was asked for
}

// blue is the network shop/blue, as its NAD has it and as it is in force.
const blue = `{"type":"ovn-multinet","subnets":"10.1.0.0/24","mtu":1400}`

// afterRequest orders the calls of a source after what the test wrote before its request. The race detector takes each
// read of a file for that, but not how the agent reads from its socket.
func afterRequest() { _, _ = os.ReadFile(os.DevNull) }

func (p *pods) Pod(_ context.Context, namespace, name, _ string) (*netmodel.Pod, error) {
	afterRequest()
	if p.panics {
		panic("a source that is broken")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.checked = len(p.waits) > 0
	if namespace != "shop" || name != "web" || p.gone {
		return nil, source.ErrNotFound
	}
	pod := &netmodel.Pod{Namespace: namespace, Name: name, UID: "u-1", Node: "node1", Annotations: p.annotations,
		Labels: p.labels, Ports: p.ports, Running: p.runs}
	if p.anyUID {
		pod.UID = ""
	}
	return pod, nil
}

func (p *pods) LivePod(ctx context.Context, namespace, name string) (*netmodel.Pod, error) {
	if other := p.others[name]; other != nil {
		return other, nil
	}
	pod, err := p.Pod(ctx, namespace, name, "")
	if err == nil {
		pod.Ended = p.ended
	}
	if err == nil && p.liveLabels != nil {
		pod.Labels = p.liveLabels
	}
	return pod, err
}

// LiveIPAMClaim finds the IPAMClaim among the rig's.
func (p *pods) LiveIPAMClaim(_ context.Context, namespace, name string) (*netmodel.IPAMClaim, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.claimReads++
	if c := p.claims[namespace+"/"+name]; c != nil {
		return c, nil
	}
	return nil, netmodel.ErrNotFound
}

func (p *pods) WhenGone(pod *netmodel.Pod, call func()) (stop func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gone = p.gone || p.ends; p.gone {
		p.status = ""
		return func() {}
	}
	p.waits = map[string]func(){pod.UID: call}
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.waits, pod.UID)
	}
}

// waiting reports whether a call waits for the end of the pod, which was there when the wait began.
func (p *pods) waiting() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.waits) > 0 && p.checked
}

// end deletes the pod.
func (p *pods) end() {
	p.mu.Lock()
	p.gone, p.status = true, ""
	call := p.waits["u-1"]
	p.mu.Unlock()
	call()
}

func (p *pods) NAD(_ context.Context, namespace, name string) (*netmodel.NAD, error) {
	afterRequest()
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

func (p *pods) Pods(context.Context) ([]*netmodel.Pod, error) { return nil, nil }

func (p *pods) SetStatus(_ context.Context, _ *netmodel.Pod, status []byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.statusWrites++
	switch {
	case p.gone:
		return source.ErrNotFound
	case p.noStatus != nil:
		return p.noStatus
	}
	p.status = string(status)
	return nil
}

func (p *pods) DeleteStatus(_ context.Context, _ *netmodel.Pod, status []byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.statusDeletes++
	if p.status == string(status) {
		p.status = ""
	}
	return nil
}

// statusCounts returns the present status, and how many writes and deletions of it were requested.
func (p *pods) statusCounts() (status string, writes, deletes int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.status, p.statusWrites, p.statusDeletes
}

func (p *pods) Event(_ *netmodel.Pod, kind source.EventKind, reason, message string) {
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
	limit := 2 * time.Minute
	if os.Getenv("OVN_MULTINET_MUTATION") != "" { // most mutations are waited for in vain
		limit = 20 * time.Second
	}
	for giveUp := time.Now().Add(limit); !is(); {
		if time.Now().After(giveUp) {
			r.t.Fatalf("never %s", what)
		}
		runtime.Gosched()
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

func marshal(t *testing.T, v any) []byte {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
