package controller_test

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ovn-multinet/ovn-multinet/controller"
	"github.com/ovn-multinet/ovn-multinet/controller/configfile"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbtest"
)

// running is a controller at work.
type running struct {
	*nbtest.World
	*api
	activity *controller.Activity
	metrics  *controller.Metrics
	stop     func()
}

func leads() error { return nil }

// run starts a controller on a database and an API that may hold something already. It is stopped with the test.
func run(t *testing.T, w *nbtest.World, a *api, joining ...string) *running {
	t.Helper()
	return runAs(t, w, w.Networks, a, leads, joining...)
}

func runAs(t *testing.T, w *nbtest.World, networks *nbtest.Client, a *api, leading func() error, joining ...string) *running {
	t.Helper()
	return runController(t, w, newController(networks, a, leading, quiet, joining...))
}

// quiet is a log that nobody reads.
var quiet = slog.New(slog.DiscardHandler)

// tested is a controller with its queue.
type tested struct {
	*controller.Controller
	*controller.Queue
	metrics *controller.Metrics
	api     *api
}

// newController makes a controller that does not run yet, with the connection and the routers of networks.
func newController(
	networks *nbtest.Client, a *api, leading func() error, log *slog.Logger, joining ...string,
) *tested {
	queue := controller.NewQueue(log)
	metrics := controller.NewMetrics(queue, networks.DB)
	return &tested{controller.New(controller.Config{
		NB: networks.DB, Source: a, Queue: queue, Metrics: metrics,
		Operator:      configfile.Config{Routers: networks.Routers, Physical: a.grants},
		KeepOnPrimary: a.keep, JoiningNamespaces: joining, WidestIPAM: networks.Widest, Leading: leading, Log: log,
	}), queue, metrics, a}
}

func runController(t *testing.T, w *nbtest.World, c *tested) *running {
	t.Helper()
	activity := c.Watch()
	c.api.with(func() { c.api.watchers = append(c.api.watchers, c.NADChanged) })
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	stop := sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the controller ended with %v", err)
		}
	})
	t.Cleanup(stop)
	return &running{World: w, api: c.api, activity: activity, metrics: c.metrics, stop: stop}
}

func (r *running) wantSwitches(t *testing.T, want string) {
	t.Helper()
	eventually(t, want, func() string { return r.Switches(t) })
}

func (r *running) wantState(t *testing.T, id, want string) {
	t.Helper()
	eventually(t, want, func() string { return r.state(id) })
}

// otherConfig is the column of a network's switch that tells its subnet and what is excluded.
func (r *running) otherConfig(t *testing.T, id string) string {
	t.Helper()
	return r.Rows(t)["Logical_Switch"][ovndb.SwitchKey(id)]["other_config"]
}

// settle waits until the controller has done all that it was told, its states too, and nothing waits. Networks that
// something is in the way of are tried again later.
func (r *running) settle(t *testing.T) {
	t.Helper()
	eventually(t, "true", func() string { return strconv.FormatBool(r.activity.Settled()) })
}

// What waits is not settled: an edit right behind another one, and a network whose namespace has spent its budget.
func TestSettleWaitsForWhatWaits(t *testing.T) {
	w, a := nbtest.NewWorld(t), newAPI()
	c := newController(w.Networks, a, leads, quiet)
	goOn := c.SpendBudget("mallory")
	r := runController(t, w, c)
	for mtu := range 3 {
		r.apply("shop/blue", nbtest.Spec(nbtest.Sprint(`"mtu":%d`, 1400+mtu)))
	}
	r.apply("mallory/n", nbtest.Spec(""))
	time.AfterFunc(time.Second, goOn)
	r.settle(t)
	got := nbtest.Ext(r.Rows(t)["Copp"][nbtest.BlueAccepted], "ovn-multinet/config")
	if !strings.Contains(got, `"mtu":1402`) || r.state("mallory/n") != "ready, held" {
		t.Errorf("settled with %s, and with mallory/n %s", got, r.state("mallory/n"))
	}
}

// gatewayOf is the gateway of a network's accepted configuration; "": none is accepted.
func (r *running) gatewayOf(t *testing.T, id string) string {
	t.Helper()
	_, rest, _ := strings.Cut(r.Rows(t)["Copp"][ovndb.AcceptedKey(id)]["external_ids"], `"gateway":"`)
	address, _, _ := strings.Cut(rest, `"`)
	return address
}

