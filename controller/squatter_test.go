package controller_test

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbtest"
)

const (
	mayNotJoin = "refused: network tenant is of namespace shop, and namespace evil may not join it: let it with the controller's --joining-namespaces"
	isHeld     = mayNotJoin + "; the network stays until its last port is gone, used by pod shop/web-0, held"
	spoilt     = `"subnets":"10.1.0.0"`
)

// tenant is what NB says of the shared network of these tests: its owner, its subnet, and the NADs whose ports it takes.
func (r *running) tenant(t *testing.T) string {
	t.Helper()
	sw := r.Rows(t)["Logical_Switch"][ovndb.SwitchKey("tenant")]
	if sw == nil {
		return "no switch"
	}
	s, err := r.Networks.Stored(nbtest.WithLimit(t), "tenant")
	if err != nil {
		return err.Error()
	}
	subnet := "none"
	if s.Config != nil {
		subnet = s.Config.Subnets[0].String()
	}
	return nbtest.Sprint("of %s, %s, %v", s.Owner, subnet, s.NADs)
}

func (r *running) wantTenant(t *testing.T, want string) {
	t.Helper()
	eventually(t, want, func() string { return r.tenant(t) })
}

// squatted is a network of namespace shop with a pod on it, and a NAD of its name in namespace evil.
func squatted(t *testing.T, squat string, joining ...string) *running {
	t.Helper()
	r := run(t, nbtest.NewWorld(t), newAPI(), joining...)
	r.apply("shop/a", nbtest.IsShared("tenant", nbtest.Net4))
	r.wantState(t, "shop/a", "ready, held")
	r.PodAt(t, "tenant", nbtest.Strange, "web-0", "net1")
	r.apply("evil/a", nbtest.IsShared("tenant", squat))
	r.settle(t)
	return r
}

// Whatever the owner's NAD says by mistake, the network goes on as it was accepted, and nobody inherits it.
func TestBoundarySquatterAndTheOwnersTypo(t *testing.T) {
	const was = "of shop, 10.1.0.0/24, [shop/a]"
	tests := []struct{ name, typo, owner, squatter, tenant string }{
		{"a value", nbtest.IsShared("tenant", spoilt), `refused: network shop/a: subnets: "10.1.0.0" is not a network like 10.1.0.0/16, held`, mayNotJoin + ", held", was},
		{"an unknown key", nbtest.IsShared("tenant", nbtest.Net4+`,"x":1`), "", mayNotJoin + ", held", was},
		{"no JSON", `{"type":`, "", mayNotJoin + ", held", was},
		{"the name", nbtest.IsShared("tenannt", nbtest.Net4), "ready, held", isHeld, "of shop, 10.1.0.0/24, []"},
		{"the type", `{"type":"bridge"}`, "nothing", isHeld, "of shop, 10.1.0.0/24, []"},
		{"a subnet that cuts pods off", nbtest.IsShared("tenant", `"subnets":"10.7.0.0/24"`), "", mayNotJoin + ", held", was},
	}
	for _, squat := range []string{nbtest.Net4, `"subnets":"10.9.0.0/24"`} {
		for _, tt := range tests {
			t.Run(tt.name+" "+squat, func(t *testing.T) {
				r := squatted(t, squat)
				key := ovndb.SwitchKey("tenant")
				ports := r.Rows(t)["Logical_Switch"][key]["ports"]
				r.apply("shop/a", tt.typo)
				r.wantTenant(t, tt.tenant)
				if tt.owner != "" {
					r.wantState(t, "shop/a", tt.owner)
				}
				r.apply("evil/a", nbtest.IsShared("tenant", squat+`,"mtu":1300`)) // whoever is looked at last
				r.wantState(t, "evil/a", tt.squatter)
				r.settle(t)
				if got := r.tenant(t); got != tt.tenant {
					t.Errorf("the network is %s, want %s", got, tt.tenant)
				}
				if got := r.Rows(t)["Logical_Switch"][key]["ports"]; got != ports {
					t.Errorf("its ports are %s, were %s", got, ports)
				}
				r.apply("shop/a", nbtest.IsShared("tenant", nbtest.Net4)) // the owner is not locked out
				r.wantState(t, "shop/a", "ready, held")
				r.wantTenant(t, was)
				r.wantState(t, "evil/a", mayNotJoin+", held")
			})
		}
	}
}

