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

	"github.com/google/uuid"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

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
waits until ovn-controller has installed the flows of all. It has no journal, no leases, no checks, no status in the API, and is
not started by a runtime.`)
	s := &labtest.World{Test: labtest.New(t, patience), Lab: lab.Start(t, lab.Options{})}
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
		var ours, floor []float64
		for i := range *turns {
			ours = append(ours, ourPart(s, fmt.Sprintf("ours-%d-%d", k, i), networks[:k]))
			floor = append(floor, f.pod(fmt.Sprintf("floor-%d-%d", k, i), networks[:k]))
		}
		p.Rows = append(p.Rows, Compare(fmt.Sprintf("ADD, k = %d", k), "ms", "straight line", ours, floor, 1.3))
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
	next   byte   // of the addresses
}

func newFloor(s *labtest.World) *floor {
	n := s.Nodes[0]
	f := &floor{World: s, nb: dial(s, s.NBSocket()), ovs: dial(s, n.OVSSocket)}
	f.links = handleAt(s, n.NetNS)
	f.bridge = f.VSCtl(n, "--bare", "get", "Bridge", "br-int", "_uuid")
	f.ovs.request("monitor", "Open_vSwitch", "installed", map[string]any{"Interface": []any{map[string]any{
		"columns": []string{"name", "external_ids"}, "select": map[string]bool{"delete": false}}}})
	return f
}

func handleAt(s *labtest.World, path string) *netlink.Handle {
	ns, err := netns.GetFromPath(path)
	s.Must(err)
	h, err := netlink.NewHandleAt(ns)
	s.Must(err)
	s.Must(ns.Close())
	return h
}

// pod makes a pod with interfaces on networks, and returns how long that took.
func (f *floor) pod(name string, networks []string) float64 {
	pod := f.Pod(0, name, "")
	ns, err := netns.GetFromPath(pod.NetNS)
	f.Must(err)
	inside := handleAt(f.World, pod.NetNS)
	f.next++
	var nbOps, ovsOps, undoNB, undoOVS []any
	var hosts []string
	for i, network := range networks {
		host := fmt.Sprintf("fl%d-%d", f.next, i)
		hosts = append(hosts, host)
		key, port, mac := uuid.NewString(), name+"/"+host, net.HardwareAddr{2, 0, 0, 1, f.next, byte(i)}
		sw := nbtest.ByKey(ovndb.SwitchKey("shop/" + network))
		nbOps = append(nbOps,
			ovndbtest.Op{"op": "insert", "table": "Logical_Switch_Port", "uuid": key, "row": ovndbtest.Op{
				"name": port, "addresses": fmt.Sprintf("%s 10.%d.200.%d", mac, 60+i, f.next)}},
			ports(sw, "Logical_Switch", "insert", key))
		undoNB = append(undoNB, ports(sw, "Logical_Switch", "delete", key))
		ovsOps = append(ovsOps,
			ovndbtest.Op{"op": "insert", "table": "Interface", "uuid-name": fmt.Sprint("i", i), "row": ovndbtest.Op{
				"name": host, "external_ids": ovndbtest.Map(map[string]string{"iface-id": port})}},
			ovndbtest.Op{"op": "insert", "table": "Port", "uuid": key, "row": ovndbtest.Op{
				"name": host, "interfaces": []any{"named-uuid", fmt.Sprint("i", i)}}},
			ports(nbtest.ByKey(f.bridge), "Bridge", "insert", key))
		undoOVS = append(undoOVS, ports(nbtest.ByKey(f.bridge), "Bridge", "delete", key))
	}
	took := stopwatch(func() {
		for i, host := range hosts {
			f.veth(host, fmt.Sprint("net", i+1), net.HardwareAddr{2, 0, 0, 1, f.next, byte(i)}, fmt.Sprintf("10.%d.200.%d/16", 60+i, f.next), ns, inside)
		}
		f.nb.request("transact", append([]any{"OVN_Northbound"}, nbOps...)...)
		f.ovs.request("transact", append([]any{"Open_vSwitch"}, ovsOps...)...)
		f.ovs.installed(hosts)
	})
	f.nb.request("transact", append([]any{"OVN_Northbound"}, undoNB...)...)
	f.ovs.request("transact", append([]any{"Open_vSwitch"}, undoOVS...)...)
	inside.Close() // it holds the namespace
	f.Must(ns.Close())
	f.Must(errors.Join(pod.RemoveNetNS(), pod.RemoveManifest()))
	return ms(took)
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
	s    *labtest.World
	conn net.Conn
	in   *json.Decoder
	here map[string]bool // interfaces that are installed
}

func dial(s *labtest.World, socket string) *line {
	conn, err := net.Dial("unix", socket)
	s.Must(err)
	s.T.Cleanup(func() { _ = conn.Close() })
	return &line{s, conn, json.NewDecoder(conn), map[string]bool{}}
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
	l.s.Must(json.NewEncoder(l.conn).Encode(map[string]any{"method": method, "params": params, "id": 1}))
	for {
		m := l.read()
		if m.Method != "" {
			continue
		}
		if m.Error != nil || bytes.Contains(m.Result, []byte(`"error"`)) {
			l.s.T.Fatalf("%s: %v %s", method, m.Error, m.Result)
		}
		return
	}
}

// read reads a message. It answers an echo, and notes the interfaces that an update says are installed.
func (l *line) read() (m message) {
	l.s.Must(l.in.Decode(&m))
	switch m.Method {
	case "echo":
		l.s.Must(json.NewEncoder(l.conn).Encode(map[string]any{"id": m.ID, "result": m.Params, "error": nil}))
	case "update":
		var tables map[string]map[string]struct {
			New struct {
				Name        string `json:"name"`
				ExternalIDs [2]any `json:"external_ids"`
			}
		}
		l.s.Must(json.Unmarshal(m.Params[1], &tables))
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
