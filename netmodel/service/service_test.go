package service

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/netmodel/cost"
)

var ours = map[string]string{ProxyLabel: ProxyName}

// annotations returns those of a Service on network blue; more are further pairs.
func annotations(more ...string) map[string]string {
	all := map[string]string{NetworkAnnotation: "blue", SelectorAnnotation: "app=web"}
	for i := 0; i < len(more); i += 2 {
		all[more[i]] = more[i+1]
	}
	return all
}

const onePort = `,"ports":[{"port":80}]`

// spec returns a spec with these keys.
func spec(keys string) string { return `{"clusterIP":"None"` + keys + `}` }

func parsed(t *testing.T, spec string, annotations map[string]string) *Service {
	t.Helper()
	o := NewObject("shop", "web", 7, ours, annotations, []byte(spec))
	if o == nil || o.Service == nil {
		t.Fatalf("refused: %+v", o)
	}
	return o.Service
}

func addresses(list ...string) (all []netip.Addr) {
	for _, a := range list {
		all = append(all, netip.MustParseAddr(a))
	}
	return all
}

func TestParse(t *testing.T) {
	s := parsed(t, spec(`,"type":"ClusterIP","clusterIPs":["None"],"internalTrafficPolicy":"Cluster",
		"ipFamilyPolicy":"RequireDualStack","ipFamilies":["IPv4","IPv6"],"publishNotReadyAddresses":true,
		"sessionAffinity":"ClientIP","sessionAffinityConfig":{"clientIP":{"timeoutSeconds":10800}},
		"ports":[{"name":"http","port":80,"targetPort":8080,"protocol":"TCP","appProtocol":"h2c"},
			{"name":"dns","port":53,"targetPort":"dns","protocol":"UDP"},{"name":"s","port":80,"protocol":"SCTP"}]`),
		annotations(NetworkAnnotation, " other/red ", SelectorAnnotation, "b in (2,1), a=1", AddressAnnotation, "fd01::9, 10.1.0.9"))
	if s.NAD != "other/red" || s.Pods != "a=1,b in (1,2)" || s.Auto || s.Headless() || !s.Affinity || !s.NotReady ||
		s.Created != 7 || s.ID() != "shop/web" {
		t.Errorf("got %+v", s)
	}
	if !slices.Equal(s.Fixed, addresses("10.1.0.9", "fd01::9")) {
		t.Errorf("addresses %v", s.Fixed)
	}
	h2c := "h2c"
	want := []Port{{"http", "tcp", 80, 8080, "", &h2c}, {"dns", "udp", 53, 0, "dns", nil}, {"s", "sctp", 80, 80, "", nil}}
	if !reflect.DeepEqual(s.Ports, want) {
		t.Errorf("ports %+v", s.Ports)
	}
	again, err := ParseText("shop", "web", s.Text)
	if err != nil || !reflect.DeepEqual(again, s) {
		t.Errorf("%v; from its text %+v, want %+v", err, again, s)
	}
}

// TestLongText: JSON in NB may be longer than what a tenant may write, and is read all the same.
func TestLongText(t *testing.T) {
	s := parsed(t, spec(`,"ports":[{"port":80,"appProtocol":"`+strings.Repeat("<", MaxText-100)+`"}]`), annotations())
	if again, err := ParseText("shop", "web", s.Text); err != nil || !reflect.DeepEqual(again, s) {
		t.Errorf("%v, text of %d bytes", err, len(s.Text))
	}
}

// TestOurs: a Service of another proxy is none of ours, whatever it says.
func TestOurs(t *testing.T) {
	for _, labels := range []map[string]string{nil, {ProxyLabel: "other"}} {
		if o := NewObject("shop", "web", 1, labels, annotations(), []byte(spec(onePort))); o != nil {
			t.Errorf("labels %v: %+v", labels, o)
		}
	}
	o := NewObject("shop", "web", 1, ours, annotations(StateAnnotation, strings.Repeat("x", 1<<20)), []byte(spec("")))
	if o.Service == nil || !o.Service.Headless() || len(o.State) != maxState {
		t.Errorf("refused: %s", o.Refusal)
	}
}