// A network whose owner deleted its NAD is held for its pods. When the last one is gone its switch goes, and then another
// namespace may make a network of that name.
func TestBoundarySquatterAndTheOwnersDelete(t *testing.T) {
	r := squatted(t, `"subnets":"10.9.0.0/24"`)
	r.deleteNAD(t, "shop/a")
	r.wantState(t, "shop/a", "refused: being deleted, used by pod shop/web-0, held")
	r.wantState(t, "evil/a", isHeld)
	r.wantTenant(t, "of shop, 10.1.0.0/24, []")
	if err := r.update("shop/a", func(n *netmodel.NAD) error { n.HasFinalizer = false; return nil }); err != nil { // by hand
		t.Fatal(err)
	}
	r.apply("evil/a", nbtest.IsShared("tenant", nbtest.Net4))
	r.settle(t)
	r.wantState(t, "evil/a", isHeld)
	if got := r.tenant(t); got != "of shop, 10.1.0.0/24, []" {
		t.Errorf("the network is %s", got)
	}
	r.apply("shop/b", nbtest.IsShared("tenant", nbtest.Net4)) // the owner comes back while it is held
	r.wantState(t, "shop/b", "ready, held")
	r.wantTenant(t, "of shop, 10.1.0.0/24, [shop/b]")
	r.wantState(t, "evil/a", mayNotJoin+", held")
	r.deleteNAD(t, "shop/b")
	r.wantState(t, "evil/a", isHeld)
	was := r.Versions(t)["Logical_Switch "+ovndb.SwitchKey("tenant")]

	r.DropPorts(t, "Logical_Switch", ovndb.SwitchKey("tenant"))
	r.wantState(t, "evil/a", "ready, held")
	r.wantTenant(t, "of evil, 10.1.0.0/24, [evil/a]")
	r.wantState(t, "shop/b", "gone")
	if r.Versions(t)["Logical_Switch "+ovndb.SwitchKey("tenant")] == was {
		t.Error("it is the same switch still")
	}
	r.apply("shop/a", nbtest.IsShared("tenant", nbtest.Net4)) // now the other way round
	r.wantState(t, "shop/a", "refused: network tenant is of namespace evil, and namespace shop may not join it: let it with the controller's --joining-namespaces, held")
}

// A network that a NAD holds again is not being deleted: when that NAD goes too, the controller says so once more, and looks
// for the last port's end as soon as it did the first time.
func TestNetworkIsHeldAgain(t *testing.T) {
	w, log := nbtest.NewWorld(t), &lines{}
	r := runController(t, w, newController(w.Networks, newAPI(), leads, slog.New(slog.NewTextHandler(log, nil))))
	r.apply("shop/a", nbtest.IsShared("tenant", nbtest.Net4))
	r.wantState(t, "shop/a", "ready, held")
	r.PodAt(t, "tenant", nbtest.Strange, "web-0", "net1")
	for i := range 3 {
		r.deleteNAD(t, nbtest.Sprint("shop/%c", 'a'+i))
		r.wantState(t, nbtest.Sprint("shop/%c", 'a'+i), "refused: being deleted, used by pod shop/web-0, held")
		r.apply(nbtest.Sprint("shop/%c", 'b'+i), nbtest.IsShared("tenant", nbtest.Net4))
		r.wantState(t, nbtest.Sprint("shop/%c", 'b'+i), "ready, held")
		r.settle(t)
		if got := strings.Count(log.String(), "network is being deleted"); got != i+1 {
			t.Fatalf("the log says %d times that the network is being deleted, want %d", got, i+1)
		}
	}
}

