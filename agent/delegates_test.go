package agent

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
)

func wantCoded(t *testing.T, err error, code uint, want string) {
	t.Helper()
	if err == nil {
		t.Errorf("no error, want %d %s", code, want)
		return
	}
	got, msg, details := conf.Describe(err)
	if got != code || msg != want || details == "" {
		t.Errorf("got  %d %s (%s)\nwant %d %s", got, msg, details, code, want)
	}
}

func replaceDir(text, dir string) string { return strings.Replace(text, "DIR", dir, 1) }

// ext is a network of another plugin.
const ext = `{"cniVersion":"1.0.0","name":"e","type":"bridge","capabilities":{"mac":true}}`

// A pod without OVN networks needs no OVN: neither database is written, and both may be away.
// Conformance: N-36 N-86 N-87 N-93 N-100
func TestDelegatesOnly(t *testing.T) {
	r := newRig(t)
	r.source.nads["ext"] = testNAD{Config: ext}
	r.start()
	nbTables := []string{"Logical_Switch", "Logical_Switch_Port", "Copp", "NB_Global"}
	ovsTables := []string{"Open_vSwitch", "Bridge", "Port", "Interface"}
	nbBefore, ovsBefore := r.nb.DumpTables(t, nbTables...), r.ovs.DumpTables(t, ovsTables...)
	r.nb.Pause()
	defer r.nb.Resume()
	r.ovs.Pause()
	defer r.ovs.Resume()

	p, err := r.planFor("c1", `[{"name":"ext","mac":"02:00:00:00:00:01","cni-args":{"a":1}},{"name":"ext"}]`)
	r.must(err)
	list := `{"cniVersion":"1.0.0","name":"e","plugins":[{%s"capabilities":{"mac":true},"type":"bridge"}]}`
	want := []agentapi.Delegate{
		{Name: "net1", Network: "shop/ext", Conflist: json.RawMessage(fmt.Sprintf(list, `"args":{"cni":{"a":1}},`)),
			Capabilities: map[string]json.RawMessage{"mac": json.RawMessage(`"02:00:00:00:00:01"`)}},
		{Name: "net2", Network: "shop/ext", Conflist: json.RawMessage(fmt.Sprintf(list, "")), Position: 1},
	}
	for i := range want {
		if want[i].Digest = p.Delegates[i].Digest; want[i].Digest == "" {
			t.Errorf("%s has no digest of its request", want[i].Name)
		}
	}
	if !reflect.DeepEqual(p.Delegates, want) || len(p.Interfaces) != 0 || p.Default != nil || len(p.Routes) != 0 {
		t.Errorf("plan %+v\nwant the delegates %+v", p, want)
	}

	r.must(r.call(agentapi.OpBind, agentapi.BindRequest{Sandbox: r.sandbox("c1"), Plan: *p,
		Primary: json.RawMessage(`{"cniVersion":"1.0.0","interfaces":[{"name":"eth0","sandbox":"/x"}]}`),
		Results: []json.RawMessage{json.RawMessage(`{"cniVersion":"0.3.1","interfaces":[{"name":"net1","mac":"02:00:00:00:00:01","sandbox":"/x"}]}`), json.RawMessage("null")}}, nil))
	status, _ := r.source.told()
	if want := `[{"name":"cbr0","interface":"eth0","default":true,"dns":{}},{"name":"shop/ext","interface":"net1","mac":"02:00:00:00:00:01","default":false,"dns":{}},` +
		`{"name":"shop/ext","interface":"net2","default":false,"dns":{}}]`; status != want {
		t.Errorf("status %s\nwant   %s", status, want)
	}
	r.eventually("told", func() bool {
		_, events := r.source.told()
		return slices.Contains(events, "Normal NetworksAttached: net1 on shop/ext, net2 on shop/ext")
	})
	r.must(r.call(agentapi.OpCheck, agentapi.CheckRequest{Sandbox: r.sandbox("c1"), Plan: *p}, nil))

	r.nb.Resume()
	r.ovs.Resume()
	if after := r.nb.DumpTables(t, nbTables...); !reflect.DeepEqual(after, nbBefore) {
		t.Errorf("NB was %v\nand is %v", nbBefore, after)
	}
	if after := r.ovs.DumpTables(t, ovsTables...); !reflect.DeepEqual(after, ovsBefore) {
		t.Errorf("Open vSwitch was %v\nand is %v", ovsBefore, after)
	}
	if got := r.proxy.Counts(); got.Committed != 0 {
		t.Errorf("%d transactions wrote", got.Committed)
	}
}

