package ovnnet_test

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnnet"
)

// running is a controller at work.
type running struct {
	*world
	*api
	activity *ovnnet.Activity
	stop     func()
}

func leads() error { return nil }

// run starts a controller on a database and an API that may hold something already. It is stopped with the test.
func run(t *testing.T, w *world, a *api, joining ...string) *running {
	t.Helper()
	return runAs(t, w, w.networks, a, leads, joining...)
}

func runAs(t *testing.T, w *world, networks *ovnnet.Networks, a *api, leading func() error, joining ...string) *running {
	t.Helper()
	return runController(t, w, ovnnet.NewController(networks, joining, slog.New(slog.DiscardHandler)), a, leading)
}

func runController(t *testing.T, w *world, c *ovnnet.Controller, a *api, leading func() error) *running {
	t.Helper()
	c.GrantPhysical(a.grants)
	activity := c.Watch()
	a.with(func() { a.watchers = append(a.watchers, c.Changed) })
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx, a, leading) }()
	stop := sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the controller ended with %v", err)
		}
	})
	t.Cleanup(stop)
	return &running{world: w, api: a, activity: activity, stop: stop}
}

func (r *running) wantSwitches(t *testing.T, want string) {
	t.Helper()
	eventually(t, want, func() string { return r.switches(t) })
}

func (r *running) wantState(t *testing.T, id, want string) {
	t.Helper()
	eventually(t, want, func() string { return r.state(id) })
}

// otherConfig is the column of a network's switch that tells its subnet and what is excluded.
func (r *running) otherConfig(t *testing.T, id string) string {
	t.Helper()
	return r.rows(t)["Logical_Switch"][ovndb.SwitchKey(id)]["other_config"]
}

// settle waits until the controller has done all that it was told, its states too, and nothing waits. Networks that
// something is in the way of are tried again later.
func (r *running) settle(t *testing.T) {
	t.Helper()
	eventually(t, "true", func() string { return strconv.FormatBool(r.activity.Settled()) })
}

// What waits is not settled: an edit right behind another one, and a network whose namespace has spent its budget.
func TestSettleWaitsForWhatWaits(t *testing.T) {
	w, a := newWorld(t), newAPI()
	c := ovnnet.NewController(w.networks, nil, slog.New(slog.DiscardHandler))
	goOn := c.SpendBudget("mallory")
	r := runController(t, w, c, a, leads)
	for mtu := range 3 {
		r.apply("shop/blue", spec(sprint(`"mtu":%d`, 1400+mtu)))
	}
	r.apply("mallory/n", spec(""))
	time.AfterFunc(time.Second, goOn)
	r.settle(t)
	got := ext(r.rows(t)["Logical_Switch"][blueKey], "ovn-multinet/config")
	if !strings.Contains(got, `"mtu":1402`) || r.state("mallory/n") != "ready, held" {
		t.Errorf("settled with %s, and with mallory/n %s", got, r.state("mallory/n"))
	}
}

// gatewayOf is the address that a network's switch is marked with.
func (r *running) gatewayOf(t *testing.T, id string) string {
	t.Helper()
	for _, word := range strings.Fields(r.rows(t)["Logical_Switch"][ovndb.SwitchKey(id)]["external_ids"]) {
		if address, ok := strings.CutPrefix(word, "gateway_ip="); ok {
			return address
		}
	}
	return ""
}

func TestControllerFollowsTheNADs(t *testing.T) {
	r := run(t, newWorld(t), newAPI())
	r.apply("shop/blue", spec(net4))
	r.apply("infra/blue", spec(net4))
	r.wantSwitches(t, "infra/blue shop/blue")
	r.wantState(t, "shop/blue", "ready, held")
	r.wantState(t, "infra/blue", "ready, held")

	r.apply("shop/blue", spec(net4+`,"excludeSubnets":"10.1.0.128/25"`))
	eventually(t, "exclude_ips=10.1.0.1 10.1.0.2..10.1.0.127 subnet=10.1.0.0/24", func() string { return r.otherConfig(t, "shop/blue") })
	r.apply("shop/blue", spec(net4+onR1))
	eventually(t, "shop/r1:shop/blue", func() string { return r.names(t, "Logical_Router_Port") })

	r.deleteNAD(t, "infra/blue")
	r.wantState(t, "infra/blue", "gone")
	r.wantSwitches(t, "shop/blue")
	r.deleteNAD(t, "shop/blue")
	r.wantState(t, "shop/blue", "gone")
	r.wantRows(t, map[string]map[string]fields{})
}