// A NAD that is no owner's takes no port with it, whatever its annotation says; the owner's does.
func TestBoundarySquattersForceDelete(t *testing.T) {
	force := func(t *testing.T, r *running, id string) {
		t.Helper()
		if err := r.update(id, func(n *netmodel.NAD) error { n.Deleting, n.ForceDelete = true, true; return nil }); err != nil {
			t.Fatal(err)
		}
	}
	const port = "shop/web-0/net1"
	t.Run("beside the owner", func(t *testing.T) {
		r := squatted(t, nbtest.Net4)
		force(t, r, "evil/a")
		r.wantState(t, "evil/a", "gone")
		r.settle(t)
		if got := r.Names(t, "Logical_Switch_Port") + " " + r.tenant(t); got != port+" of shop, 10.1.0.0/24, [shop/a]" {
			t.Error(got)
		}
	})
	t.Run("after the owner", func(t *testing.T) {
		r := squatted(t, nbtest.Net4, "ops")
		r.apply("ops/a", nbtest.IsShared("tenant", nbtest.Net4))
		r.wantState(t, "ops/a", "ready, held")
		r.deleteNAD(t, "shop/a")
		r.wantState(t, "shop/a", "gone") // the one that joins holds the network
		force(t, r, "evil/a")
		r.wantState(t, "evil/a", "gone")
		force(t, r, "ops/a")
		r.wantState(t, "ops/a", "refused: being deleted, used by pod shop/web-0, held")
		r.settle(t)
		if got := r.Names(t, "Logical_Switch_Port") + " " + r.tenant(t); got != port+" of shop, 10.1.0.0/24, []" {
			t.Error(got)
		}
		r.apply("shop/c", nbtest.IsShared("tenant", nbtest.Net4))
		r.wantState(t, "shop/c", "ready, held")
		force(t, r, "shop/c")
		r.wantState(t, "shop/c", "gone")
		r.wantTenant(t, "no switch")
		r.WantRows(t, map[string]map[string]nbtest.Fields{})
	})
}

// One that joins may not decide for the owner what the network is.
func TestBoundaryJoinerDoesNotDecide(t *testing.T) {
	const was = "of shop, 10.1.0.0/24, "
	r := squatted(t, nbtest.Net4, "ops")
	r.apply("ops/a", nbtest.IsShared("tenant", nbtest.Net4))
	r.wantTenant(t, was+"[ops/a shop/a]")
	r.apply("shop/a", nbtest.IsShared("tenant", spoilt))
	r.apply("ops/a", nbtest.IsShared("tenant", `"subnets":"10.1.0.0/16"`)) // what pods would survive
	r.wantState(t, "ops/a", "refused: it differs from the accepted configuration of namespace shop, which describes network tenant too: subnets: 10.1.0.0/16 is not 10.1.0.0/24, held")
	r.wantTenant(t, was+"[ops/a shop/a]")
	r.deleteNAD(t, "shop/a")
	r.wantState(t, "shop/a", "gone")
	r.wantTenant(t, was+"[ops/a]")
	r.apply("shop/a", nbtest.IsShared("tenant", `"subnets":"10.1.0.0/16"`)) // the owner may
	r.wantState(t, "ops/a", "ready, held")
	r.wantTenant(t, "of shop, 10.1.0.0/16, [ops/a shop/a]")
}

// Controllers that begin anew know the squatter's NAD, and of the owner only what NB says.
func TestBoundarySquatterAfterARestart(t *testing.T) {
	for name, begin := range map[string]func(a *api){
		"the owner's is there":    func(*api) {},
		"the owner's is spoilt":   func(a *api) { a.apply("shop/a", nbtest.IsShared("tenant", spoilt)) },
		"the owner's is no JSON":  func(a *api) { a.apply("shop/a", "{") },
		"the owner's is deleting": func(a *api) { a.with(func() { a.nads["shop/a"].Deleting = true }) },
	} {
		t.Run(name, func(t *testing.T) {
			r := squatted(t, nbtest.Net4)
			r.stop()
			a := r.api
			a.with(func() { a.watchers = nil })
			begin(a)
			again := run(t, r.World, a)
			again.api.apply("evil/a", nbtest.IsShared("tenant", nbtest.Net4+`,"mtu":1300`)) // told of this one first
			again.settle(t)
			want := "of shop, 10.1.0.0/24, [shop/a]"
			if strings.HasSuffix(name, "deleting") {
				want = "of shop, 10.1.0.0/24, []"
			}
			again.wantTenant(t, want)
			if got := again.state("evil/a"); !strings.HasPrefix(got, mayNotJoin) {
				t.Errorf("the squatter's is %s", got)
			}
			if got := again.Names(t, "Logical_Switch_Port"); got != "shop/web-0/net1" {
				t.Errorf("ports %q", got)
			}
		})
	}
}