// What is wrong with a delegate is said without OVN, which may be away.
// Conformance: F-7
func TestRefusedDelegates(t *testing.T) {
	tests := []struct{ name, config, networks, want string }{
		{"not capable", ext, `[{"name":"ext","ips":["10.1.0.7"]}]`, `interface net1: network shop/ext: ips: no plugin of the network declares the capability "ips"`},
		{"configured wrongly", `{"plugins":[]}`, "ext", `interface net1: network shop/ext: spec.config: "plugins" is empty`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t)
			r.source.nads["ext"] = testNAD{Config: tt.config}
			r.start()
			asked := 0
			r.proxy.Before(func(ovndbtest.Transact) { asked++ })
			_, err := r.planFor("c1", tt.networks)
			r.proxy.Before(nil)
			r.wantRefused(err, conf.CodeInvalidConfig, tt.want)
			if asked != 0 {
				t.Errorf("NB was asked %d times: the answer would wait for it when it is away", asked)
			}
		})
	}
}

// A pod on an OVN network and a delegate that is refused gets neither.
func TestRefusedDelegatesBesideOVN(t *testing.T) {
	r := newRig(t)
	r.source.nads["ext"] = testNAD{Config: ext}
	r.start()
	_, err := r.planFor("c1", `[{"name":"blue"},{"name":"ext","bandwidth":{"egressRate":1}}]`)
	r.wantRefused(err, conf.CodeInvalidConfig, "interface net2: network shop/ext: bandwidth")
}

// What the node does not let run is refused before OVN hears of the pod. A plugin of another version does not say,
// and looks for itself.
func TestDelegatesThatTheNodeRefuses(t *testing.T) {
	r := newRig(t)
	r.source.nads["ext"] = testNAD{Config: `{"plugins":[{"type":"bridge","ipam":{"type":"host-local"}},{"type":"tuning"}]}`}
	r.start()
	asked := 0
	r.proxy.Before(func(ovndbtest.Transact) { asked++ })
	for _, tt := range []struct {
		name          string
		allowed, ipam []string
		refused       string
	}{
		{"nothing is allowed", []string{}, []string{}, `"bridge" is not allowed`},
		{"not the second one", []string{"bridge"}, []string{"host-local"}, `"tuning" is not allowed`},
		{"not the one for addresses", []string{"bridge", "tuning"}, []string{}, `"host-local" is not allowed as ipam`},
		{"the one for addresses in the wrong list", []string{"bridge", "tuning", "host-local"}, []string{"bridge"}, `"host-local" is not allowed as ipam`},
		{"a plugin of one list", []string{"bridge", "tuning", "host-local"}, nil, `"host-local" is not allowed as ipam`},
		{"all", []string{"tuning", "bridge"}, []string{"host-local"}, ""},
		{"it says nothing of delegates", nil, []string{"host-local"}, ""},
	} {
		p := &agentapi.Plan{}
		err := r.call(agentapi.OpPlan, agentapi.PlanRequest{Sandbox: r.sandbox("c1"), AllowedDelegates: tt.allowed, AllowedIPAM: tt.ipam, Annotations: map[string]string{conf.NetworksAnnotation: "ext"}}, p)
		if tt.refused == "" {
			if err != nil || len(p.Delegates) != 1 {
				t.Errorf("%s: %+v, %v", tt.name, p, err)
			}
			continue
		}
		r.wantRefused(err, conf.CodeNotAllowed, `interface net1: network shop/ext: delegate `+tt.refused+` on this node`)
	}
	r.proxy.Before(nil)
	if asked != 0 {
		t.Errorf("NB was asked %d times", asked)
	}
}