// What is not an OVN network has no switch and nothing of ours on it, whether it was one before or not.
func TestControllerIgnoresOtherTypes(t *testing.T) {
	for name, config := range map[string]string{"another plugin's": `{"type":"bridge"}`, "a conflist": `{"plugins":[{"type":"x"}]}`} {
		t.Run(name, func(t *testing.T) {
			r := run(t, newWorld(t), newAPI())
			r.apply("shop/blue", spec(net4+onR1))
			r.wantState(t, "shop/blue", "ready, held")
			r.apply("shop/blue", config)
			r.wantSwitches(t, "")
			r.wantState(t, "shop/blue", "nothing")
			before := r.count()
			r.apply("shop/red", config)
			r.apply("shop/broken", "x")
			r.apply("shop/green", spec(""))
			r.wantState(t, "shop/green", "ready, held") // worked off after those
			if got := r.switches(t) + ", " + r.state("shop/red") + ", " + r.state("shop/broken"); got != "shop/green, nothing, nothing" || r.count() != before+1 {
				t.Errorf("switches and states %q, %d writes; want 1 for shop/green alone", got, r.count()-before)
			}
		})
	}
}

// A network whose type is changed away is gone with its last port; its NAD is not ours to hold meanwhile.
func TestControllerTypeChangedUnderPods(t *testing.T) {
	r := run(t, newWorld(t), newAPI())
	r.apply("shop/blue", spec(net4))
	r.wantState(t, "shop/blue", "ready, held")
	r.pod(t, "blue", "10.1.0.7", "web-0", "net1")
	r.apply("shop/blue", `{"type":"bridge"}`)
	r.wantState(t, "shop/blue", "nothing")
	eventually(t, fenced, func() string { return r.rows(t)["Logical_Switch"][blueKey]["external_ids"] })
	if got := r.names(t, "Logical_Switch_Port"); got != "shop/web-0/net1" {
		t.Errorf("ports %q", got)
	}
	r.dropPorts(t, "Logical_Switch", blueKey)
	r.wantSwitches(t, "")
}

// A NAD that is spoilt says so, and leaves what is there as it is.
func TestControllerKeepsWhatCannotBeRead(t *testing.T) {
	const notRead = "refused: network shop/blue: "
	for name, tt := range map[string]struct{ config, reason string }{
		"not valid": {spec(`"subnets":"10.2.0.0"`), notRead + `subnets: "10.2.0.0" is not a network like 10.1.0.0/16, held`},
		"no JSON":   {"{", notRead + "not valid JSON: unexpected end of JSON input, held"},
		"no type":   {"{}", notRead + `"type" is missing, held`},
	} {
		t.Run(name, func(t *testing.T) {
			w, a := newWorld(t), newAPI()
			r := run(t, w, a)
			r.apply("shop/blue", spec(net4+onR1))
			r.wantState(t, "shop/blue", "ready, held")
			want := w.rows(t)
			r.apply("shop/blue", tt.config)
			r.wantState(t, "shop/blue", tt.reason)
			w.wantRows(t, want)
			r.stop() // nor does the next leader know better
			second := run(t, w, a)
			second.settle(t)
			if got := second.state("shop/blue"); got != tt.reason {
				t.Errorf("shop/blue is %q, want %q", got, tt.reason)
			}
			w.wantRows(t, want)
			second.apply("shop/blue", spec(net4))
			second.wantState(t, "shop/blue", "ready, held")
		})
	}
}

// One that was never a network is refused and makes nothing.
func TestControllerRefusesInvalidNetworks(t *testing.T) {
	r := run(t, newWorld(t), newAPI())
	r.apply("shop/red", spec(`"subnet":"10.1.0.0/24"`))
	r.wantState(t, "shop/red", `refused: network shop/red: unknown key "subnet", did you mean "subnets"?, held`)
	r.apply("shop/shared", `{"type":"ovn-k8s-cni-overlay","name":"a/b"}`)
	r.wantState(t, "shop/shared", `refused: network shop/shared: name: "a/b" is no network's name: letters, digits, '_', '.' and '-'`)
	if got := r.switches(t); got != "" {
		t.Errorf("switches %q", got)
	}
	r.apply("shop/red", spec(net4))
	r.wantState(t, "shop/red", "ready, held")
	r.wantSwitches(t, "shop/red")
	r.deleteNAD(t, "shop/shared")
	r.apply("shop/red", spec(`"subnet":"10.1.0.0/24"`))
	r.wantState(t, "shop/red", `refused: network shop/red: unknown key "subnet", did you mean "subnets"?, held`)
	r.deleteNAD(t, "shop/red") // also what cannot be read any more can be deleted
	r.wantState(t, "shop/red", "gone")
	r.wantSwitches(t, "")
}