func TestRefused(t *testing.T) {
	many := func(n int) (list string) {
		for i := range n {
			list += fmt.Sprintf(`,{"name":"p%d","port":%d}`, i, i+1)
		}
		return `,"ports":[` + strings.TrimPrefix(list, ",") + `]`
	}
	ports := func(list string) string { return spec(`,"ports":[` + list + `]`) }
	auto := annotations(AddressAnnotation, "auto")
	tests := []struct {
		name, spec  string
		annotations map[string]string
		why         string
	}{
		{"no JSON", `{`, auto, "spec: "},
		{"an unknown field", spec(`,"portz":[]`), auto, `unknown field "portz"`},
		{"a field twice", spec(`,"clusterIP":"None"`), auto, "duplicate"},
		{"too long", spec(`,"externalName":"` + strings.Repeat("x", MaxText) + `"`), auto, "16384 is the limit"},
		{"type NodePort", spec(`,"type":"NodePort"`), auto, `spec.type: "NodePort"`},
		{"type ExternalName", spec(`,"type":"ExternalName"`), auto, `spec.type: "ExternalName"`},
		{"a clusterIP", `{"clusterIP":"10.96.0.9"}`, auto, `spec.clusterIP: write "None"`},
		{"no clusterIP", `{}`, auto, `spec.clusterIP: write "None"`},
		{"other clusterIPs", spec(`,"clusterIPs":["10.96.0.9"]`), auto, "spec.clusterIPs: "},
		{"a selector", spec(`,"selector":{"app":"web"}`), auto, "spec.selector: leave it out and write the annotation"},
		{"internalTrafficPolicy", spec(`,"internalTrafficPolicy":"Local"`), auto, "spec.internalTrafficPolicy: Local"},
		{"externalIPs", spec(`,"externalIPs":["192.0.2.1"]`), auto, "spec.externalIPs: "},
		{"externalName", spec(`,"externalName":"x"`), auto, "spec.externalName: "},
		{"externalTrafficPolicy", spec(`,"externalTrafficPolicy":"Cluster"`), auto, "spec.externalTrafficPolicy: "},
		{"healthCheckNodePort", spec(`,"healthCheckNodePort":1`), auto, "spec.healthCheckNodePort: "},
		{"loadBalancerIP", spec(`,"loadBalancerIP":"192.0.2.1"`), auto, "spec.loadBalancerIP: "},
		{"loadBalancerSourceRanges", spec(`,"loadBalancerSourceRanges":["192.0.2.0/24"]`), auto, "spec.loadBalancerSourceRanges: "},
		{"loadBalancerClass", spec(`,"loadBalancerClass":"x/y"`), auto, "spec.loadBalancerClass: "},
		{"allocateLoadBalancerNodePorts", spec(`,"allocateLoadBalancerNodePorts":false`), auto, "spec.allocateLoadBalancerNodePorts: "},
		{"trafficDistribution", spec(`,"trafficDistribution":"PreferClose"`), auto, "spec.trafficDistribution: "},
		{"affinity of a headless Service", spec(`,"sessionAffinity":"ClientIP"`), annotations(), "needs a virtual address"},
		{"an unknown affinity", spec(`,"sessionAffinity":"Cookie"`), auto, `spec.sessionAffinity: "Cookie"`},
		{"a timeout", spec(`,"sessionAffinity":"ClientIP","sessionAffinityConfig":{"clientIP":{"timeoutSeconds":60}}`), auto,
			"spec.sessionAffinityConfig.clientIP.timeoutSeconds: 60"},
		{"an unknown family", spec(`,"ipFamilies":["IPv5"]`), auto, "spec.ipFamilies: "},
		{"a family twice", spec(`,"ipFamilies":["IPv4","IPv4"]`), auto, "spec.ipFamilies: "},
		{"an unknown policy of families", spec(`,"ipFamilyPolicy":"Any"`), auto, `spec.ipFamilyPolicy: "Any"`},
		{"two families of one", spec(`,"ipFamilyPolicy":"SingleStack","ipFamilies":["IPv4","IPv6"]`), auto, "spec.ipFamilyPolicy: "},
		{"an address of another family", spec(`,"ipFamilies":["IPv4"]`), annotations(AddressAnnotation, "fd01::9"), "address fd01::9"},
		{"no port", spec(""), auto, "spec.ports: "},
		{"many ports", spec(many(MaxPorts + 1)), auto, "32 is the limit"},
		{"a port without a name", ports(`{"name":"a","port":1},{"port":2}`), auto, "spec.ports[1].name: it is missing"},
		{"a name twice", ports(`{"name":"a","port":1},{"name":"a","port":2}`), auto, "spec.ports[1].name: another"},
		{"a bad name", ports(`{"name":"A_b","port":1}`), auto, "spec.ports[0].name"},
		{"a number twice", ports(`{"name":"a","port":1},{"name":"b","port":1}`), auto, "spec.ports[1].port: another"},
		{"another protocol", ports(`{"port":1,"protocol":"ICMP"}`), auto, "spec.ports[0].protocol"},
		{"port 0", ports(`{"port":0}`), auto, "spec.ports[0].port: 0"},
		{"port 65536", ports(`{"port":65536}`), auto, "spec.ports[0].port: 65536"},
		{"a bad target", ports(`{"port":1,"targetPort":65536}`), auto, "spec.ports[0].targetPort: 65536"},
		{"a bad name of a target", ports(`{"port":1,"targetPort":"8080"}`), auto, `spec.ports[0].targetPort: "8080"`},
		{"a node port", ports(`{"port":1,"nodePort":30000}`), auto, "spec.ports[0].nodePort"},
		{"no network", spec(onePort), annotations(NetworkAnnotation, " "), NetworkAnnotation + " is missing"},
		{"two networks", spec(onePort), annotations(NetworkAnnotation, "blue,red"), `"blue,red"`},
		{"no network's name", spec(onePort), annotations(NetworkAnnotation, "a/b/c"), `"a/b/c"`},
		{"no selector", spec(onePort), annotations(SelectorAnnotation, ""), SelectorAnnotation + " is missing"},
		{"a bad selector", spec(onePort), annotations(SelectorAnnotation, "a in"), SelectorAnnotation},
		{"an empty address", spec(onePort), annotations(AddressAnnotation, ""), AddressAnnotation},
		{"no address", spec(onePort), annotations(AddressAnnotation, "10.1.0.0/24"), `"10.1.0.0/24"`},
		{"auto and an address", spec(onePort), annotations(AddressAnnotation, "10.1.0.9,auto"), `"auto"`},
		{"an IPv4 address in IPv6", spec(onePort), annotations(AddressAnnotation, "::ffff:10.1.0.9"), "::ffff:"},
		{"two addresses of a family", spec(onePort), annotations(AddressAnnotation, "10.1.0.9,10.1.0.8"), "one address of each family"},
		{"a misspelt annotation", spec(onePort), annotations("ovn-multinet/service-adress", "auto"), "service-adress is not known"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o := NewObject("shop", "web", 1, ours, tt.annotations, []byte(tt.spec))
			if o.Service != nil || !strings.Contains(o.Refusal, tt.why) {
				t.Errorf("refused: %q, want %q", o.Refusal, tt.why)
			}
		})
	}
	if o := NewObject("shop", "web", 1, ours, auto, []byte(spec(many(MaxPorts)))); o.Service == nil {
		t.Errorf("%d ports are refused: %s", MaxPorts, o.Refusal)
	}
}