// A plugin of the version before has one list for both, and sends it alone: its delegates without "ipam" go on.
func TestBoundaryAgentServesPluginWithoutAllowedIPAM(t *testing.T) {
	r := newRig(t)
	r.source.nads["plain"] = testNAD{Config: `{"type":"bridge"}`}
	r.source.nads["leased"] = testNAD{Config: `{"type":"bridge","ipam":{"type":"bridge"}}`}
	r.start()
	ask := func(network string) (*agentapi.Plan, error) {
		p := &agentapi.Plan{}
		return p, r.call(agentapi.OpPlan, agentapi.PlanRequest{Sandbox: r.sandbox("c1"), AllowedDelegates: []string{"bridge"},
			Annotations: map[string]string{conf.NetworksAnnotation: network}}, p)
	}
	if p, err := ask("plain"); err != nil || len(p.Delegates) != 1 {
		t.Errorf("a delegate without ipam: %+v, %v", p, err)
	}
	_, err := ask("leased")
	r.wantRefused(err, conf.CodeNotAllowed, `delegate "bridge" is not allowed as ipam on this node`)
}

// An address by which the pod reaches others is never its own, wherever the pod's hash leads.
func TestGatewaysAreNotLeased(t *testing.T) {
	r := newRig(t)
	r.start()
	for name, annotations := range map[string]map[string]string{
		"default route": {conf.NetworksAnnotation: `[{"name":"blue","default-route":["OWN"]}]`},
		"route":         {conf.NetworksAnnotation: "blue", conf.RoutesAnnotation: `[{"dst":"10.200.0.0/16","gw":"OWN"}]`},
		"of the second": {conf.NetworksAnnotation: `[{"name":"blue"},{"name":"blue","default-route":["OWN"]}]`},
	} {
		t.Run(name, func(t *testing.T) {
			id := strings.ReplaceAll(name, " ", "-")
			before, err := r.planFor(id+"-1", "blue")
			r.must(err)
			own := before.Interfaces[0].Addresses[0].Addr().String()
			for key, text := range annotations {
				annotations[key] = strings.ReplaceAll(text, "OWN", own)
			}
			// The pod's next sandbox would get its old address back.
			p, err := r.planBy(id+"-2", annotations)
			r.must(err)
			for _, i := range p.Interfaces {
				if got := i.Addresses[0].Addr().String(); got == own {
					t.Errorf("%s has the address %s, which is its gateway", i.Name, got)
				}
			}
		})
	}
}

