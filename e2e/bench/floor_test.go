//go:build bench

package bench

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
	"github.com/ovn-multinet/ovn-multinet/e2e/labtest"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbtest"
)

// TestFloor compares the ADD of the product with the same requests in a straight line: one process that has its
// connections already and decides nothing.
func TestFloor(t *testing.T) {
	p := report(t, "30-floor", "The floor", `The plugin's own part of an ADD of k networks, with the agent, beside the
least that makes such a pod: one process that has its connections and the pod's network namespace open, and that knows all names
and addresses. It makes k veths with netlink, inserts k ports in one transaction of NB and k ports in one of Open vSwitch, and
waits until ovn-controller has installed the flows of all. It has no journal, no leases, no checks, no status in the API, no TLS,
and is not started by a runtime. The agent uses NB over TLS.`)
	s := &labtest.World{Test: labtest.New(t, patience), Lab: lab.Start(t, lab.Options{})}
	overTLS(t, s.Lab)
	s.Nodes[0].AgentArgs = []string{"--early-ports=false"} // the ADD comes as soon as the pod is there
	s.Start()
	var networks []string
	for i := range maxNetworks {
		networks = append(networks, fmt.Sprint("ovn", i))
		s.NAD(networks[i], fmt.Sprintf(`{"cniVersion":"1.0.0","name":"ovn%d","type":"ovn-multinet","subnets":"10.%d.0.0/16"}`, i, 60+i))
	}
	first := s.Pod(0, "first", strings.Join(networks, ","))
	s.AddInTheEnd(first)
	s.End(first)
	f := newFloor(s)
	for _, k := range []int{1, maxNetworks} {
		var part, floor, start []float64
		for i := range *turns {
			part = append(part, ourPart(s, fmt.Sprintf("ours-%d-%d", k, i), networks[:k]))
			floor = append(floor, ms(f.pod(fmt.Sprintf("floor-%d-%d", k, i), networks[:k]).wall))
			start = append(start, ms(get[cost](t)(timed(s.Nodes[0].NetNS, "", nil, ours(t, lab.PluginType), "--version")).wall))
		}
		row := Compare(fmt.Sprintf("ADD, k = %d", k), "ms", "straight line", part, floor, 1.3)
		row.Bound = fmt.Sprintf("%s ms of ours are the start of the plugin's process: so long it takes to print its version. The "+
			"straight line starts no process: with this start it would take %s ms, and ours %s of that. The rest of ours is the "+
			"journal, the checks, TLS, and two requests to the agent.", short(Median(start)), short(Median(floor)+Median(start)),
			short(Median(part)/(Median(floor)+Median(start))))
		p.Rows = append(p.Rows, row)
	}
}

// ourPart is what the plugin took of a pod's ADD.
func ourPart(s *labtest.World, name string, networks []string) (took float64) {
	pod := s.Pod(0, name, strings.Join(networks, ","))
	s.Nodes[0].ForgetRuns()
	s.Add(pod)
	for _, run := range s.Nodes[0].Runs() {
		if run.Plugin == lab.PluginType {
			took += ms(run.Took)
		}
	}
	s.End(pod)
	return took
}

// floor makes the interfaces of pods in a straight line.
type floor struct {
	*labtest.World
	links  *netlink.Handle // of the node
	nb     *line
	ovs    *line
	bridge string // the row key of br-int
	next   uint16 // of the addresses
}

func newFloor(s *labtest.World) *floor {
	n := s.Nodes[0]
	f := &floor{World: s, nb: dial(s.T, s.NBSocket()), ovs: dial(s.T, n.OVSSocket)}
	f.links = handleAt(s, n.NetNS)
	f.bridge = f.VSCtl(n, "--bare", "get", "Bridge", "br-int", "_uuid")
	f.ovs.request("monitor", "Open_vSwitch", "installed", map[string]any{"Interface": []any{map[string]any{
		"columns": []string{"name", "external_ids"}, "select": map[string]bool{"delete": false}}}})
	return f
}

