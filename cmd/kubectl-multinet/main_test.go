package main

import (
	"context"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/gateway"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnport"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"kubectl-multinet": func() { os.Exit(run()) }})
}

// TestScripts runs the scripts in testdata on a real Northbound database, $NB, with networks and ports made by the
// packages that make them for the product, and on manifests that each script brings.
func TestScripts(t *testing.T) {
	server, outside, restricted, serving := ovndbtest.StartNB(t), ovndbtest.StartNB(t), ovndbtest.StartNB(t), ovndbtest.StartNB(t)
	fill(t, server)
	fillOutside(t, outside)
	fillPolicies(t, restricted)
	fillServices(t, serving)
	testscript.Run(t, testscript.Params{
		Dir: "testdata", UpdateScripts: os.Getenv("UPDATE_SCRIPTS") != "",
		Setup: func(e *testscript.Env) error {
			nb := server
			switch filepath.Base(e.WorkDir) {
			case "script-outside":
				nb = outside
			case "script-policy", "script-allowed", "script-why":
				nb = restricted
			case "script-service":
				nb = serving
			}
			e.Setenv("OVN_MULTINET_NB_ENDPOINTS", nb.Endpoint())
			e.Setenv("KUBECONFIG", filepath.Join(e.WorkDir, "none"))
			if filepath.Base(e.WorkDir) == "script-sysdump" {
				e.Setenv("KUBECONFIG", filepath.Join(e.WorkDir, "clusters"))
				return twoClusters(t, filepath.Join(e.WorkDir, "clusters"))
			}
			return nil
		},
	})
}

// open connects to a server for as long as the test takes.
func open(ctx context.Context, t *testing.T, server *ovndbtest.Server) *ovndb.DB {
	t.Helper()
	model, err := nb.FullDatabaseModel()
	if err != nil {
		t.Fatal(err)
	}
	db, err := ovndb.Open(ovndb.Config{Name: "NB", Endpoints: []string{server.Endpoint()}, Model: model, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	if err := db.WaitConnected(ctx); err != nil {
		t.Fatal(err)
	}
	return db
}

// fill makes shop/blue with two pods, a Service and a foreign port on router core, and infra/red, whose NAD is gone.
func fill(t *testing.T, server *ovndbtest.Server) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	db := open(ctx, t, server)
	networks, ports := nbtest.NewClient(db, nil), ovnport.NewNB(db)
	blue := network(t, "shop", "blue", `{"type":"ovn-multinet","subnets":"10.1.0.0/24,fd01::/64","router":"core","mtu":1300,
		"excludeSubnets":"10.1.0.128/25","routes":[{"dst":"10.2.0.0/24"}]}`)
	red := network(t, "infra", "red", `{"type":"ovn-multinet"}`)
	l2 := network(t, "shop", "l2", `{"type":"ovn-k8s-cni-overlay","name":"tenant-l2","topology":"layer2","subnets":"10.9.0.0/16"}`)
	for _, n := range []*netmodel.Network{blue, red, l2} {
		if _, err := networks.Ensure(ctx, n, []string{n.NAD()}); err != nil {
			t.Fatal(err)
		}
	}
	for i, pod := range []string{"web-0", "web-1"} {
		owner := ovnport.Owner{Namespace: "shop", Pod: pod, UID: pod, Sandbox: pod, Node: "node-a", Chassis: "node-a"}
		ip := netip.PrefixFrom(netip.MustParseAddr("10.1.0.10"), 24)
		if i > 0 {
			ip = netip.PrefixFrom(netip.MustParseAddr("10.1.0.11"), 24)
		}
		want := ovnport.Request{Interface: "net1", Network: blue, IPs: []netip.Prefix{ip, netip.PrefixFrom(netip.AddrFrom16([16]byte{0xfd, 1, 15: byte(10 + i)}), 64)}}
		if _, err := ports.Ensure(ctx, owner, []ovnport.Request{want}, nil); err != nil {
			t.Fatal(err)
		}
	}
	ensureService(ctx, t, db, "web", "10.1.0.20,fd01::14", onePort)
	server.NBCtl("lsp-add", "shop/blue", "vm1", "--", "lsp-set-addresses", "vm1", "02:00:00:00:00:01 10.1.0.200", "--",
		"lsp-add", "infra/red", "vm2", "--", "lsp-set-addresses", "vm2", "02:00:00:00:00:02")
}

// fillOutside makes infra/wide, a layer3 network on router edge with two nodes, infra/vlan, a localnet network, and edge's
// gateway on these nodes.
func fillOutside(t *testing.T, server *ovndbtest.Server) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	db := open(ctx, t, server)
	routers, err := netmodel.ParseRouters([]byte(`{"routers":{"infra/edge":{"namespaces":{"infra":{"subnets":"10.128.0.0/16"}},"gatewayNodes":"edge=yes","physicalNetworkName":"provider","vlanID":42,
		"externalSubnet":"192.0.2.0/24","externalAddress":"192.0.2.10","nextHop":"192.0.2.1"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	networks := nbtest.NewClient(db, routers)
	wide := network(t, "infra", "wide", `{"type":"ovn-multinet","topology":"layer3","subnets":"10.128.0.0/22/24","router":"edge","routes":[{"dst":"192.0.2.0/24"}]}`)
	vlan := network(t, "infra", "vlan", `{"type":"ovn-multinet","topology":"localnet","physicalNetworkName":"provider","vlanID":7}`)
	for _, n := range []*netmodel.Network{wide, vlan} {
		if _, err := networks.Ensure(ctx, n, []string{n.NAD()}); err != nil {
			t.Fatal(err)
		}
	}
	nodes := []gateway.Chassis{{Node: "node-a", Name: "chassis-a"}, {Node: "node-b", Name: "chassis-b"}}
	if _, err := networks.Gateways.Ensure(ctx, routers["infra/edge"], nodes); err != nil {
		t.Fatal(err)
	}
	for _, node := range nodes {
		view, err := networks.Subnets.Ensure(ctx, wide, node.Node)
		if err != nil {
			t.Fatal(err)
		}
		owner := ovnport.Owner{Namespace: "infra", Pod: "on-" + node.Node, UID: "u", Sandbox: node.Node, Node: node.Node, Chassis: node.Name}
		if _, err := ovnport.NewNB(db).Ensure(ctx, owner, []ovnport.Request{{Interface: "net1", Network: view}}, nil); err != nil {
			t.Fatal(err)
		}
	}
}

func network(t *testing.T, namespace, name, config string) *netmodel.Network {
	t.Helper()
	n, err := netmodel.ParseNetwork(namespace, name, []byte(config))
	if err != nil {
		t.Fatal(err)
	}
	return n
}
