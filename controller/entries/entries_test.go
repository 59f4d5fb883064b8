package entries

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/controller/configfile"
	"github.com/ovn-multinet/ovn-multinet/controller/engine"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/netmodel/entry"
	"github.com/ovn-multinet/ovn-multinet/ovnnet"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/outside"
)

// memory has objects as the API server does: a change of a spec gives another generation.
type memory struct {
	objects []*entry.Object
	events  []string
	fails   error
	clock   int64
}

func (m *memory) Entries(context.Context) ([]*entry.Object, error) {
	if m.fails != nil {
		return nil, m.fails
	}
	var all []*entry.Object
	for _, o := range m.objects {
		same := *o
		all = append(all, &same)
	}
	return all, nil
}

func (m *memory) SetEntryFinalizer(_ context.Context, o *entry.Object, with bool) error {
	for _, other := range m.objects {
		if other.ID() == o.ID() {
			if other.Finalizers = nil; with {
				other.Finalizers = []string{entry.Finalizer}
			} else if other.Deleting {
				m.delete(o.ID())
			}
			break
		}
	}
	return nil
}

func (m *memory) SetEntryStatus(_ context.Context, o *entry.Object, status entry.Status) error {
	at := slices.IndexFunc(m.objects, func(other *entry.Object) bool { return other.ID() == o.ID() && other.UID == o.UID })
	if at < 0 {
		return netmodel.ErrNotFound
	}
	text, err := status.Encode()
	m.objects[at].Status = entry.DecodeStatus(text)
	return err
}

func (m *memory) EntryEvent(o *entry.Object, warning bool, reason, message string) {
	m.events = append(m.events, fmt.Sprintf("%s %v %s: %s", o.ID(), warning, reason, message))
}

// apply creates an object, or changes the spec of one.
func (m *memory) apply(kind, name, spec string) {
	m.clock++
	text := entry.Canonical([]byte(spec))
	for _, o := range m.objects {
		if o.Kind.Name == kind && o.Name == name {
			o.Spec, o.Generation = text, o.Generation+1
			return
		}
	}
	m.objects = append(m.objects, &entry.Object{
		Kind: entry.KindOf(kind), Name: name, UID: fmt.Sprint("u", m.clock), Created: m.clock, Generation: 1, Spec: text,
	})
}

func (m *memory) delete(id string) {
	m.objects = slices.DeleteFunc(m.objects, func(o *entry.Object) bool { return o.ID() == id })
}

// tested is the kind on a memory, whose statuses are written at once.
type tested struct {
	*Kind
	*memory
}

func newTested(t *testing.T, m *memory, file string) *tested {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	leads := func() error { return nil }
	config := configfile.Config{}
	if file != "" {
		config = parsed(t, file)
	}
	k := &tested{New(Config{
		Engine: engine.New(engine.NewQueue(), engine.NewMetrics(), leads, log), Source: m, File: config, Rows: &outside.Outside{},
		HasBridge: func(physical string) (bool, bool) { return physical != "ghost", physical != "unread" },
		Uplinks: func(physical string) (*entry.Nodes, string, bool) {
			if physical == "settling" {
				return &entry.Nodes{Ready: "0/2"}, entry.Settling, true
			}
			return &entry.Nodes{Ready: "1/2", Problems: []string{"n2: why"}}, "1 of 2 nodes", physical != "unread"
		},
		Log: log,
	}), m}
	k.listed = true
	return k
}

