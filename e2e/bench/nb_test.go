//go:build bench

package bench

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/e2e/labtest"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnport"
)

// portsNetwork is the network whose ports fill an NB.
const (
	portsNetwork = "shop/blue"
	portsConfig  = `{"cniVersion":"1.0.0","name":"blue","type":"ovn-multinet","subnets":"10.0.0.0/8"}`
)

// TestPorts measures the transactions of a pod in NBs of several sizes, which take turns.
func TestPorts(t *testing.T) {
	p := report(t, "40-ports", "Ports in NB", `One pod with one network: the two transactions in NB (lease and release) of the
product's own code over an open connection with TLS, without northd, on NBs with that many ports on one network; beside the
NB with 100 ports in the same turn. CPU is that of the ovsdb-server: a scan of a table shows there.`)
	type size struct {
		ports           int
		server          *ovndbtest.Server
		client          *ovnport.NB
		line            *line
		wall, cpu, bare []float64
	}
	n := parse(t, portsNetwork)
	var sizes []*size
	for ports := 100; ports <= *most; ports *= 10 {
		server, nb := startNB(t, n, ports)
		sizes = append(sizes, &size{ports: ports, server: server, client: connect(t, nb), line: dial(t, server.Socket)})
	}
	for i := range *turns * 10 {
		for _, s := range sizes {
			cpu := func() float64 { return ms(get[time.Duration](t)(cpuOf(s.server.Pid()))) }
			before := cpu()
			s.wall = append(s.wall, ms(stopwatch(func() { must(t, attach(t.Context(), s.client, n, fmt.Sprint("web-", i))) })))
			between := cpu()
			bare(s.line, n)
			s.cpu, s.bare = append(s.cpu, between-before), append(s.bare, cpu()-between)
		}
	}
	plot := Plot{Name: "ports", Title: "A pod's transactions in NB", X: "ports in NB", Y: "ms", Log: true,
		Lines: []Line{{Name: "time"}, {Name: "CPU of NB"}}}
	for _, s := range sizes {
		for i, values := range [][]float64{s.wall, s.cpu} {
			plot.Lines[i].X = append(plot.Lines[i].X, float64(s.ports))
			plot.Lines[i].Points = append(plot.Lines[i].Points, Estimated(values))
		}
		if s == sizes[0] {
			continue
		}
		more := func(of func(*size) []float64) float64 { return Median(Minus(of(s), of(sizes[0]), 1)) }
		bareMore := more(func(s *size) []float64 { return s.bare })
		bound := fmt.Sprintf("Two bare transactions, written by hand, which insert one port into the network's set `ports` and delete "+
			"it, cost NB %s ms more CPU with %d ports than with 100; ours cost it %s ms more. So much is OVSDB's own: it handles a set as "+
			"a whole. A network with fewer ports costs less.", short(bareMore), s.ports,
			short(more(func(s *size) []float64 { return s.cpu })))
		for _, r := range []Row{
			Compare(fmt.Sprintf("%d ports, time", s.ports), "ms", "100 ports", s.wall, sizes[0].wall, 1.2),
			Compare(fmt.Sprintf("%d ports, CPU of NB", s.ports), "ms", "100 ports", s.cpu, sizes[0].cpu, 1.2),
		} {
			r.Bound = bound
			p.Rows = append(p.Rows, r)
		}
	}
	p.Plots = append(p.Plots, plot)
}

// bare sends the least that leases a port and releases it.
func bare(l *line, n *netmodel.Network) {
	key, sw := uuid.NewString(), nbtest.ByKey(ovndb.SwitchKey(n.ID()))
	l.request("transact", "OVN_Northbound", portRow(key, key, "0a:58:0a:f0:00:01 10.240.0.1"),
		ports(sw, nb.LogicalSwitchTable, "insert", key))
	l.request("transact", "OVN_Northbound", ports(sw, nb.LogicalSwitchTable, "delete", key))
}

// startNB starts an NB over TLS with so many ports on the network, and returns how a client reaches it.
func startNB(t testing.TB, n *netmodel.Network, ports int) (*ovndbtest.Server, conf.NB) {
	server, client := ovndbtest.Certificates(t, "127.0.0.1")
	s, target, endpoint := ovndbtest.StartNBConnections(t, server, "")
	s.NBCtl("set-connection", target)
	s.NBCtl("set", "Connection", ".", "inactivity_probe=90000") // as the chart does
	makeNetwork(t, s, n)
	for from := 0; from < ports; from += 1000 {
		fill(t, s, n, from, min(from+1000, ports))
	}
	return s, labtest.NBOverTLS(client, endpoint)
}

