package ovnnet_test

import (
	"log/slog"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovnnet"
)

// A grant counts, and ends, while the controller runs.
func TestConfigureGrants(t *testing.T) {
	w, a := newWorld(t), newAPI()
	c, r := routing(t, w, a, w.networks)
	r.apply("shop/blue", spec(localnet("phys", `,"vlanID":42,`+net4)))
	refused := notGranted("phys, VLAN 42", `"42"`, "")
	r.wantState(t, "shop/blue", refused)
	c.Configure(nil, granted(t, shop42))
	r.wantState(t, "shop/blue", "ready, held")
	r.wantTakes(t, "shop/blue", "[shop/blue]")
	w.podAt(t, "shop/blue", strange, "web-0", "net1")
	c.Configure(nil, nil)
	r.wantState(t, "shop/blue", refused)
	r.wantTakes(t, "shop/blue", "[]")
	c.Configure(nil, granted(t, shop42))
	r.wantState(t, "shop/blue", "ready, held")
	r.wantTakes(t, "shop/blue", "[shop/blue]")
}

// Routers come, change and go while the controller runs, and the networks with them.
func TestConfigureRouters(t *testing.T) {
	w, a := newWorld(t), newAPI()
	a.setNodes(nil)
	c, r := routing(t, w, a, w.networks)
	core := func(keys string) map[string]*netmodel.Router {
		return map[string]*netmodel.Router{"/core": routerConf(t, "/core", keys)}
	}
	ports := func(want string) {
		t.Helper()
		eventually(t, want, func() string { return w.names(t, "Logical_Router_Port") })
	}
	r.apply("shop/blue", spec(net4+`,"router":"/core"`))
	eventually(t, "refused", func() string { return r.state("shop/blue")[:min(7, len(r.state("shop/blue")))] })

	c.Configure(core(`"namespaces":{"shop":{"subnets":"10.1.0.0/16"}}`), nil)
	r.wantState(t, "shop/blue", "ready, held")
	ports("/core:shop/blue")
	c.Configure(core(anybody+","+gwFull), nil)
	ports("/core:external /core:gateway /core:join /core:shop/blue")
	c.Configure(core(`"namespaces":{"web":{"subnets":"10.1.0.0/16"}}`), nil)
	ports("")
	eventually(t, "refused", func() string { return r.state("shop/blue")[:min(7, len(r.state("shop/blue")))] })
	c.Configure(core(anybody), nil)
	r.wantState(t, "shop/blue", "ready, held")
	ports("/core:shop/blue")
	c.Configure(nil, nil)
	ports("")
	eventually(t, "0", func() string { return sprint("%d", len(w.rows(t)["Logical_Router"])) })
}

// Who waits for its turn to lead begins with what the file says by then.
func TestConfigureBeforeRun(t *testing.T) {
	w, a := newWorld(t), newAPI()
	c := ovnnet.NewController(w.networks, nil, slog.New(slog.DiscardHandler))
	c.Configure(nil, nil)
	c.Configure(nil, granted(t, shop42))
	a.with(func() { a.watchers = append(a.watchers, c.Changed) })
	a.apply("shop/blue", spec(localnet("phys", `,"vlanID":42,`+net4)))
	runController(t, w, c, a, leads).wantState(t, "shop/blue", "ready, held")
}
