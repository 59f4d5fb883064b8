package controller_test

import (
	"errors"
	"log/slog"
	"maps"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbtest"
)

// granted reads the section physicalNetworks of a controller's configuration.
func granted(t *testing.T, grants string) netmodel.PhysicalGrants {
	t.Helper()
	g, err := netmodel.ParsePhysicalGrants([]byte(`{"physicalNetworks":{` + grants + `}}`))
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func notGranted(wire, vlans, more string) string {
	return "refused: physical network " + wire + ", is not granted to namespace shop; the operator would have to create a PhysicalNetwork with the spec " +
		`{physicalNetworkName: "phys", grants: [{vlans: ` + vlans + `, namespaces: [shop]` + more + `}]}, held`
}

// shop42 grants the VLAN 42 of phys to namespace shop.
const shop42 = `"phys":[{"vlans":"42","namespaces":["shop"]}]`

// A network without a grant gets no rows, and its state says the sentence to write. ovn-kubernetes' NADs too.
func TestBoundaryUngrantedWire(t *testing.T) {
	vlan42, plain := nbtest.Localnet("phys", `,"vlanID":42,`+nbtest.Net4), nbtest.Localnet("phys", "")
	overlay := `{"cniVersion":"1.0.0","type":"ovn-k8s-cni-overlay","name":"phys","topology":"localnet","vlanID":42}`
	refused42 := notGranted("phys, VLAN 42", `"42"`, "")
	for _, tt := range []struct{ name, grants, config, want string }{
		{"no grants at all", "", nbtest.Spec(vlan42), refused42},
		{"untagged", "", nbtest.Spec(plain), notGranted("phys, untagged", "untagged", "")},
		{"another namespace", `"phys":[{"vlans":"42","namespaces":["web"]}]`, nbtest.Spec(vlan42), refused42},
		{"another VLAN", `"phys":[{"vlans":"1-41,43-4094,untagged","namespaces":["shop"]}]`, nbtest.Spec(vlan42), refused42},
		{"another physical network", `"phys2":[{"vlans":"42","namespaces":["shop"]}]`, nbtest.Spec(vlan42), refused42},
		{"tagged alone", `"phys":[{"vlans":"1-4094","namespaces":["shop"]}]`, nbtest.Spec(plain), notGranted("phys, untagged", "untagged", "")},
		{"ovn-kubernetes'", "", overlay, refused42},
		{"port security", shop42, nbtest.Spec(vlan42 + `,"portSecurity":false`),
			"refused: portSecurity: false on physical network phys, VLAN 42, is not granted to namespace shop; the operator would have " +
				`to create a PhysicalNetwork with the spec {physicalNetworkName: "phys", grants: [{vlans: "42", namespaces: [shop], portSecurity: false}]}, held`},
		{"port security of an overlay network", shop42, nbtest.Spec(nbtest.Net4 + `,"portSecurity":false`),
			"refused: portSecurity: false is not granted to namespace shop; the operator would have to write " +
				"portSecurityOff: {namespaces: [shop]} (the chart's value controller.portSecurityOff), held"},

		{"granted", shop42, nbtest.Spec(vlan42), "ready, held"},
		{"in a range, with others", `"phys":[{"vlans":"7","namespaces":["web"]},{"vlans":"7,40-49","namespaces":["web","shop"]}]`, nbtest.Spec(vlan42), "ready, held"},
		{"untagged, granted", `"phys":[{"vlans":"7, untagged","namespaces":["shop"]}]`, nbtest.Spec(plain), "ready, held"},
		{"ovn-kubernetes', granted", shop42, overlay, "ready, held"},
		{"port security, granted", `"phys":[{"vlans":"42","namespaces":["shop"]},{"vlans":"42","namespaces":["shop"],"portSecurity":false}]`,
			nbtest.Spec(vlan42 + `,"portSecurity":false`), "ready, held"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w, a := nbtest.NewWorld(t), newAPI()
			a.grants = granted(t, tt.grants)
			r := run(t, w, a)
			r.apply("shop/blue", tt.config)
			r.wantState(t, "shop/blue", tt.want)
			r.stop()
			if rows := w.Rows(t); (len(rows) > 0) != (tt.want == "ready, held") {
				t.Errorf("rows %v", rows)
			}
		})
	}
}