func parsed(t *testing.T, file string) configfile.Config {
	t.Helper()
	c, err := configfile.Parse([]byte(file))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// settled makes one pass and returns the names of the routers that count, each with the address of its gateway.
func (k *tested) settled(t *testing.T) string {
	t.Helper()
	config, _, err := k.Operator(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	k.write(t)
	var all []string
	for name, r := range config.Routers {
		for _, e := range r.External {
			name += " " + e.Addr().String()
		}
		for _, p := range r.Pools {
			name += " " + p.Name
		}
		all = append(all, name)
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

// write writes the queued statuses.
func (k *tested) write(t *testing.T) {
	t.Helper()
	users := k.users()
	for _, o := range k.Kind.objects {
		status := k.statusOf(o, users[o.ID()])
		if err := k.states.writeStatus(t.Context(), o.ID(), &verdict{o, status}); err != nil {
			t.Fatal(err)
		}
	}
}

func (m *memory) status(id string) entry.Status {
	for _, o := range m.objects {
		if o.ID() == id {
			return o.Status
		}
	}
	return entry.Status{}
}

func gateway(address string) string {
	return `{"gatewayNodes":"edge=yes","physicalNetworkName":"provider","externalSubnet":"192.0.2.0/24","externalAddress":"` + address + `"}`
}

// TestWhatCountsStays: a refused edit, a second object of one entry and another leader take nothing from what counts.
func TestWhatCountsStays(t *testing.T) {
	m := &memory{}
	k := newTested(t, m, "")
	m.apply("Router", "a", gateway("192.0.2.10"))
	m.apply("Router", "b", gateway("192.0.2.10")) // the same address
	if got := k.settled(t); got != "/a 192.0.2.10" {
		t.Fatalf("routers %s", got)
	}
	if s := m.status("Router/b"); !strings.Contains(s.Reason, "192.0.2.10 is that of router") || s.Accepted != nil {
		t.Errorf("status of b: %+v", s)
	}
	m.apply("Router", "b", gateway("192.0.2.11"))
	if got := k.settled(t); got != "/a 192.0.2.10, /b 192.0.2.11" {
		t.Fatalf("routers %s", got)
	}
	m.apply("Router", "a", gateway("192.0.2.11")) // the address of b, which is younger
	for _, leader := range []*tested{k, newTested(t, m, ""), newTested(t, m, "")} {
		if got := leader.settled(t); got != "/a 192.0.2.10, /b 192.0.2.11" {
			t.Fatalf("after a refused edit the routers are %s", got)
		}
	}
	if s := m.status("Router/a"); s.Counts() || !strings.Contains(string(s.Accepted), "192.0.2.10") {
		t.Errorf("status of a: %+v", s)
	}
	k = newTested(t, m, "")
	m.delete("Router/b")
	if got := k.settled(t); got != "/a 192.0.2.11" {
		t.Errorf("the address is free, and the routers are %s", got)
	}
	want := []string{
		"Router/a false EntryAccepted: the configuration has the entry /a",
		"Router/b true EntryRefused: router /b: externalAddress: 192.0.2.10 is that of router /a; nothing of the object counts",
		"Router/b false EntryAccepted: the configuration has the entry /b",
		"Router/a true EntryRefused: router /b: externalAddress: 192.0.2.11 is that of router /a; what was accepted before still counts",
		"Router/a false EntryAccepted: the configuration has the entry /a",
	}
	if got := strings.Join(m.events, "\n"); got != strings.Join(want, "\n") {
		t.Errorf("Events\n%s\nwant\n%s", got, strings.Join(want, "\n"))
	}
}

// TestPools: a pool waits for its router, and a router cannot be edited away from under its pools.
func TestPools(t *testing.T) {
	m := &memory{}
	k := newTested(t, m, "")
	m.apply("AddressPool", "public", `{"router":"/edge","addresses":"192.0.2.16/28","namespaces":{"shop":5}}`)
	if got := k.settled(t); got != "" {
		t.Fatalf("routers %s", got)
	}
	m.apply("Router", "edge", gateway("192.0.2.10"))
	if got := k.settled(t); got != "/edge 192.0.2.10 public" {
		t.Fatalf("routers %s", got)
	}
	m.apply("Router", "edge", gateway("192.0.2.17")) // in the pool
	if got := k.settled(t); got != "/edge 192.0.2.10 public" {
		t.Fatalf("routers %s", got)
	}
	if s := m.status("Router/edge"); s.Users != 1 || s.UsedBy[0] != "AddressPool/public" {
		t.Errorf("status %+v", s)
	}
}

// TestFileCounts: an entry of the file counts before an object of the same name that says something else; an equal object
// takes its place without a gap.
func TestFileCounts(t *testing.T) {
	m := &memory{}
	k := newTested(t, m, `{"routers":{"/a":`+gateway("192.0.2.10")+`}}`)
	m.apply("Router", "a", gateway("192.0.2.11"))
	if got := k.settled(t); got != "/a 192.0.2.10" || !strings.Contains(m.status("Router/a").Reason, "--config describes /a otherwise") {
		t.Fatalf("routers %s, %+v", got, m.status("Router/a"))
	}
	m.apply("Router", "a", gateway("192.0.2.10"))
	if got := k.settled(t); got != "/a 192.0.2.10" || m.status("Router/a").Reason != "" {
		t.Fatalf("routers %s, %+v", got, m.status("Router/a"))
	}
	k.Replace(parsed(t, `{}`))
	if got := k.settled(t); got != "/a 192.0.2.10" {
		t.Fatalf("routers %s", got)
	}
	k.Replace(parsed(t, `{"routers":{"/b":`+gateway("192.0.2.10")+`}}`))
	if got := k.settled(t); got != "/b 192.0.2.10" {
		t.Fatalf("routers %s", got)
	}
	if s := m.status("Router/a"); s.Accepted != nil || !strings.Contains(s.Reason, "192.0.2.10 is that of router") {
		t.Errorf("status %+v", s)
	}
}

// TestUnreadObjects: a source that does not answer changes nothing, and its objects are not taken for deleted.
func TestUnreadObjects(t *testing.T) {
	m := &memory{}
	k := newTested(t, m, "")
	m.apply("Router", "a", gateway("192.0.2.10"))
	k.settled(t)
	m.fails = errors.New("no answer")
	if _, changed, err := k.Operator(t.Context()); err == nil || changed {
		t.Errorf("changed %v, %v", changed, err)
	}
	m.fails = nil
	if _, changed, err := k.Operator(t.Context()); err != nil || changed {
		t.Errorf("changed %v, %v", changed, err)
	}
}

// TestOneOfMany: one object that does not fit refuses no other one, and the attempts do not grow with their number.
func TestOneOfMany(t *testing.T) {
	m := &memory{}
	for i := range 500 {
		m.apply("SecurityProfile", fmt.Sprint("p", i), `{"namespaces":["shop"]}`)
	}
	m.apply("SecurityProfile", "p250", `{"namespaces":[]}`)
	m.apply("SecurityProfile", "p7", `{"namespace":["shop"]}`)
	k := newTested(t, m, "")
	config, _, err := k.Operator(t.Context())
	if err != nil || len(config.Profiles) != 498 {
		t.Fatalf("%d profiles, %v", len(config.Profiles), err)
	}
	k.write(t)
	if s := m.status("SecurityProfile/p7"); !strings.Contains(s.Reason, `unknown key "namespace"`) {
		t.Errorf("status %+v", s)
	}
}

// TestUsers: an object names the networks that need it, and no other.
func TestUsers(t *testing.T) {
	m := &memory{}
	k := newTested(t, m, "")
	m.apply("Router", "core", `{"namespaces":{"*":{"subnets":"10.0.0.0/8"}}}`)
	m.apply("PhysicalNetwork", "shops", `{"physicalNetworkName":"provider","grants":[{"vlans":"100-199","namespaces":["shop"]}]}`)
	m.apply("PhysicalNetwork", "webs", `{"physicalNetworkName":"provider","grants":[{"vlans":"100-199","namespaces":["web"]}]}`)
	m.apply("SecurityProfile", "dns", `{"namespaces":["shop"]}`)
	m.apply("PhysicalNetwork", "nics", `{"physicalNetworkName":"provider","uplinks":[{"interface":"eth1"}]}`)
	m.apply("Router", "edge", gateway("192.0.2.10"))
	k.settled(t)
	accept := func(name, config string) {
		t.Helper()
		n, err := netmodel.ParseNetwork("shop", name, []byte(`{"cniVersion":"1.0.0","name":"x","type":"ovn-multinet",`+config+`}`))
		if err != nil {
			t.Fatal(err)
		}
		k.NetworkAccepted("shop/"+name, n, true)
	}
	for i := range entry.MaxUsedBy + 2 {
		accept(fmt.Sprint("n", i), fmt.Sprintf(`"subnets":"10.%d.0.0/16","router":"/core"`, i))
	}
	accept("plain", `"subnets":"10.99.0.0/16"`)
	accept("vlan", `"topology":"localnet","physicalNetworkName":"provider","vlanID":100,"securityProfiles":["dns"]`)
	accept("old", `"topology":"localnet","physicalNetworkName":"provider","vlanID":101`)
	k.NetworkAccepted("shop/old", nil, false)
	k.write(t)
	for id, want := range map[string]string{
		"Router/core": "12 network shop/n0", "PhysicalNetwork/shops": "1 network shop/vlan", "PhysicalNetwork/webs": "0 ",
		"SecurityProfile/dns": "1 network shop/vlan", "PhysicalNetwork/nics": "2 network shop/vlan", // and the gateway
	} {
		s := m.status(id)
		first := ""
		if len(s.UsedBy) > 0 {
			first = s.UsedBy[0]
		}
		if got := fmt.Sprint(s.Users, " ", first); got != want || len(s.UsedBy) > entry.MaxUsedBy {
			t.Errorf("%s is used by %s (%d names), want %s", id, got, len(s.UsedBy), want)
		}
	}
	if err := k.QueueAll(t.Context(), map[string]*ovnnet.Listed{}); err != nil {
		t.Fatal(err)
	}
	k.write(t)
	if s := m.status("Router/core"); s.Users != 0 {
		t.Errorf("without networks: %+v", s)
	}
	if s := m.status("PhysicalNetwork/nics"); fmt.Sprint(s.UsedBy) != "[the gateway of router /edge]" {
		t.Errorf("a gateway needs the uplink: %+v", s)
	}
}

// TestDeletion: an object goes when nobody needs it any more, and counts until then.
func TestDeletion(t *testing.T) {
	m := &memory{}
	k := newTested(t, m, "")
	m.apply("Router", "a", gateway("192.0.2.10"))
	m.apply("AddressPool", "public", `{"router":"/a","addresses":"192.0.2.16/28","namespaces":{"shop":5}}`)
	k.settled(t)
	user := outside.Key{Router: "/a", User: outside.User{Namespace: "shop", Pod: "web", Interface: "net1"}}
	k.HasAddresses(user, []netip.Addr{netip.MustParseAddr("192.0.2.17")})
	k.write(t)
	for _, o := range m.objects {
		if o.Deleting = true; !o.HasFinalizer() {
			t.Errorf("%s has no finalizer", o.ID())
		}
	}
	if got := k.settled(t); got != "/a 192.0.2.10 public" {
		t.Errorf("while the objects are being deleted the routers are %s", got)
	}
	if got, want := m.events[len(m.events)-1], "AddressPool/public true EntryInUse: "+inUse+": shop/web/net1"; got != want {
		t.Errorf("Event %s, want %s", got, want)
	}
	k.HasAddresses(user, nil)
	for range 2 { // the pool, and then its router
		k.settled(t)
	}
	if got := k.settled(t); got != "" || len(m.objects) != 0 {
		t.Errorf("routers %s, %d objects", got, len(m.objects))
	}
}

// TestNewLeader: a controller that begins to lead has seen neither networks nor gateways. What it has not seen yet stays as
// the former one wrote it, and an object that is being deleted stays.
func TestNewLeader(t *testing.T) {
	m := &memory{}
	k := newTested(t, m, "")
	m.apply("Router", "core", gateway("192.0.2.10"))
	m.apply("Router", "other", gateway("192.0.2.11"))
	m.apply("Router", "third", gateway("192.0.2.12"))
	k.settled(t)
	blue, err := netmodel.ParseNetwork("shop", "blue", []byte(`{"cniVersion":"1.0.0","name":"x","type":"ovn-multinet","subnets":"10.1.0.0/16","router":"/core"}`))
	if err != nil {
		t.Fatal(err)
	}
	k.NetworkAccepted("shop/blue", blue, true)
	k.Gateway("/other", "no node")
	k.write(t)
	m.objects[0].Deleting = true
	k.settled(t)
	m.apply("Router", "third", gateway("192.0.2.10")) // while nobody leads, and wrong
	before := len(m.events)

	k = newTested(t, m, "")
	k.listed = false
	if got := k.settled(t); got != "/core 192.0.2.10, /other 192.0.2.11, /third 192.0.2.12" {
		t.Fatalf("routers %s", got)
	}
	core, other := m.status("Router/core"), m.status("Router/other")
	if core.Users != 1 || core.Problem != inUse || other.Problem != "no node" || len(m.events) != before+1 {
		t.Errorf("statuses %+v and %+v, Events %q", core, other, m.events[before:])
	}
	for _, o := range m.objects { // each status is as it was written: nothing is to be written again
		if status := k.statusOf(o, k.users()[o.ID()]); !same(status, o.Status) {
			t.Errorf("the status of %s is written again: %+v, and it has %+v", o.ID(), status, o.Status)
		}
	}
	if err := k.QueueAll(t.Context(), map[string]*ovnnet.Listed{"shop/blue": {Config: blue}}); err != nil {
		t.Fatal(err)
	}
	// A network whose configuration cannot be read needs what it needed before.
	if err := k.QueueAll(t.Context(), map[string]*ovnnet.Listed{"shop/blue": {}}); err != nil {
		t.Fatal(err)
	}
	k.settled(t)
	if core := m.status("Router/core"); core.Users != 1 {
		t.Errorf("status %+v", core)
	}
	if err := k.QueueAll(t.Context(), map[string]*ovnnet.Listed{}); err != nil {
		t.Fatal(err)
	}
	k.settled(t)
	if got := k.settled(t); got != "/other 192.0.2.11, /third 192.0.2.10" {
		t.Errorf("routers %s", got)
	}
}

// TestBridges: a physical network that no node has a bridge for says so. Until all nodes are read, what the
// former controller said stays.
func TestBridges(t *testing.T) {
	m := &memory{}
	k := newTested(t, m, "")
	for _, name := range []string{"provider", "ghost", "unread"} {
		m.apply("PhysicalNetwork", name, `{"grants":[{"vlans":"7","namespaces":["shop"]}]}`)
	}
	m.objects[2].Status = entry.Status{Observed: 1, Problem: "as before", Accepted: m.objects[2].Spec}
	k.settled(t)
	for id, want := range map[string]string{
		"provider": "", "unread": "as before",
		"ghost": "no node has a bridge for it: write uplinks, like [{interface: eth1}]",
	} {
		if s := m.status("PhysicalNetwork/" + id); s.Problem != want || !s.Counts() || s.Nodes != nil {
			t.Errorf("%s: %+v, want the problem %q", id, s, want)
		}
	}
	// With uplinks the nodes count, not whether some node has a bridge.
	for _, name := range []string{"provider", "unread", "settling"} {
		m.apply("PhysicalNetwork", name, `{"uplinks":[{"interface":"eth1"}]}`)
	}
	m.objects[2].Status.Nodes = &entry.Nodes{Ready: "7/8"}
	k.settled(t)
	for id, want := range map[string]string{"provider": "1 of 2 nodes 1/2 [n2: why]", "unread": entry.NotYet + " 7/8 []"} {
		s := m.status("PhysicalNetwork/" + id)
		if s.Nodes == nil || fmt.Sprint(s.Problem, " ", s.Nodes.Ready, " ", s.Nodes.Problems) != want {
			t.Errorf("%s: %+v, want %s", id, s, want)
		}
	}
	for _, word := range []string{entry.NotYet, entry.Settling} {
		if slices.ContainsFunc(m.events, func(e string) bool { return strings.Contains(e, word) }) {
			t.Errorf("an Event says %s: %q", word, m.events)
		}
	}
	// The nodes are gone from the status when the uplinks are gone.
	m.apply("PhysicalNetwork", "provider", `{"grants":[]}`)
	k.settled(t)
	if s := m.status("PhysicalNetwork/provider"); s.Nodes != nil || s.Problem != "" {
		t.Errorf("without uplinks: %+v", s)
	}
}

// TestGateway: a router whose gateway has no node says so, until it has one.
func TestGateway(t *testing.T) {
	m := &memory{}
	k := newTested(t, m, "")
	m.apply("Router", "a", gateway("192.0.2.10"))
	k.settled(t)
	for _, problem := range []string{"no node", ""} {
		k.Gateway("/a", problem)
		k.write(t)
		if s := m.status("Router/a"); s.Problem != problem || s.Ready.IsZero() {
			t.Errorf("status %+v", s)
		}
	}
	if got := m.events[len(m.events)-1]; got != "Router/a true EntryIncomplete: no node" {
		t.Errorf("Event %s", got)
	}
}