// The operator's flags are the rules for pods.
// Conformance: N-147
func TestRules(t *testing.T) {
	t.Run("isolated", func(t *testing.T) {
		r := newRig(t)
		r.conf.Isolated = true
		r.start()
		_, err := r.planFor("c1", "blue,infra/blue")
		r.wantRefused(err, conf.CodeNotAllowed, "network infra/blue is not for pods of namespace shop")
	})
	t.Run("isolated, but for one namespace", func(t *testing.T) {
		r := newRig(t)
		r.conf.Isolated, r.conf.Global = true, []string{"infra"}
		r.start()
		_, err := r.planFor("c1", "infra/blue") // which does not exist
		r.wantRefused(err, conf.CodeNetworkNotFound, "network infra/blue is not found")
	})
	t.Run("compatible", func(t *testing.T) {
		r := newRig(t)
		r.conf.Compatible = true
		r.source.nads["ext"] = testNAD{Config: ext}
		r.start()
		annotation := `[{"name":"ext","ips":["10.9.0.7"],"gateway":["10.9.0.1"]}]`
		r.source.annotations = map[string]string{conf.NetworksAnnotation: annotation}
		p, err := r.planFor("c1", annotation)
		r.must(err)
		d := p.Delegates[0]
		if want := [][2]string{{"IP", "10.9.0.7"}}; !slices.Equal(d.Args, want) || d.Warning == "" || len(d.Capabilities) != 0 {
			t.Errorf("delegate %+v, want the arguments %v and a warning", d, want)
		}
		r.must(r.call(agentapi.OpBind, agentapi.BindRequest{Sandbox: r.sandbox("c1"), Plan: *p, Primary: json.RawMessage(`{"cniVersion":"1.0.0"}`)}, nil))
		r.eventually("warned", func() bool {
			_, events := r.source.told()
			return slices.Contains(events, "Warning CNIArgs: "+d.Warning) &&
				slices.ContainsFunc(events, func(e string) bool { return strings.HasPrefix(e, "Warning KeyIgnored: annotation") })
		})
	})
}

// A NAD without spec.config is served from the node's folder.
// Conformance: N-3
func TestPlanFromTheFolder(t *testing.T) {
	r := newRig(t)
	r.source.nads["ext"], r.source.nads["bad"] = testNAD{}, testNAD{}
	r.conf.NADConfDir = folder(t, map[string]string{"a.conf": `{"name":"ext","type":"macvlan"}`, "b.conf": `{"name":"bad","plugins":[{}]}`})
	r.start()
	p, err := r.planFor("c1", "ext")
	r.must(err)
	if want := `{"cniVersion":"0.3.1","name":"ext","plugins":[{"type":"macvlan"}]}`; len(p.Delegates) != 1 || string(p.Delegates[0].Conflist) != want {
		t.Errorf("plan %+v, want %s", p, want)
	}
	_, err = r.planFor("c2", `[{"name":"ext","mac":"02:00:00:00:00:01","cni-args":{}},{"name":"bad"}]`)
	r.wantRefused(err, conf.CodeInvalidConfig, `interface net1: network shop/ext: mac: no plugin of the network declares the capability "mac"`)
	_, err = r.planFor("c2", "bad")
	r.wantRefused(err, conf.CodeInvalidConfig, "interface net1: network shop/bad: "+r.conf.NADConfDir+`/b.conf: plugins[0]: "type" is missing`)
}