func TestControllerFollowsTheNADs(t *testing.T) {
	r := run(t, nbtest.NewWorld(t), newAPI())
	r.apply("shop/blue", nbtest.Spec(nbtest.Net4))
	r.apply("infra/blue", nbtest.Spec(nbtest.Net4))
	r.wantSwitches(t, "infra/blue shop/blue")
	r.wantState(t, "shop/blue", "ready, held")
	r.wantState(t, "infra/blue", "ready, held")

	r.apply("shop/blue", nbtest.Spec(nbtest.Net4+`,"excludeSubnets":"10.1.0.128/25"`))
	eventually(t, "exclude_ips=10.1.0.1 10.1.0.2..10.1.0.127 subnet=10.1.0.0/24", func() string { return r.otherConfig(t, "shop/blue") })
	r.apply("shop/blue", nbtest.Spec(nbtest.Net4+nbtest.OnR1))
	eventually(t, "shop/r1:shop/blue", func() string { return r.Names(t, "Logical_Router_Port") })

	r.deleteNAD(t, "infra/blue")
	r.wantState(t, "infra/blue", "gone")
	r.wantSwitches(t, "shop/blue")
	r.deleteNAD(t, "shop/blue")
	r.wantState(t, "shop/blue", "gone")
	r.WantRows(t, map[string]map[string]nbtest.Fields{})
}

// What is not an OVN network has no switch and nothing of ours on it, whether it was one before or not.
func TestControllerIgnoresOtherTypes(t *testing.T) {
	for name, config := range map[string]string{"another plugin's": `{"type":"bridge"}`, "a conflist": `{"plugins":[{"type":"x"}]}`} {
		t.Run(name, func(t *testing.T) {
			r := run(t, nbtest.NewWorld(t), newAPI())
			r.apply("shop/blue", nbtest.Spec(nbtest.Net4+nbtest.OnR1))
			r.wantState(t, "shop/blue", "ready, held")
			r.apply("shop/blue", config)
			r.wantSwitches(t, "")
			r.wantState(t, "shop/blue", "nothing")
			before := r.count()
			r.apply("shop/red", config)
			r.apply("shop/file", "") // its configuration is in a file of the node
			r.apply("shop/green", nbtest.Spec(""))
			r.wantState(t, "shop/green", "ready, held") // worked off after those
			if got := r.Switches(t) + ", " + r.state("shop/red") + ", " + r.state("shop/file"); got != "shop/green, nothing, nothing" || r.count() != before+1 {
				t.Errorf("switches and states %q, %d writes; want 1 for shop/green alone", got, r.count()-before)
			}
		})
	}
}

// A network whose type is changed away is gone with its last port; its NAD is not ours to hold meanwhile.
func TestControllerTypeChangedUnderPods(t *testing.T) {
	r := run(t, nbtest.NewWorld(t), newAPI())
	r.apply("shop/blue", nbtest.Spec(nbtest.Net4))
	r.wantState(t, "shop/blue", "ready, held")
	r.Pod(t, "blue", "10.1.0.7", "web-0", "net1")
	r.apply("shop/blue", `{"type":"bridge"}`)
	r.wantState(t, "shop/blue", "nothing")
	eventually(t, nbtest.AcceptedWith(nbtest.Config4, "")["external_ids"],
		func() string { return r.Rows(t)["Copp"][nbtest.BlueAccepted]["external_ids"] })
	if got := r.Names(t, "Logical_Switch_Port"); got != "shop/web-0/net1" {
		t.Errorf("ports %q", got)
	}
	r.DropPorts(t, "Logical_Switch", nbtest.BlueKey)
	r.wantSwitches(t, "")
}

// A NAD that is spoilt says so, and leaves what is there as it is.
func TestControllerKeepsWhatCannotBeRead(t *testing.T) {
	const notRead = "refused: network shop/blue: "
	for name, tt := range map[string]struct{ config, reason string }{
		"not valid": {nbtest.Spec(`"subnets":"10.2.0.0"`), notRead + `subnets: "10.2.0.0" is not a network like 10.1.0.0/16, held`},
		"no JSON":   {"{", notRead + "not valid JSON: unexpected end of JSON input, held"},
		"no type":   {"{}", notRead + `"type" is missing, held`},
	} {
		t.Run(name, func(t *testing.T) {
			w, a := nbtest.NewWorld(t), newAPI()
			r := run(t, w, a)
			r.apply("shop/blue", nbtest.Spec(nbtest.Net4+nbtest.OnR1))
			r.wantState(t, "shop/blue", "ready, held")
			want := w.Rows(t)
			r.apply("shop/blue", tt.config)
			r.wantState(t, "shop/blue", tt.reason)
			w.WantRows(t, want)
			r.stop() // nor does the next leader know better
			second := run(t, w, a)
			second.settle(t)
			if got := second.state("shop/blue"); got != tt.reason {
				t.Errorf("shop/blue is %q, want %q", got, tt.reason)
			}
			w.WantRows(t, want)
			second.apply("shop/blue", nbtest.Spec(nbtest.Net4))
			second.wantState(t, "shop/blue", "ready, held")
		})
	}
}