// NADs that went, came or changed while no controller ran.
func TestControllerCatchesUp(t *testing.T) {
	w, a := newWorld(t), newAPI()
	ensure(t, w.networks, network(t, "gone", net4+onR1))
	ensure(t, w.networks, network(t, "changed", net4))
	ensure(t, w.networks, network(t, "same", ""))
	ensure(t, w.networks, network(t, "retyped", ""))
	w.put(t, "Logical_Switch", strange, "a-foreign-one", nil)
	w.put(t, "Logical_Router", ovndb.RouterKey("unused"), "unused", map[string]string{"ovn-multinet/router": "unused"})
	a.apply("shop/changed", spec(`"subnets":"10.2.0.0/24"`))
	a.apply("shop/same", spec(""))
	a.apply("shop/retyped", `{"type":"bridge"}`)
	r := run(t, w, a)
	r.wantSwitches(t, "a-foreign-one shop/changed shop/same")
	eventually(t, "10.2.0.1", func() string { return r.gatewayOf(t, "shop/changed") })
	eventually(t, "", func() string { return r.names(t, "Logical_Router") })
	r.wantState(t, "shop/same", "ready, held")
	r.wantState(t, "shop/retyped", "nothing")
}

// Changed may be called before Run, as an informer does that is faster.
func TestControllerIsToldBeforeItRuns(t *testing.T) {
	w, a := newWorld(t), newAPI()
	a.apply("shop/blue", spec(""))
	c := ovnnet.NewController(w.networks, nil, slog.New(slog.DiscardHandler))
	c.Changed("shop", "blue")
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx, a, leads) }()
	eventually(t, "shop/blue", func() string { return w.switches(t) })
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// A source that does not answer changes nothing, and is asked again.
func TestControllerTriesTheSourceAgain(t *testing.T) {
	w, a := newWorld(t), newAPI()
	ensure(t, w.networks, network(t, "blue", net4))
	before := w.rows(t)
	a.fail("shop/blue", errors.New("connection refused"))
	w.proxy.Reset()
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
	w.wantCommitted(t, 0)
	w.wantRows(t, before)
	a.fail("shop/blue", nil)
	r.wantSwitches(t, "") // there is no such NAD
}

// A database that refuses or does not answer keeps a network waiting, no longer.
func TestControllerTriesTheDatabaseAgain(t *testing.T) {
	w, a := newWorld(t), newAPI()
	r := run(t, w, a)
	r.settle(t)
	w.proxy.CutBeforeNext()
	r.apply("shop/blue", spec(netDual+onR1))
	r.wantState(t, "shop/blue", "ready, held")
	if got := r.switches(t) + ", " + r.names(t, "Logical_Router_Port"); got != "shop/blue, shop/r1:shop/blue" {
		t.Errorf("switches and router ports %q", got)
	}
}