// TestRaft measures how many pods an NB on a raft of three can take.
func TestRaft(t *testing.T) {
	const networks = 4
	p := report(t, "45-raft", "A raft of three", fmt.Sprintf(`Pods with %d networks each, attached (leases only) by several nodes at
once, each over a connection of its own as an agent has, on three ovsdb-servers of one machine, with TLS between all. Pods of one
node that come at the same moment share transactions.`, networks))
	server, client := ovndbtest.Certificates(t, "127.0.0.1")
	cluster := ovndbtest.StartNBClusterTLS(t, server, 3)
	n := parse(t, portsNetwork)
	makeNetwork(t, cluster.Leader(), n)
	pods := 0
	for _, herd := range []struct{ nodes, atOnce int }{{32, 1}, {8, 16}, {4, 64}} {
		var rates []float64
		clients := make([]*ovnport.NB, herd.nodes)
		for i := range clients {
			clients[i] = connect(t, labtest.NBOverTLS(client, cluster.Endpoints()...))
		}
		servers := func() (sum time.Duration) {
			for _, m := range cluster.Members {
				sum += get[time.Duration](t)(cpuOf(m.Pid()))
			}
			return sum
		}
		before, first := servers(), pods
		used, all := cpuTime()
		for range max(3, *turns/4) {
			each := max(1, 256/(herd.nodes*herd.atOnce)) // the cost of a pod grows with the ports on its network
			took := stopwatch(func() {
				var all errgroup.Group
				for i := range herd.nodes * herd.atOnce {
					first := pods
					pods += each
					all.Go(func() error {
						for pod := range each {
							if _, err := lease(t.Context(), clients[i%herd.nodes], n, fmt.Sprint("web-", first+pod), networks); err != nil {
								return err
							}
						}
						return nil
					})
				}
				must(t, all.Wait())
			})
			rates = append(rates, float64(herd.nodes*herd.atOnce*each)/took.Seconds())
		}
		p.Rows = append(p.Rows, Number(fmt.Sprintf("pods leased per second, %d nodes with %d pods at once (goal: at least 1,000)",
			herd.nodes, herd.atOnce), "", rates, 0))
		usedAfter, allAfter := cpuTime()
		p.Notes = append(p.Notes, fmt.Sprintf("%d nodes with %d pods at once: the three servers used %s ms of CPU per pod, and %.0f %% of the "+
			"machine's CPU was in use.", herd.nodes, herd.atOnce, short(ms(servers()-before)/float64(pods-first)),
			100*(usedAfter-used)/max(1, allAfter-all)))
	}
}

func parse(t testing.TB, id string) *netmodel.Network {
	return get[*netmodel.Network](t)(netmodel.ParseNetwork("shop", id[len("shop/"):], []byte(portsConfig)))
}

// makeNetwork makes what the controller would make of the network.
func makeNetwork(t testing.TB, s *ovndbtest.Server, n *netmodel.Network) {
	s.Transact(t, ovndbtest.Op{"op": "insert", "table": nb.LogicalSwitchTable, "uuid": ovndb.SwitchKey(n.ID()), "row": ovndbtest.Op{
		"name": n.ID(), "external_ids": ovndbtest.Map(map[string]string{"ovn-multinet/network": n.ID()})}},
		ovndbtest.Op{"op": "insert", "table": nb.CoppTable, "uuid": ovndb.AcceptedKey(n.ID()), "row": ovndbtest.Op{
			"name": n.ID() + " accepted", "external_ids": ovndbtest.Map(map[string]string{"ovn-multinet/network": n.ID(),
				"ovn-multinet/config": n.Canonical(), "ovn-multinet/nad:" + n.NAD(): n.Revision()})}})
}

// fill puts the ports from..to on the network, as the product makes them.
func fill(t testing.TB, s *ovndbtest.Server, n *netmodel.Network, from, to int) {
	var ops []ovndbtest.Op
	var keys []any
	for i := from; i < to; i++ {
		a := netip.AddrFrom4([4]byte{10, 200, byte(i >> 8), byte(i)})
		if i >= 1<<16 {
			a = netip.AddrFrom4([4]byte{10, 201, byte(i >> 8), byte(i)})
		}
		key := ovndb.AddressKey(n.AddressBook(), a)
		text := fmt.Sprintf("0a:58:0a:%02x:%02x:%02x %s", a.As4()[1], a.As4()[2], a.As4()[3], a)
		keys = append(keys, ovndbtest.UUID(key))
		ops = append(ops, ovndbtest.Op{"op": "insert", "table": nb.LogicalSwitchPortTable, "uuid": key, "row": ovndbtest.Op{
			"name": fmt.Sprintf("shop/filler-%d/net1", i), "addresses": text, "port_security": text,
			"external_ids": ovndbtest.Map(map[string]string{"ovn-multinet/pod": fmt.Sprint("filler-", i)})}})
	}
	ops = append(ops, ovndbtest.Op{"op": "mutate", "table": nb.LogicalSwitchTable,
		"where":     []any{[]any{"_uuid", "==", ovndbtest.UUID(ovndb.SwitchKey(n.ID()))}},
		"mutations": []any{[]any{"ports", "insert", ovndbtest.Set(keys...)}}})
	s.Transact(t, ops...)
}

func connect(t testing.TB, c conf.NB) *ovnport.NB {
	db := labtest.OpenNB(t, c, "")
	must(t, db.WaitConnected(t.Context()))
	return ovnport.NewNB(db)
}

func lease(ctx context.Context, client *ovnport.NB, n *netmodel.Network, pod string, networks int) ([]ovnport.Port, error) {
	var wants []ovnport.Request
	for i := range networks {
		wants = append(wants, ovnport.Request{Interface: fmt.Sprint("net", i+1), Network: n})
	}
	owner := ovnport.Owner{Namespace: "shop", Pod: pod, UID: "uid-" + pod, Sandbox: "sandbox-" + pod, Node: "node-1", Chassis: "chassis-1"}
	return client.Ensure(ctx, owner, wants, func(context.Context, ovnport.Owner) error { return nil })
}

// attach leases a port and releases it.
func attach(ctx context.Context, client *ovnport.NB, n *netmodel.Network, pod string) error {
	ports, err := lease(ctx, client, n, pod, 1)
	if err != nil {
		return err
	}
	var keys []ovnport.Keys
	for _, p := range ports {
		keys = append(keys, ovnport.Keys{UUID: p.UUID, Claims: p.Claims, Switch: p.Switch})
	}
	return client.Release(ctx, ovnport.Owner{Node: "node-1", Sandbox: "sandbox-" + pod}, keys)
}