func handleAt(s *labtest.World, path string) *netlink.Handle {
	ns, err := netns.GetFromPath(path)
	s.Must(err)
	h, err := netlink.NewHandleAt(ns, unix.NETLINK_ROUTE)
	s.Must(err)
	s.Must(ns.Close())
	return h
}

// floorPod is a pod whose names and addresses are known.
type floorPod struct {
	*lab.Pod
	ns                             netns.NsHandle
	inside                         *netlink.Handle
	hosts                          []string // ends of the veths
	macs                           []net.HardwareAddr
	ips                            []string
	nbOps, ovsOps, undoNB, undoOVS []any
}

func (f *floor) prepare(name string, networks []string) *floorPod {
	p := &floorPod{Pod: f.Pod(0, name, "")}
	ns, err := netns.GetFromPath(p.NetNS)
	f.Must(err)
	p.ns, p.inside = ns, handleAt(f.World, p.NetNS)
	f.next++
	high, low := byte(f.next>>8), byte(f.next)
	p.nbOps, p.undoNB = []any{"OVN_Northbound"}, []any{"OVN_Northbound"}
	p.ovsOps, p.undoOVS = []any{"Open_vSwitch"}, []any{"Open_vSwitch"}
	for i, network := range networks {
		host := fmt.Sprintf("fl%d-%d", f.next, i)
		key, port, mac := uuid.NewString(), name+"/"+host, net.HardwareAddr{2, 0, 1, high, low, byte(i)}
		ip := fmt.Sprintf("10.%d.%d.%d", 60+i, 200+high, low)
		p.hosts, p.macs, p.ips = append(p.hosts, host), append(p.macs, mac), append(p.ips, ip+"/16")
		sw := nbtest.ByKey(ovndb.SwitchKey("shop/" + network))
		p.nbOps = append(p.nbOps, portRow(key, port, fmt.Sprint(mac, " ", ip)), ports(sw, "Logical_Switch", "insert", key))
		p.undoNB = append(p.undoNB, ports(sw, "Logical_Switch", "delete", key))
		p.ovsOps = append(p.ovsOps,
			ovndbtest.Op{"op": "insert", "table": "Interface", "uuid-name": fmt.Sprint("i", i), "row": ovndbtest.Op{
				"name": host, "external_ids": ovndbtest.Map(map[string]string{"iface-id": port})}},
			ovndbtest.Op{"op": "insert", "table": "Port", "uuid": key, "row": ovndbtest.Op{
				"name": host, "interfaces": []any{"named-uuid", fmt.Sprint("i", i)}}},
			ports(nbtest.ByKey(f.bridge), "Bridge", "insert", key))
		p.undoOVS = append(p.undoOVS, ports(nbtest.ByKey(f.bridge), "Bridge", "delete", key))
	}
	return p
}

// attach makes the veths and writes the ports. It does not wait for flows.
func (f *floor) attach(p *floorPod) {
	for i, host := range p.hosts {
		f.veth(host, fmt.Sprint("net", i+1), p.macs[i], p.ips[i], p.ns, p.inside)
	}
	f.nb.request("transact", p.nbOps...)
	f.ovs.request("transact", p.ovsOps...)
}

func (f *floor) end(p *floorPod) {
	f.nb.request("transact", p.undoNB...)
	f.ovs.request("transact", p.undoOVS...)
	p.inside.Close() // it holds the namespace
	f.Must(p.ns.Close())
	f.Must(errors.Join(p.RemoveNetNS(), p.RemoveManifest()))
}

// pod makes a pod with interfaces on networks, and returns what that took. The CPU is that of this process.
func (f *floor) pod(name string, networks []string) (c cost) {
	p := f.prepare(name, networks)
	before := ownCPU(f.T)
	c.wall = stopwatch(func() {
		f.attach(p)
		f.ovs.installed(p.hosts)
	})
	c.cpu = ownCPU(f.T) - before
	f.end(p)
	return c
}

