package controller_test

import (
	"testing"

	"github.com/ovn-multinet/ovn-multinet/controller/configfile"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbtest"
)

// A grant counts, and ends, while the controller runs.
func TestConfigureGrants(t *testing.T) {
	w, a := nbtest.NewWorld(t), newAPI()
	c, r := routing(t, w, a, w.Networks)
	r.apply("shop/blue", nbtest.Spec(nbtest.Localnet("phys", `,"vlanID":42,`+nbtest.Net4)))
	refused := notGranted("phys, VLAN 42", `"42"`, "")
	r.wantState(t, "shop/blue", refused)
	c.Configure(configfile.Config{Physical: granted(t, shop42)})
	r.wantState(t, "shop/blue", "ready, held")
	r.wantTakes(t, "shop/blue", "[shop/blue]")
	w.PodAt(t, "shop/blue", nbtest.Strange, "web-0", "net1")
	c.Configure(configfile.Config{})
	r.wantState(t, "shop/blue", refused)
	r.wantTakes(t, "shop/blue", "[]")
	c.Configure(configfile.Config{Physical: granted(t, shop42)})
	r.wantState(t, "shop/blue", "ready, held")
	r.wantTakes(t, "shop/blue", "[shop/blue]")
}

// Routers come, change and go while the controller runs, and the networks with them.
func TestConfigureRouters(t *testing.T) {
	w, a := nbtest.NewWorld(t), newAPI()
	a.setNodes(nil)
	c, r := routing(t, w, a, w.Networks)
	core := func(keys string) map[string]*netmodel.Router {
		return map[string]*netmodel.Router{"/core": nbtest.RouterConf(t, "/core", keys)}
	}
	ports := func(want string) {
		t.Helper()
		eventually(t, want, func() string { return w.Names(t, "Logical_Router_Port") })
	}
	r.apply("shop/blue", nbtest.Spec(nbtest.Net4+`,"router":"/core"`))
	eventually(t, "refused", func() string { return r.state("shop/blue")[:min(7, len(r.state("shop/blue")))] })

	c.Configure(configfile.Config{Routers: core(`"namespaces":{"shop":{"subnets":"10.1.0.0/16"}}`)})
	r.wantState(t, "shop/blue", "ready, held")
	ports("/core:shop/blue")
	c.Configure(configfile.Config{Routers: core(nbtest.Anybody + "," + nbtest.GwFull)})
	ports("/core:external /core:gateway /core:join /core:shop/blue")
	c.Configure(configfile.Config{Routers: core(`"namespaces":{"web":{"subnets":"10.1.0.0/16"}}`)})
	ports("")
	eventually(t, "refused", func() string { return r.state("shop/blue")[:min(7, len(r.state("shop/blue")))] })
	c.Configure(configfile.Config{Routers: core(nbtest.Anybody)})
	r.wantState(t, "shop/blue", "ready, held")
	ports("/core:shop/blue")
	c.Configure(configfile.Config{})
	ports("")
	eventually(t, "0", func() string { return nbtest.Sprint("%d", len(w.Rows(t)["Logical_Router"])) })
}

// Who waits for its turn to lead begins with what the file says by then.
func TestConfigureBeforeRun(t *testing.T) {
	w, a := nbtest.NewWorld(t), newAPI()
	c := newController(w.Networks, a, leads, quiet)
	c.Configure(configfile.Config{})
	c.Configure(configfile.Config{Physical: granted(t, shop42)})
	a.with(func() { a.watchers = append(a.watchers, c.NADChanged) })
	a.apply("shop/blue", nbtest.Spec(nbtest.Localnet("phys", `,"vlanID":42,`+nbtest.Net4)))
	runController(t, w, c).wantState(t, "shop/blue", "ready, held")
}