func network(t *testing.T, keys string) *netmodel.Network {
	t.Helper()
	n, err := netmodel.ParseNetwork("shop", "blue", []byte(`{"name":"x","type":"ovn-multinet",`+keys+`}`))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestSubnets: which families of a network a service has addresses of.
func TestSubnets(t *testing.T) {
	const (
		four, six, dual = `"subnets":"10.1.0.0/24"`, `"subnets":"fd01::/64"`, `"subnets":"10.1.0.0/24,fd01::/64"`
		layer3          = `"topology":"layer3","subnets":"10.128.0.0/16/24"`
		byAPI           = `,"ipFamilyPolicy":"RequireDualStack","ipFamilies":["IPv4","IPv6"]`
	)
	tests := []struct{ network, spec, address, want string }{
		{dual, "", "auto", "[0 1]"},
		{dual, byAPI, "auto", "[0 1]"},
		{four, byAPI, "auto", "[0]"},
		{six, byAPI, "auto", "[0]"},
		{dual, `,"ipFamilies":["IPv6"]`, "auto", "[1]"},
		{dual, `,"ipFamilyPolicy":"SingleStack"`, "auto", "[0]"},
		{dual, `,"ipFamilyPolicy":"SingleStack","ipFamilies":["IPv6"]`, "auto", "[1]"},
		{four, `,"ipFamilies":["IPv6"]`, "auto", "spec.ipFamilies"},
		{dual, byAPI, "fd01::9", "[1]"},
		{dual, byAPI, "10.1.0.9,fd01::9", "[0 1]"},
		{dual, byAPI, "10.2.0.9", "outside"},
		{dual, byAPI, "10.1.0.1", "gateway"},
		{four + `,"excludeSubnets":"10.1.0.8/29"`, byAPI, "10.1.0.9", "excluded"},
		{`"mtu":1400`, byAPI, "auto", "no subnets"},
		{layer3, byAPI, "auto", "[0]"},
		{layer3, byAPI, "10.128.7.9", "[0]"},
		{layer3, byAPI, "10.128.7.0", "address 10.128.7.0 is the network address of 10.128.7.0/24"},
		{layer3, byAPI, "10.128.7.1", "address 10.128.7.1 is the gateway of node subnet 10.128.7.0/24 of network"},
		{layer3, byAPI, "10.128.7.255", "address 10.128.7.255 is the broadcast address of 10.128.7.0/24"},
		{layer3, byAPI, "", "[0]"},
		{`"topology":"localnet","physicalNetworkName":"p",` + four, byAPI, "auto", "topology localnet"},
		{dual, byAPI, "", "[0 1]"},
		{`"subnets":"10.1.0.0/24,fd01::/127"`, byAPI, "", "[0 1]"},
		{`"subnets":"10.1.0.0/24,fd01::/127"`, byAPI, "auto", "has the subnet fd01::/127, and pods have both of its addresses"},
		{`"subnets":"10.1.0.0/31"`, byAPI, "10.1.0.1", "has the subnet 10.1.0.0/31, and pods have both of its addresses"},
	}
	for _, tt := range tests {
		all := annotations()
		if tt.address != "" {
			all[AddressAnnotation] = tt.address
		}
		list, err := parsed(t, spec(tt.spec+onePort), all).Subnets(network(t, tt.network))
		if got := fmt.Sprint(list); err == nil && got != tt.want || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s, %s, %q: %s, %v; want %s", tt.network, tt.spec, tt.address, got, err, tt.want)
		}
	}
}