// herd makes many pods, one after the other, and returns how long it took until the flows of all were installed.
func (f *floor) herd(n int, networks []string) time.Duration {
	var pods []*floorPod
	var hosts []string
	for i := range n {
		pods = append(pods, f.prepare(fmt.Sprint("floor-", i), networks))
		hosts = append(hosts, pods[i].hosts...)
	}
	took := stopwatch(func() {
		for _, p := range pods {
			f.attach(p)
		}
		f.ovs.installed(hosts)
	})
	for _, p := range pods {
		f.end(p)
	}
	return took
}

// portRow is the operation that inserts a port.
func portRow(key, name, addresses string) ovndbtest.Op {
	return ovndbtest.Op{"op": "insert", "table": "Logical_Switch_Port", "uuid": key,
		"row": ovndbtest.Op{"name": name, "addresses": addresses}}
}

// ports is the operation that inserts a port into a row's ports, or deletes it.
func ports(where any, table, how, key string) ovndbtest.Op {
	return ovndbtest.Op{"op": "mutate", "table": table, "where": where,
		"mutations": []any{[]any{"ports", how, ovndbtest.UUID(key)}}}
}

// veth makes a veth whose end in the pod has the address. Both ends are up.
func (f *floor) veth(host, name string, mac net.HardwareAddr, address string, ns netns.NsHandle, inside *netlink.Handle) {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.NumTxQueues, attrs.NumRxQueues, attrs.Flags = host, 1, 1, net.FlagUp
	f.Must(f.links.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: name, PeerHardwareAddr: mac, PeerNamespace: netlink.NsFd(ns)}))
	link, err := inside.LinkByName(name)
	f.Must(err)
	addr, err := netlink.ParseAddr(address)
	f.Must(err)
	f.Must(inside.AddrAdd(link, addr))
	f.Must(inside.LinkSetUp(link))
}

// line is a connection to an ovsdb-server (RFC 7047).
type line struct {
	t    testing.TB
	conn net.Conn
	in   *json.Decoder
	here map[string]bool // interfaces that are installed
}

func dial(t testing.TB, socket string) *line {
	conn, err := net.Dial("unix", socket)
	must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return &line{t, conn, json.NewDecoder(conn), map[string]bool{}}
}

// message is an answer or a request of the server.
type message struct {
	ID     any               `json:"id"`
	Method string            `json:"method"`
	Params []json.RawMessage `json:"params"`
	Result json.RawMessage   `json:"result"`
	Error  any               `json:"error"`
}

// request sends a request and waits for the answer. An operation that is refused fails the test.
func (l *line) request(method string, params ...any) {
	must(l.t, json.NewEncoder(l.conn).Encode(map[string]any{"method": method, "params": params, "id": 1}))
	for {
		m := l.read()
		if m.Method != "" {
			continue
		}
		if m.Error != nil || bytes.Contains(m.Result, []byte(`"error"`)) {
			l.t.Fatalf("%s: %v %s", method, m.Error, m.Result)
		}
		return
	}
}

// read reads a message. It answers an echo, and notes the interfaces that an update says are installed.
func (l *line) read() (m message) {
	must(l.t, l.in.Decode(&m))
	switch m.Method {
	case "echo":
		must(l.t, json.NewEncoder(l.conn).Encode(map[string]any{"id": m.ID, "result": m.Params, "error": nil}))
	case "update":
		var tables map[string]map[string]struct {
			New struct {
				Name        string `json:"name"`
				ExternalIDs [2]any `json:"external_ids"`
			}
		}
		must(l.t, json.Unmarshal(m.Params[1], &tables))
		for _, row := range tables["Interface"] {
			if strings.Contains(fmt.Sprint(row.New.ExternalIDs), "[ovn-installed true]") {
				l.here[row.New.Name] = true
			}
		}
	}
	return m
}

// installed waits until ovn-controller has installed the flows of interfaces.
func (l *line) installed(names []string) {
	for slices.ContainsFunc(names, func(name string) bool { return !l.here[name] }) {
		l.read()
	}
}