// One that was never a network is refused and makes nothing.
func TestControllerRefusesInvalidNetworks(t *testing.T) {
	r := run(t, nbtest.NewWorld(t), newAPI())
	r.apply("shop/red", nbtest.Spec(`"subnet":"10.1.0.0/24"`))
	r.wantState(t, "shop/red", `refused: network shop/red: unknown key "subnet", did you mean "subnets"?, held`)
	r.apply("shop/shared", `{"type":"ovn-k8s-cni-overlay","name":"a/b"}`)
	r.wantState(t, "shop/shared", `refused: network shop/shared: name: "a/b" is no network's name: letters, digits, '_', '.' and '-'`)
	if got := r.Switches(t); got != "" {
		t.Errorf("switches %q", got)
	}
	r.apply("shop/red", nbtest.Spec(nbtest.Net4))
	r.wantState(t, "shop/red", "ready, held")
	r.wantSwitches(t, "shop/red")
	r.deleteNAD(t, "shop/shared")
	// What no plugin can make anything of is not ours to hold, but somebody waits for it.
	for config, want := range map[string]string{
		"x":                             "refused: network shop/typo: not valid JSON: invalid character 'x' looking for beginning of value",
		`{"cniVersion":"1.0.0"}`:        `refused: network shop/typo: "type" is missing`,
		`{"type":"ovn-multinett"}`:      `refused: network shop/typo: type is "ovn-multinett", did you mean "ovn-multinet"?`,
		`{"type":"ovn-k8s-cni-overly"}`: `refused: network shop/typo: type is "ovn-k8s-cni-overly", did you mean "ovn-k8s-cni-overlay"?`,
	} {
		r.apply("shop/typo", config)
		r.wantState(t, "shop/typo", want)
		r.apply("shop/typo", `{"type":"macvlan"}`)
		r.wantState(t, "shop/typo", "nothing")
	}
	// A typo takes no network from pods.
	r.apply("shop/red", `{"type":"ovn-multinett"}`)
	r.wantState(t, "shop/red", `refused: network shop/red: type is "ovn-multinett", did you mean "ovn-multinet"?, held`)
	r.wantSwitches(t, "shop/red")
	r.apply("shop/red", nbtest.Spec(nbtest.Net4))
	r.wantState(t, "shop/red", "ready, held")
	r.apply("shop/red", nbtest.Spec(`"subnet":"10.1.0.0/24"`))
	r.wantState(t, "shop/red", `refused: network shop/red: unknown key "subnet", did you mean "subnets"?, held`)
	r.deleteNAD(t, "shop/red") // also what cannot be read any more can be deleted
	r.wantState(t, "shop/red", "gone")
	r.wantSwitches(t, "")
}

// NADs that went, came or changed while no controller ran.
func TestControllerCatchesUp(t *testing.T) {
	w, a := nbtest.NewWorld(t), newAPI()
	nbtest.Ensure(t, w.Networks, nbtest.Network(t, "gone", nbtest.Net4+nbtest.OnR1))
	nbtest.Ensure(t, w.Networks, nbtest.Network(t, "changed", nbtest.Net4))
	nbtest.Ensure(t, w.Networks, nbtest.Network(t, "same", ""))
	nbtest.Ensure(t, w.Networks, nbtest.Network(t, "retyped", ""))
	w.Put(t, "Logical_Switch", nbtest.Strange, "a-foreign-one", nil)
	w.Put(t, "Logical_Router", ovndb.RouterKey("unused"), "unused", map[string]string{"ovn-multinet/router": "unused"})
	a.apply("shop/changed", nbtest.Spec(`"subnets":"10.2.0.0/24"`))
	a.apply("shop/same", nbtest.Spec(""))
	a.apply("shop/retyped", `{"type":"bridge"}`)
	r := run(t, w, a)
	r.wantSwitches(t, "a-foreign-one shop/changed shop/same")
	eventually(t, "10.2.0.1", func() string { return r.gatewayOf(t, "shop/changed") })
	eventually(t, "", func() string { return r.Names(t, "Logical_Router") })
	r.wantState(t, "shop/same", "ready, held")
	r.wantState(t, "shop/retyped", "nothing")
}