// TestBackends: both families, named ports, readiness; the order of pods and of their addresses does not matter.
// Inside has all pods, ready or not, at all of their addresses on the network; none if all outside hosts may connect.
func TestInside(t *testing.T) {
	keys := `,"ports":[{"name":"http","port":80,"targetPort":"web"},{"name":"dns","port":53,"protocol":"UDP"}]`
	pods := []Backend{
		{Ready: true, Addresses: addresses("10.1.0.2", "fd01::2"), Further: addresses("10.1.0.7"), Ports: map[string]uint16{"tcp/web": 81}},
		{Addresses: addresses("10.1.0.3")},
	}
	open := parsed(t, spec(keys), annotations(OutsideAnnotation, "auto"))
	limited := parsed(t, spec(keys), annotations(OutsideAnnotation, "auto", SourcesAnnotation, "192.0.2.0/24"))
	const want = "map[] map[tcp:[10.1.0.2:81 10.1.0.7:81 [fd01::2]:81] udp:[10.1.0.2:53 10.1.0.3:53 10.1.0.7:53 [fd01::2]:53]]"
	if got := fmt.Sprint(open.Inside(pods), limited.Inside(pods)); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	before, after := open.Cost(pods), limited.Cost(pods)
	if before[cost.Bytes] >= after[cost.Bytes]-aclBytes || before[cost.Flows] >= after[cost.Flows] {
		t.Errorf("cost without sources %v, with sources %v: the guards cost nothing", before, after)
	}
}