// A grant that is gone when the controller reads its configuration again: no new ports, and those that are there stay.
func TestBoundaryGrantIsWithdrawn(t *testing.T) {
	w, a := nbtest.NewWorld(t), newAPI()
	a.grants = granted(t, shop42)
	r := run(t, w, a)
	r.apply("shop/blue", nbtest.Spec(nbtest.Localnet("phys", `,"vlanID":42,`+nbtest.Net4)))
	r.wantState(t, "shop/blue", "ready, held")
	r.stop()
	before := w.Rows(t)
	w.PodAt(t, "shop/blue", nbtest.Strange, "web-0", "net1")
	with := w.Rows(t)

	a.grants = nil
	r = run(t, w, a)
	r.wantState(t, "shop/blue", notGranted("phys, VLAN 42", `"42"`, ""))
	r.wantTakes(t, "shop/blue", "[]")
	r.stop()
	rows := w.Rows(t)
	delete(with["Copp"], nbtest.BlueAccepted) // which takes no ports now
	for _, table := range []string{"Logical_Switch_Port", "Copp"} {
		for key, row := range with[table] {
			if !maps.Equal(rows[table][key], row) {
				t.Errorf("%s %s became %v", table, row["name"], rows[table][key])
			}
		}
	}

	a.grants = granted(t, shop42)
	r = run(t, w, a)
	r.apply("shop/blue", nbtest.Spec(nbtest.Localnet("phys", `,"vlanID":42,`+nbtest.Net4))) // a source tells of every NAD at its start
	r.wantState(t, "shop/blue", "ready, held")
	r.wantTakes(t, "shop/blue", "[shop/blue]")
	r.stop()
	w.WantAccepted(t, before["Copp"][nbtest.BlueAccepted])
}

// An edit that asks for another wire than the granted one is refused, and pods get what was accepted before.
func TestBoundaryEditToAnUngrantedWire(t *testing.T) {
	w, a := nbtest.NewWorld(t), newAPI()
	a.grants = granted(t, shop42)
	r := run(t, w, a)
	r.apply("shop/blue", nbtest.Spec(nbtest.Localnet("phys", `,"vlanID":42,`+nbtest.Net4)))
	r.wantState(t, "shop/blue", "ready, held")
	before := w.Rows(t)
	r.apply("shop/blue", nbtest.Spec(nbtest.Localnet("phys", `,"vlanID":43,`+nbtest.Net4)))
	r.wantState(t, "shop/blue", notGranted("phys, VLAN 43", `"43"`, ""))
	r.stop()
	w.WantRows(t, before)
}

// Of several NADs of one network each needs the grant of its own namespace.
func TestBoundarySharedWire(t *testing.T) {
	w, a := nbtest.NewWorld(t), newAPI()
	a.grants = granted(t, shop42)
	overlay := `{"cniVersion":"1.0.0","type":"ovn-k8s-cni-overlay","name":"tenant","topology":"localnet","physicalNetworkName":"phys","vlanID":42}`
	r := run(t, w, a, "web")
	r.apply("web/a", overlay) // the elder one
	r.wantState(t, "web/a", `refused: physical network phys, VLAN 42, is not granted to namespace web; the operator would have to create a PhysicalNetwork with the spec `+
		`{physicalNetworkName: "phys", grants: [{vlans: "42", namespaces: [web]}]}, held`)
	r.apply("shop/b", overlay)
	r.wantState(t, "shop/b", "ready, held")
	r.wantTakes(t, "tenant", "[shop/b]")
	r.stop()

	a.grants = granted(t, `"phys":[{"vlans":"42","namespaces":["shop","web"]}]`)
	r = run(t, w, a, "web")
	r.apply("web/a", overlay)
	r.wantState(t, "web/a", "ready, held")
	r.wantTakes(t, "tenant", "[shop/b web/a]")
	r.stop()

	a.grants = granted(t, `"phys":[{"vlans":"42","namespaces":["web"]}]`)
	r = run(t, w, a, "web")
	r.wantTakes(t, "tenant", "[web/a]")
}

// The log says that a network takes no new ports when that is so, and once.
func TestGrantsEndIsLoggedOnce(t *testing.T) {
	w, a := nbtest.NewWorld(t), newAPI()
	a.grants = granted(t, shop42)
	r := run(t, w, a)
	r.apply("shop/blue", nbtest.Spec(nbtest.Localnet("phys", `,"vlanID":42,`+nbtest.Net4)))
	r.wantState(t, "shop/blue", "ready, held")
	r.stop()

	a.grants = nil
	log := &lines{}
	var asked atomic.Int32
	r = runController(t, w, newController(w.Networks, a, func() error {
		if asked.Add(1) <= 3 {
			return errors.New("does not lead any more")
		}
		return nil
	}, slog.New(slog.NewTextHandler(log, nil))))
	r.wantState(t, "shop/blue", notGranted("phys, VLAN 42", `"42"`, ""))
	if got := strings.Count(log.String(), "network takes no new ports"); got != 1 {
		t.Errorf("the log says so %d times:\n%s", got, log)
	}
}