// Changed may be called before Run, as an informer does that is faster.
func TestControllerIsToldBeforeItRuns(t *testing.T) {
	w, a := nbtest.NewWorld(t), newAPI()
	a.apply("shop/blue", nbtest.Spec(""))
	c := newController(w.Networks, a, leads, quiet)
	c.NADChanged("shop", "blue")
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	eventually(t, "shop/blue", func() string { return w.Switches(t) })
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// A source that does not answer changes nothing, and is asked again.
func TestControllerTriesTheSourceAgain(t *testing.T) {
	w, a := nbtest.NewWorld(t), newAPI()
	nbtest.Ensure(t, w.Networks, nbtest.Network(t, "blue", nbtest.Net4))
	before := w.Rows(t)
	a.fail("shop/blue", errors.New("connection refused"))
	w.Proxy.Reset()
	r := run(t, w, a)
	eventually(t, "asked", func() string {
		asked := "not yet"
		a.with(func() {
			if a.reads["shop/blue"] >= 5 {
				asked = "asked"
			}
		})
		return asked
	})
	w.WantCommitted(t, 0)
	w.WantRows(t, before)
	a.fail("shop/blue", nil)
	r.wantSwitches(t, "") // there is no such NAD
}

// A database that refuses or does not answer keeps a network waiting, no longer.
func TestControllerTriesTheDatabaseAgain(t *testing.T) {
	w, a := nbtest.NewWorld(t), newAPI()
	r := run(t, w, a)
	r.settle(t)
	w.Proxy.CutBeforeNext()
	r.apply("shop/blue", nbtest.Spec(nbtest.NetDual+nbtest.OnR1))
	r.wantState(t, "shop/blue", "ready, held")
	if got := r.Switches(t) + ", " + r.Names(t, "Logical_Router_Port"); got != "shop/blue, shop/r1:shop/blue" {
		t.Errorf("switches and router ports %q", got)
	}
}

// A controller that does not lead any more writes nothing anywhere, and goes on when it leads again.
func TestControllerWritesOnlyWhileItLeads(t *testing.T) {
	tests := []struct {
		name  string
		there func(t *testing.T, w *nbtest.World, a *api)
		do    func(t *testing.T, a *api)
		want  string // states, switches
	}{
		{"make", nil, func(_ *testing.T, a *api) { a.apply("shop/blue", nbtest.Spec(nbtest.Net4+nbtest.OnR1)) }, "ready, held; shop/blue"},
		{"refuse", nil, func(_ *testing.T, a *api) { a.apply("shop/blue", nbtest.Spec(`"subnets":"x"`)) },
			`refused: network shop/blue: subnets: "x" is not a network like 10.1.0.0/16, held; `},
		{"remove", func(t *testing.T, w *nbtest.World, a *api) {
			nbtest.Ensure(t, w.Other(t), nbtest.Network(t, "blue", nbtest.Net4+nbtest.OnR1))
		},
			func(*testing.T, *api) {}, "gone; "},
		{"drop a router", func(t *testing.T, w *nbtest.World, a *api) {
			w.Put(t, "Logical_Router", ovndb.RouterKey("shop/r1"), "shop/r1", map[string]string{"ovn-multinet/router": "shop/r1"})
		}, func(*testing.T, *api) {}, "gone; "},
		{"fence", func(t *testing.T, w *nbtest.World, a *api) {
			nbtest.Ensure(t, w.Other(t), nbtest.Network(t, "blue", nbtest.Net4))
			w.Pod(t, "blue", "10.1.0.7", "web-0", "net1")
			a.apply("shop/blue", nbtest.Spec(nbtest.Net4))
			a.with(func() { a.nads["shop/blue"].HasFinalizer, a.nads["shop/blue"].Deleting = true, true })
		}, func(*testing.T, *api) {}, "refused: being deleted, used by pod shop/web-0, held; shop/blue"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w, a := nbtest.NewWorld(t), newAPI()
			if tt.there != nil {
				tt.there(t, w, a)
			}
			w.Proxy.Reset()
			before := w.Rows(t)
			var mu sync.Mutex
			asked, lost := 0, errors.New("does not lead any more")
			leading := func() error {
				mu.Lock()
				defer mu.Unlock()
				asked++
				return lost
			}
			r := runAs(t, w, w.Networks, a, leading)
			tt.do(t, a)
			eventually(t, "true", func() string {
				mu.Lock()
				defer mu.Unlock()
				return nbtest.Sprint("%t", asked >= 3)
			})
			w.WantCommitted(t, 0)
			w.WantRows(t, before)
			if r.count() != 0 {
				t.Errorf("%d states were written", r.count())
			}
			mu.Lock()
			lost = nil
			mu.Unlock()
			eventually(t, tt.want+", 0 unused routers", func() string {
				return nbtest.Sprint("%s; %s, %d unused routers", r.state("shop/blue"), r.Switches(t), unused(r.Rows(t)))
			})
		})
	}
}