// Positions, routes and default routes of a pod with both kinds of networks.
// Conformance: N-73
func TestPlanOfBothKinds(t *testing.T) {
	r := newRig(t)
	r.accept("blue", `{"type":"ovn-multinet","subnets":"10.1.0.0/24","mtu":1400,"routes":[{"dst":"192.0.2.0/24"},{"dst":"198.51.100.0/24"}]}`)
	r.source.nads["blue"] = testNAD{Config: `{"type":"ovn-multinet","subnets":"10.1.0.0/24","mtu":1400,"routes":[{"dst":"192.0.2.0/24"},{"dst":"198.51.100.0/24"}]}`}
	r.source.nads["ext"] = testNAD{Config: ext}
	r.conf.KeepOnPrimary = []netip.Prefix{netip.MustParsePrefix("10.96.0.0/12")}
	r.start()
	p, err := r.planBy("c1", map[string]string{
		conf.NetworksAnnotation: `[{"name":"ext"},{"name":"blue","default-route":["10.1.0.9"]},{"name":"ext"}]`,
		conf.RoutesAnnotation:   `[{"dst":"192.0.2.0/24","gw":"169.254.1.1","interface":"eth0"},{"dst":"203.0.113.0/24","gw":"10.1.0.8"}]`,
	})
	r.must(err)
	if len(p.Interfaces) != 1 || p.Interfaces[0].Position != 1 || len(p.Delegates) != 2 || p.Delegates[0].Position != 0 || p.Delegates[1].Position != 2 {
		t.Fatalf("plan %+v", p)
	}
	own := p.Interfaces[0].Routes
	if len(own) != 1 || own[0].Dst.String() != "198.51.100.0/24" {
		t.Errorf("the network's routes %v, want the one that the pod has no other way for", own)
	}
	if got := fmt.Sprint(p.Routes); got != "[192.0.2.0/24 via 169.254.1.1 dev eth0 203.0.113.0/24 via 10.1.0.8 dev net2]" {
		t.Errorf("routes %s", got)
	}
	if want := (&agentapi.Default{Interface: "net2", Gateways: []netip.Addr{netip.MustParseAddr("10.1.0.9")}, Keep: r.conf.KeepOnPrimary}); !reflect.DeepEqual(p.Default, want) {
		t.Errorf("default routes %+v, want %+v", p.Default, want)
	}
	r.must(p.Check("eth0"))
	r.wantRow(p.Interfaces[0])

	// Routes that cannot be are refused before anything is written.
	_, err = r.planBy("c2", map[string]string{conf.NetworksAnnotation: "blue", conf.RoutesAnnotation: `[{"dst":"0.0.0.0/0","interface":"net1"}]`})
	wantCoded(t, err, conf.CodeInvalidConfig, "annotation ovn-multinet/routes: entry 0: dst: 0.0.0.0/0 is the default route, ask for it with default-route in k8s.v1.cni.cncf.io/networks")
	if got := r.ports(); got["shop/web/net2"] != "c1" || len(got) != 1 {
		t.Errorf("ports %v, want the first sandbox's", got)
	}
}

// statusRequest has an OVN network between two delegates.
func statusRequest() *agentapi.BindRequest {
	return &agentapi.BindRequest{
		Sandbox: agentapi.Sandbox{ContainerID: "c1", Interface: "eth0", Conflist: "cbr0"},
		Primary: json.RawMessage(`{"cniVersion":"1.0.0"}`),
		Plan: agentapi.Plan{
			Interfaces: []agentapi.Interface{{Name: "net2", Network: "shop/blue", MAC: "0a:58:0a:01:00:07", MTU: 1400, Position: 1,
				Addresses: []netip.Prefix{netip.MustParsePrefix("10.1.0.7/24")}}},
			Delegates: []agentapi.Delegate{{Name: "net1", Network: "shop/ext"}, {Name: "net3", Network: "shop/ext", Position: 2}},
			Default:   &agentapi.Default{Interface: "net2", Gateways: []netip.Addr{netip.MustParseAddr("10.1.0.1")}},
		},
		Results: []json.RawMessage{nil, json.RawMessage(`{"cniVersion":"1.0.0","ips":[{"address":"10.9.0.7/24"}]}`)},
	}
}