// A controller that hears of the squatter's NAD before it has listed what NB has asks for the NADs that NB names.
func TestBoundarySquatterBeforeTheList(t *testing.T) {
	r := squatted(t, nbtest.Net4)
	r.stop()
	r.with(func() { r.watchers, r.nads["evil/a"].State = nil, "" })
	// The list fails at first: it comes to this router, and the controller may not write yet.
	r.Put(t, "Logical_Router", ovndb.RouterKey("idle"), "idle", map[string]string{"ovn-multinet/router": "idle"})
	var asked atomic.Int32
	c := newController(r.Networks, r.api, func() error {
		if asked.Add(1) == 1 {
			return errors.New("not yet")
		}
		return nil
	}, quiet)
	c.NADChanged("evil", "a")
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	r.wantState(t, "evil/a", mayNotJoin+", held")
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if got := r.tenant(t); got != "of shop, 10.1.0.0/24, [shop/a]" {
		t.Errorf("the network is %s", got)
	}
}

// Where somebody has deleted the owner from the row by hand, the NADs that the row accepts name the owner. A network that
// takes no ports and names no owner is nobody's until its last port is gone.
func TestBoundarySquatterAndARowWithoutOwner(t *testing.T) {
	for _, tt := range []struct{ name, keep, want, state string }{
		{"accepted", "ovn-multinet/nad:shop/a", "of shop, 10.1.0.0/24, [shop/a]", mayNotJoin + ", held"},
		{"withdrawn", "", "of , 10.1.0.0/24, []", strings.ReplaceAll(isHeld, "namespace shop,", "namespace (unknown),")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := squatted(t, nbtest.Net4)
			r.stop()
			r.with(func() { r.watchers = nil })
			for table, key := range map[string]string{"Logical_Switch": ovndb.SwitchKey("tenant"), "Copp": ovndb.AcceptedKey("tenant")} {
				ids := map[string]string{}
				for pair := range strings.FieldsSeq(r.Rows(t)[table][key]["external_ids"]) {
					name, value, _ := strings.Cut(pair, "=")
					ids[name] = value
				}
				maps.DeleteFunc(ids, func(name, _ string) bool {
					return name == "ovn-multinet/owner" || strings.HasPrefix(name, "ovn-multinet/nad:") && name != tt.keep
				})
				r.Change(t, table, key, ovndbtest.Op{"external_ids": ovndbtest.Map(ids)})
			}
			r.with(func() { delete(r.nads, "shop/a") })
			if tt.keep != "" {
				r.apply("shop/a", nbtest.IsShared("tenant", spoilt))
				r.apply("shop/b", nbtest.IsShared("tenant", nbtest.Net4))
			}
			again := run(t, r.World, r.api)
			again.apply("evil/a", nbtest.IsShared("tenant", nbtest.Net4))
			if tt.keep != "" {
				again.apply("shop/b", nbtest.IsShared("tenant", nbtest.Net4))
				tt.want = "of shop, 10.1.0.0/24, [shop/a shop/b]"
			}
			again.wantState(t, "evil/a", tt.state)
			again.wantTenant(t, tt.want)
			again.DropPorts(t, "Logical_Switch", ovndb.SwitchKey("tenant"))
			if tt.keep == "" {
				again.wantTenant(t, "of evil, 10.1.0.0/24, [evil/a]")
			}
		})
	}
}

// A NAD that never was accepted does not keep the rows of a network that everyone has left.
func TestBoundaryInvalidNADKeepsNoNetwork(t *testing.T) {
	for _, squatter := range []string{"evil/a", "shop/b"} {
		t.Run(squatter, func(t *testing.T) {
			r := run(t, nbtest.NewWorld(t), newAPI())
			r.apply("shop/a", nbtest.IsShared("tenant", nbtest.Net4))
			r.wantState(t, "shop/a", "ready, held")
			r.apply(squatter, nbtest.IsShared("tenant", spoilt))
			reason := nbtest.Sprint(`refused: network %s: subnets: "10.1.0.0" is not a network like 10.1.0.0/16, held`, squatter)
			r.wantState(t, squatter, reason)
			r.deleteNAD(t, "shop/a")
			r.wantState(t, "shop/a", "gone")
			r.wantTenant(t, "no switch")
			r.WantRows(t, map[string]map[string]nbtest.Fields{})
			r.settle(t)
			if got := r.state(squatter); got != reason {
				t.Errorf("the invalid one is %s", got)
			}
		})
	}
}