func unused(rows map[string]map[string]nbtest.Fields) (n int) {
	for _, router := range rows["Logical_Router"] {
		if router["ports"] == "" {
			n++
		}
	}
	return n
}

// The next leader goes on where the first ended.
func TestControllerEnds(t *testing.T) {
	w, a := nbtest.NewWorld(t), newAPI()
	first := run(t, w, a)
	first.apply("shop/blue", nbtest.Spec(""))
	first.wantState(t, "shop/blue", "ready, held")
	first.stop()
	a.with(func() { a.watchers = nil })
	a.apply("shop/red", nbtest.Spec(""))
	a.deleteNAD(t, "shop/blue")
	second := run(t, w, a)
	second.wantState(t, "shop/blue", "gone")
	second.touch(t, "shop/red")
	second.wantState(t, "shop/red", "ready, held")
	second.wantSwitches(t, "shop/red")
}

// touch tells the controllers of a NAD that is as it was, as informers do.
func (a *api) touch(t *testing.T, id string) {
	t.Helper()
	if err := a.update(id, func(*netmodel.NAD) error { return nil }); err != nil {
		t.Fatal(err)
	}
}

// Two controllers at once, for as long as they like, make one row of each and agree on the states.
func TestTwoControllersAtOnce(t *testing.T) {
	w, a := nbtest.NewWorld(t), newAPI()
	run(t, w, a)
	r := runAs(t, w, w.Other(t), a, leads)
	var want []string
	for i := range 20 {
		id := nbtest.Sprint("shop/n%02d", i)
		a.apply(id, nbtest.Spec(nbtest.Sprint(`"subnets":"10.%d.0.0/24,fd01:%d::/64","router":"r%d"`, i, i, i%3)))
		want = append(want, id)
	}
	r.wantSwitches(t, strings.Join(want, " "))
	for _, id := range want {
		r.wantState(t, id, "ready, held")
	}
	rows := r.Rows(t)
	if len(rows["Logical_Router"]) != 3 || len(rows["Logical_Router_Port"]) != 20 || len(rows["Logical_Switch_Port"]) != 20 ||
		len(rows["Copp"]) != 20+20 { // a claim, and what is accepted
		t.Errorf("rows %v", rows)
	}
	for _, id := range want {
		a.deleteNAD(t, id)
	}
	for _, id := range want {
		r.wantState(t, id, "gone")
	}
	eventually(t, "empty", func() string {
		if rows := r.Rows(t); len(rows) > 0 {
			return nbtest.Sprint("%v", rows)
		}
		return "empty"
	})
	r.WantRows(t, map[string]map[string]nbtest.Fields{})
}

// What others changed in the database is put right at the latest when the NAD is looked at again.
func TestControllerRepairs(t *testing.T) {
	w, a := nbtest.NewWorld(t), newAPI()
	r := run(t, w, a)
	r.apply("shop/blue", nbtest.Spec(nbtest.Net4+nbtest.OnR1))
	r.wantState(t, "shop/blue", "ready, held")
	r.settle(t) // a pass because of the controller's own state would serve the touch as well, and repairs nothing
	want := w.Rows(t)
	w.Remove(t, "Logical_Router", ovndb.RouterKey("shop/r1"))
	w.Change(t, "Logical_Switch", nbtest.BlueKey, ovndbtest.Op{"name": "renamed"})
	r.touch(t, "shop/blue")
	eventually(t, "shop/r1:shop/blue", func() string { return w.Names(t, "Logical_Router_Port") })
	w.WantRows(t, want)
}