// Conformance: N-95 N-97 N-124 N-125 N-126 F-16
func TestStatusOf(t *testing.T) {
	const (
		primary = `[{"name":"cbr0","interface":"eth0","default":true,"dns":{}},`
		first   = `{"name":"shop/ext","interface":"net1","default":false,"dns":{}},`
		blue    = `{"name":"shop/blue","interface":"net2","ips":["10.1.0.7"],"mac":"0a:58:0a:01:00:07","mtu":1400,"default":false,"dns":{}`
		pci     = `{"type":"pci","version":"1.1.0","pci":{"pci-address":"0000:18:02.5","x":1}}`
		gateway = `,"gateway":["10.1.0.1"],"default-route":["10.1.0.1"]`
		last    = `{"name":"shop/ext","interface":"net3","ips":["10.9.0.7"],"default":false,"dns":{}`
	)
	tests := []struct {
		name   string
		change func(*agentapi.BindRequest)
		want   string
		code   uint // of the error, whose text is want
	}{
		{"by their positions", func(*agentapi.BindRequest) {}, primary + first + blue + gateway + "}," + last + "}]", 0},
		{"default routes by a delegate", func(r *agentapi.BindRequest) { r.Plan.Default.Interface = "net3" }, primary + first + blue + "}," + last + gateway + "}]", 0},
		{"no default routes", func(r *agentapi.BindRequest) { r.Plan.Default = nil }, primary + first + blue + "}," + last + "}]", 0},
		{"fewer results than delegates", func(r *agentapi.BindRequest) { r.Results = nil; r.Plan.Default = nil },
			primary + first + blue + `},{"name":"shop/ext","interface":"net3","default":false,"dns":{}}]`, 0},
		{"a result that the library cannot bear", func(r *agentapi.BindRequest) {
			r.Results[1] = json.RawMessage(`{"cniVersion":"0.4.0","interfaces":[null]}`)
		},
			"interface net3: network shop/ext: result: it cannot be read: runtime error: invalid memory address or nil pointer dereference", conf.CodeDecoding},
		{"a result that is none", func(r *agentapi.BindRequest) { r.Results[1] = json.RawMessage(`{"cniVersion":"9.0.0"}`) },
			`interface net3: network shop/ext: result: unsupported CNI result version "9.0.0"`, conf.CodeDecoding},
		{"device information", func(r *agentapi.BindRequest) {
			r.Devices = []json.RawMessage{json.RawMessage("null"), json.RawMessage(pci)}
		},
			primary + first + blue + gateway + "}," + last + `,"device-info":` + pci + "}]", 0},
		{"device information that is none", func(r *agentapi.BindRequest) {
			r.Devices = []json.RawMessage{json.RawMessage(`{"version":"1.1.0","type":"usb"}`)}
		},
			`interface net1: network shop/ext: device information: type: "usb" is none of pci, vdpa, vhost-user, memif`, conf.CodeDecoding},
		{"no result of the primary network", func(r *agentapi.BindRequest) { r.Primary = json.RawMessage("null") }, "prevResult: it is empty", conf.CodeDecoding},
		{"one position twice", func(r *agentapi.BindRequest) { r.Plan.Delegates[1].Position = 1 }, "the plan has no place 1 for interface net3", conf.CodeInternal},
		{"a position too far", func(r *agentapi.BindRequest) { r.Plan.Interfaces[0].Position = 3 }, "the plan has no place 3 for interface net2", conf.CodeInternal},
		{"a position below 0", func(r *agentapi.BindRequest) { r.Plan.Delegates[0].Position = -1 }, "the plan has no place -1 for interface net1", conf.CodeInternal},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := statusRequest()
			tt.change(r)
			got, err := statusOf(r)
			if tt.code != 0 {
				wantCoded(t, err, tt.code, tt.want)
			} else if err != nil || string(got) != tt.want {
				t.Errorf("got  %s, %v\nwant %s", got, err, tt.want)
			}
		})
	}
}

// Results and device information are other programs' output: nothing in them makes the agent panic, and what it
// writes is JSON.
func FuzzStatusOf(f *testing.F) {
	f.Add([]byte(`{"cniVersion":"0.4.0","interfaces":[null,{"name":"net1","sandbox":"/x"}],"ips":[null,{"version":"4","address":"10.9.0.7/24","interface":7}]}`), []byte("null"))
	f.Add([]byte(`{"cniVersion":"0.2.0","ip4":{"ip":"10.9.0.7/24"}}`), []byte(`{"type":"pci","version":"1.1.0","pci":{"pci-address":"0000:18:02.5"}}`))
	f.Fuzz(func(t *testing.T, result, device []byte) {
		r := statusRequest()
		r.Primary, r.Results, r.Devices = result, []json.RawMessage{result, result}, []json.RawMessage{device, device}
		status, err := statusOf(r)
		if err == nil && !json.Valid(status) || err != nil && status != nil {
			t.Errorf("%s, %v", status, err)
		}
	})
}