func TestBackends(t *testing.T) {
	keys := `,"ports":[{"name":"http","port":80,"targetPort":"web"},{"name":"dns","port":53,"protocol":"UDP"}]`
	pods := []Backend{
		{Ready: true, Addresses: addresses("fd01::b", "10.1.0.11"), Ports: map[string]uint16{"tcp/web": 8080}},
		{Ready: true, Addresses: addresses("10.1.0.2", "10.1.0.99", "fd01::2"), Ports: map[string]uint16{"tcp/web": 81, "udp/web": 5}},
		{Ready: true, Addresses: addresses("10.1.0.3")},
		{Addresses: addresses("10.1.0.4"), Ports: map[string]uint16{"tcp/web": 8080}},
	}
	vips := addresses("10.1.0.200", "fd01::c8")
	for _, notReady := range []bool{false, true} {
		s := parsed(t, spec(fmt.Sprintf(`%s,"publishNotReadyAddresses":%t`, keys, notReady)), annotations(AddressAnnotation, "auto"))
		four, fourUDP := "10.1.0.2:81,10.1.0.11:8080", "10.1.0.2:53,10.1.0.3:53,10.1.0.11:53"
		if notReady {
			four, fourUDP = "10.1.0.2:81,10.1.0.4:8080,10.1.0.11:8080", "10.1.0.2:53,10.1.0.3:53,10.1.0.4:53,10.1.0.11:53"
		}
		want := map[string]map[string]string{
			"tcp": {"10.1.0.200:80": four, "[fd01::c8]:80": "[fd01::2]:81,[fd01::b]:8080"},
			"udp": {"10.1.0.200:53": fourUDP, "[fd01::c8]:53": "[fd01::2]:53,[fd01::b]:53"},
		}
		for range 2 {
			got, beyond := s.Backends(vips, pods)
			if !reflect.DeepEqual(got, want) || beyond != 0 {
				t.Errorf("%v, %d beyond; want %v", got, beyond, want)
			}
			slices.Reverse(pods)
		}
	}
	s := parsed(t, spec(keys), annotations(AddressAnnotation, "auto"))
	if got, _ := s.Backends(addresses("10.1.0.200"), nil); !reflect.DeepEqual(got, map[string]map[string]string{
		"tcp": {"10.1.0.200:80": ""}, "udp": {"10.1.0.200:53": ""}}) {
		t.Errorf("without pods: %v", got)
	}
}

// TestManyBackends: their number is bounded, and which ones stay does not depend on the order of the pods.
func TestManyBackends(t *testing.T) {
	s := parsed(t, spec(onePort), annotations(AddressAnnotation, "auto"))
	var pods []Backend
	for i := range MaxBackends + 9 {
		pods = append(pods, Backend{Ready: true, Addresses: []netip.Addr{netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)})}})
	}
	was := ""
	for range 2 {
		vips, beyond := s.Backends(addresses("10.1.9.9"), pods)
		list := vips["tcp"]["10.1.9.9:80"]
		if n := len(strings.Split(list, ",")); n != MaxBackends || beyond != 9 || was != "" && list != was {
			t.Errorf("%d backends, %d beyond", n, beyond)
		}
		was = list
		slices.Reverse(pods)
	}
}

// FuzzObject: whatever a tenant writes is refused with a reason, or its text means the same, within the limits.
func FuzzObject(f *testing.F) {
	f.Add("blue", "app=web", "auto", spec(onePort))
	f.Add("a/b", "a in (1,2),!b", "10.1.0.9,fd01::9", spec(`,"ports":[{"port":80,"targetPort":"web"}],"sessionAffinity":"ClientIP"`))
	f.Fuzz(func(t *testing.T, network, selector, address, spec string) {
		o := NewObject("shop", "web", 1, ours, map[string]string{
			NetworkAnnotation: network, SelectorAnnotation: selector, AddressAnnotation: address}, []byte(spec))
		if o.Service == nil {
			if o.Refusal == "" {
				t.Error("refused without a reason")
			}
			return
		}
		again, err := ParseText("shop", "web", o.Service.Text)
		if err != nil || !reflect.DeepEqual(again, o.Service) {
			t.Errorf("%v: %+v, stored as %+v", err, o.Service, again)
		}
		vips, _ := again.Backends(addresses("10.1.0.9", "fd01::9"), []Backend{{Ready: true, Addresses: addresses("10.1.0.2", "fd01::2")}})
		n := 0
		for _, m := range vips {
			n += len(m)
		}
		if n != 2*len(again.Ports) || n > 2*MaxPorts {
			t.Errorf("%d vips of %d ports", n, len(again.Ports))
		}
	})
}

// TestLongestState: a source keeps the longest state that the controller writes. A cut one would be news at each pass.
func TestLongestState(t *testing.T) {
	address := netip.MustParseAddr("fd00:1111:2222:3333:4444:5555:6666:7777")
	state := State{
		Reason: strings.Repeat("<", conf.MaxReason), Network: strings.Repeat("n", 317),
		Addresses: []netip.Addr{address, address}, Outside: []netip.Addr{address, address},
	}
	text, err := json.Marshal(state)
	if err != nil {
		t.Fatal(err)
	}
	o := NewObject("shop", "a", 0, map[string]string{ProxyLabel: ProxyName}, map[string]string{StateAnnotation: string(text)}, nil)
	if o == nil || o.State != string(text) {
		t.Errorf("of %d bytes, some are lost", len(text))
	}
}