// A controller that does not lead any more writes nothing anywhere, and goes on when it leads again.
func TestControllerWritesOnlyWhileItLeads(t *testing.T) {
	tests := []struct {
		name  string
		there func(t *testing.T, w *world, a *api)
		do    func(t *testing.T, a *api)
		want  string // states, switches
	}{
		{"make", nil, func(_ *testing.T, a *api) { a.apply("shop/blue", spec(net4+onR1)) }, "ready, held; shop/blue"},
		{"refuse", nil, func(_ *testing.T, a *api) { a.apply("shop/blue", spec(`"subnets":"x"`)) },
			`refused: network shop/blue: subnets: "x" is not a network like 10.1.0.0/16, held; `},
		{"remove", func(t *testing.T, w *world, a *api) { ensure(t, w.other(t), network(t, "blue", net4+onR1)) },
			func(*testing.T, *api) {}, "gone; "},
		{"drop a router", func(t *testing.T, w *world, a *api) {
			w.put(t, "Logical_Router", ovndb.RouterKey("shop/r1"), "shop/r1", map[string]string{"ovn-multinet/router": "shop/r1"})
		}, func(*testing.T, *api) {}, "gone; "},
		{"fence", func(t *testing.T, w *world, a *api) {
			ensure(t, w.other(t), network(t, "blue", net4))
			w.pod(t, "blue", "10.1.0.7", "web-0", "net1")
			a.apply("shop/blue", spec(net4))
			a.with(func() { a.nads["shop/blue"].HasFinalizer, a.nads["shop/blue"].Deleting = true, true })
		}, func(*testing.T, *api) {}, "refused: being deleted, used by pod shop/web-0, held; shop/blue"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w, a := newWorld(t), newAPI()
			if tt.there != nil {
				tt.there(t, w, a)
			}
			w.proxy.Reset()
			before := w.rows(t)
			var mu sync.Mutex
			asked, lost := 0, errors.New("does not lead any more")
			leading := func() error {
				mu.Lock()
				defer mu.Unlock()
				asked++
				return lost
			}
			r := runAs(t, w, w.networks, a, leading)
			tt.do(t, a)
			eventually(t, "true", func() string {
				mu.Lock()
				defer mu.Unlock()
				return sprint("%t", asked >= 3)
			})
			w.wantCommitted(t, 0)
			w.wantRows(t, before)
			if r.count() != 0 {
				t.Errorf("%d states were written", r.count())
			}
			mu.Lock()
			lost = nil
			mu.Unlock()
			eventually(t, tt.want+", 0 unused routers", func() string {
				return sprint("%s; %s, %d unused routers", r.state("shop/blue"), r.switches(t), unused(r.rows(t)))
			})
		})
	}
}

func unused(rows map[string]map[string]fields) (n int) {
	for _, router := range rows["Logical_Router"] {
		if router["ports"] == "" {
			n++
		}
	}
	return n
}

// The next leader goes on where the first ended.
func TestControllerEnds(t *testing.T) {
	w, a := newWorld(t), newAPI()
	first := run(t, w, a)
	first.apply("shop/blue", spec(""))
	first.wantState(t, "shop/blue", "ready, held")
	first.stop()
	a.with(func() { a.watchers = nil })
	a.apply("shop/red", spec(""))
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
	w, a := newWorld(t), newAPI()
	run(t, w, a)
	r := runAs(t, w, w.other(t), a, leads)
	var want []string
	for i := range 20 {
		id := sprint("shop/n%02d", i)
		a.apply(id, spec(sprint(`"subnets":"10.%d.0.0/24,fd01:%d::/64","router":"r%d"`, i, i, i%3)))
		want = append(want, id)
	}
	r.wantSwitches(t, strings.Join(want, " "))
	for _, id := range want {
		r.wantState(t, id, "ready, held")
	}
	rows := r.rows(t)
	if len(rows["Logical_Router"]) != 3 || len(rows["Logical_Router_Port"]) != 20 || len(rows["Logical_Switch_Port"]) != 20 || len(rows["Copp"]) != 20 {
		t.Errorf("rows %v", rows)
	}
	for _, id := range want {
		a.deleteNAD(t, id)
	}
	for _, id := range want {
		r.wantState(t, id, "gone")
	}
	eventually(t, "empty", func() string {
		if rows := r.rows(t); len(rows) > 0 {
			return sprint("%v", rows)
		}
		return "empty"
	})
	r.wantRows(t, map[string]map[string]fields{})
}

// What others changed in the database is put right at the latest when the NAD is looked at again.
func TestControllerRepairs(t *testing.T) {
	w, a := newWorld(t), newAPI()
	r := run(t, w, a)
	r.apply("shop/blue", spec(net4+onR1))
	r.wantState(t, "shop/blue", "ready, held")
	want := w.rows(t)
	w.remove(t, "Logical_Router", ovndb.RouterKey("shop/r1"))
	w.change(t, "Logical_Switch", blueKey, ovndbtest.Op{"name": "renamed"})
	r.touch(t, "shop/blue")
	eventually(t, "shop/r1:shop/blue", func() string { return w.names(t, "Logical_Router_Port") })
	w.wantRows(t, want)
}
