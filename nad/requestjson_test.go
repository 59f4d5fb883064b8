package nad

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/conf"
)

// showKeys writes what an element asks for beside names, addresses and MAC.
func showKeys(t *testing.T, s *Request) string {
	t.Helper()
	var words []string
	add := func(asked bool, key string, value any) {
		text, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		if asked {
			words = append(words, key+" "+string(text))
		}
	}
	add(s.DefaultRoute != nil, "default-route", s.DefaultRoute)
	add(s.PortMappings != nil, "portMappings", s.PortMappings)
	add(s.Bandwidth != nil, "bandwidth", s.Bandwidth)
	add(s.GUID != nil, "infiniband-guid", s.GUID.String())
	add(s.CNIArgs != nil, "cni-args", s.CNIArgs)
	return strings.Join(words, "; ")
}

// The keys of multi-net-spec 1.3, section 4.1.2.1, beside name, namespace, interface, ips and mac.
// Conformance: N-54 N-55 N-71 C-152
func TestKeysOfARequest(t *testing.T) {
	tests := []struct{ name, keys, want string }{
		{"none", `"ips":null`, ""},
		{"null is as good as left out", `"default-route":null,"portMappings":null,"infiniband-guid":null,"cni-args":null,"bandwidth":null,"deviceID":null,"ipam-claim-reference":null`, ""},
		{"foreign keys", `"example.com/portMappings":1,"bandwidth.x":{},"a.":null`, ""},

		{"default-route", `"default-route":["10.1.0.1"]`, `default-route ["10.1.0.1"]`},
		{"default-route of both families", `"default-route":["fd01::1","10.1.0.1"]`, `default-route ["fd01::1","10.1.0.1"]`},
		{"default-route that the network knows", `"default-route":[]`, `default-route []`},
		{"default-route by a link-local address", `"default-route":["fe80::1"]`, `default-route ["fe80::1"]`},

		{"port", `"portMappings":[{"hostPort":8080,"containerPort":80}]`, `portMappings [{"hostPort":8080,"containerPort":80,"protocol":"tcp"}]`},
		{"ports, protocol in any case, in order", `"portMappings":[{"hostPort":53,"containerPort":53,"protocol":"UDP"},{"hostPort":53,"containerPort":5353,"protocol":"Tcp"},{"hostPort":52,"containerPort":53,"protocol":"sctp"}]`,
			`portMappings [{"hostPort":53,"containerPort":53,"protocol":"udp"},{"hostPort":53,"containerPort":5353,"protocol":"tcp"},{"hostPort":52,"containerPort":53,"protocol":"sctp"}]`},
		{"ports at the bounds", `"portMappings":[{"hostPort":1,"containerPort":65535,"protocol":""},{"hostPort":65535,"containerPort":1}]`,
			`portMappings [{"hostPort":1,"containerPort":65535,"protocol":"tcp"},{"hostPort":65535,"containerPort":1,"protocol":"tcp"}]`},

		{"bandwidth", `"bandwidth":{"ingressRate":1000,"ingressBurst":1600,"egressRate":2000,"egressBurst":3200}`,
			`bandwidth {"ingressRate":1000,"ingressBurst":1600,"egressRate":2000,"egressBurst":3200}`},
		{"bandwidth without bursts", `"bandwidth":{"ingressRate":1000,"egressRate":2000}`,
			`bandwidth {"ingressRate":1000,"ingressBurst":1000,"egressRate":2000,"egressBurst":2000}`},
		{"bandwidth of one direction", `"bandwidth":{"egressRate":1,"ingressRate":null}`, `bandwidth {"egressRate":1,"egressBurst":1}`},
		{"bandwidth whose burst of a second is too much for plugins", `"bandwidth":{"ingressRate":10000000000}`,
			`bandwidth {"ingressRate":10000000000,"ingressBurst":4294967295}`},
		{"bandwidth, the most", `"bandwidth":{"ingressRate":9223372036854775807,"ingressBurst":1}`,
			`bandwidth {"ingressRate":9223372036854775807,"ingressBurst":1}`},

		{"GUID", `"infiniband-guid":"24:8a:07:03:00:8D:AE:2F"`, `infiniband-guid "24:8a:07:03:00:8d:ae:2f"`},
		{"GUID with dashes", `"infiniband-guid":"24-8a-07-03-00-8d-ae-2f"`, `infiniband-guid "24:8a:07:03:00:8d:ae:2f"`},

		{"cni-args", `"cni-args":{"spoofchk":"on"}`, `cni-args {"spoofchk":"on"}`},
		{"cni-args that are empty", `"cni-args":{}`, `cni-args {}`},
		{"cni-args of every kind, with their digits", `"cni-args":{"n":12345678901234567890.10,"b":true,"l":[1,null],"o":{"x":{}}}`,
			`cni-args {"b":true,"l":[1,null],"n":12345678901234567890.10,"o":{"x":{}}}`},
		{"all of them", `"cni-args":{"a":1},"bandwidth":{"egressRate":1},"infiniband-guid":"24:8a:07:03:00:8d:ae:2f","portMappings":[{"hostPort":1,"containerPort":2}],"default-route":[]`,
			`default-route []; portMappings [{"hostPort":1,"containerPort":2,"protocol":"tcp"}]; bandwidth {"egressRate":1,"egressBurst":1}; infiniband-guid "24:8a:07:03:00:8d:ae:2f"; cni-args {"a":1}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := ParseRequests(networks(`[{"name":"a"},{"name":"blue",`+tt.keys+`}]`), "shop", "eth0")
			if err != nil {
				t.Fatal(err)
			}
			if text := showKeys(t, &got[1]); text != tt.want {
				t.Errorf("got  %s\nwant %s", text, tt.want)
			}
			if text := showKeys(t, &got[0]); text != "" {
				t.Errorf("the other element has %s", text)
			}
		})
	}
}

// ports lists n port mappings.
func ports(n int) string {
	words := make([]string, n)
	for i := range words {
		words[i] = fmt.Sprintf(`{"hostPort":%d,"containerPort":80}`, i+1)
	}
	return `"portMappings":[` + strings.Join(words, ",") + "]"
}

// Conformance: N-49 N-50 N-51 N-52 N-53 N-61 N-62 N-67 N-68 N-74 N-80
func TestKeysOfARequestRefuses(t *testing.T) {
	deep := strings.Repeat("[", 9_000) + strings.Repeat("]", 9_000)
	port := func(keys string) string { return `"portMappings":[{"hostPort":1,"containerPort":1},{` + keys + `}]` }
	tests := []struct {
		name, keys string
		want       string // behind the element
	}{
		{"default-route, a string", `"default-route":"10.1.0.1"`, `"default-route" does not take a JSON string`},
		{"default-route, a number", `"default-route":[10]`, `"default-route" does not take a JSON number`},
		{"default-route, null in it", `"default-route":[null]`, `default-route: "" is not an IP address`},
		{"default-route, words", `"default-route":["ten"]`, `default-route: "ten" is not an IP address`},
		{"default-route with a prefix length", `"default-route":["10.1.0.1/24"]`, `default-route: "10.1.0.1/24" is not an IP address`},
		{"default-route with a zone", `"default-route":["fe80::1%eth0"]`, `default-route: "fe80::1%eth0" is not an IP address`},
		{"default-route, IPv4 in IPv6", `"default-route":["::ffff:10.1.0.1"]`, `default-route: "::ffff:10.1.0.1" is not an IP address`},
		{"default-route, unspecified", `"default-route":["::"]`, "default-route: :: is no address of a gateway"},
		{"default-route, loopback", `"default-route":["127.0.0.1"]`, "default-route: 127.0.0.1 is no address of a gateway"},
		{"default-route, multicast", `"default-route":["ff02::1"]`, "default-route: ff02::1 is no address of a gateway"},
		{"default-route, two of a family", `"default-route":["10.1.0.1","fd01::1","10.1.0.2"]`, "default-route: 10.1.0.1 and 10.1.0.2 are of one family, name one gateway for each"},
		{"default-route, one twice", `"default-route":["fd01::1","fd01:0::1"]`, "default-route: fd01::1 and fd01::1 are of one family, name one gateway for each"},
		{"default-route, 17", `"default-route":["1"` + strings.Repeat(`,"1"`, 16) + `]`, "default-route: 17 gateways are more than 16"},
		{"default-route, long", `"default-route":["` + strings.Repeat("g", 50_000) + `"]`, `default-route: "` + strings.Repeat("g", 40) + `…" is not an IP address`},

		{"portMappings, none", `"portMappings":[]`, "portMappings is an empty list, leave it out or map a port"},
		{"portMappings, an object", `"portMappings":{}`, `"portMappings" does not take a JSON object`},
		{"portMappings, null in it", `"portMappings":[null]`, "portMappings[0]: null where an object is wanted"},
		{"portMappings, a number in it", `"portMappings":[80]`, "portMappings[0]: a JSON number where another kind of value is wanted"},
		{"portMappings, 257", ports(257), "portMappings: 257 are more than 256"},
		{"no hostPort", port(`"containerPort":80`), "portMappings[1].hostPort: 0 is not between 1 and 65535"},
		{"no containerPort", port(`"hostPort":80`), "portMappings[1].containerPort: 0 is not between 1 and 65535"},
		{"hostPort 65536", port(`"hostPort":65536,"containerPort":80`), "portMappings[1].hostPort: 65536 is not between 1 and 65535"},
		{"containerPort below 0", port(`"hostPort":80,"containerPort":-1`), "portMappings[1].containerPort: -1 is not between 1 and 65535"},
		{"hostPort in words", port(`"hostPort":"80","containerPort":80`), `portMappings[1]: "hostPort" does not take a JSON string`},
		{"hostPort with a fraction", port(`"hostPort":80.5,"containerPort":80`), `portMappings[1]: "hostPort" does not take a JSON number 80.5`},
		{"protocol", port(`"hostPort":80,"containerPort":80,"protocol":"icmp"`), `portMappings[1].protocol: "icmp" is none of tcp, udp and sctp`},
		{"key of a port", port(`"hostport":80,"containerPort":80`), `portMappings[1]: unknown key "hostport", did you mean "hostPort"?`},
		{"foreign key of a port", port(`"hostPort":80,"containerPort":80,"a.b":1`), `portMappings[1]: unknown key "a.b"`},
		{"a host's port twice", port(`"hostPort":1,"containerPort":2,"protocol":"TCP"`), "portMappings[1]: tcp port 1 of the host is mapped twice"},

		{"bandwidth, empty", `"bandwidth":{}`, "bandwidth is empty, leave it out or limit something"},
		{"bandwidth, a list", `"bandwidth":[]`, "bandwidth: a JSON array where another kind of value is wanted"},
		{"bandwidth, a number", `"bandwidth":1000`, "bandwidth: a JSON number where another kind of value is wanted"},
		{"bandwidth, a rate of 0", `"bandwidth":{"ingressRate":0}`, "bandwidth.ingressRate: 0 is not more than 0"},
		{"bandwidth, a rate below 0", `"bandwidth":{"egressRate":-1}`, "bandwidth.egressRate: -1 is not more than 0"},
		{"bandwidth, a burst of 0", `"bandwidth":{"egressRate":1,"egressBurst":0}`, "bandwidth.egressBurst: 0 is not more than 0"},
		{"bandwidth in words", `"bandwidth":{"ingressRate":"1M"}`, `bandwidth: "ingressRate" does not take a JSON string`},
		{"bandwidth, too much", `"bandwidth":{"ingressRate":9223372036854775808}`, `bandwidth: "ingressRate" does not take a JSON number 9223372036854775808`},
		{"ingressBurst alone", `"bandwidth":{"ingressBurst":1,"egressRate":1}`, "bandwidth.ingressBurst needs ingressRate beside it"},
		{"egressBurst alone", `"bandwidth":{"egressBurst":1,"ingressRate":1}`, "bandwidth.egressBurst needs egressRate beside it"},
		{"key of bandwidth", `"bandwidth":{"ingresRate":1}`, `bandwidth: unknown key "ingresRate", did you mean "ingressRate"?`},

		{"GUID of words", `"infiniband-guid":"blue"`, `infiniband-guid: "blue" is not a GUID of 8 bytes`},
		{"GUID, empty", `"infiniband-guid":""`, `infiniband-guid: "" is not a GUID of 8 bytes`},
		{"GUID of 6 bytes", `"infiniband-guid":"02:00:00:00:00:01"`, `infiniband-guid: "02:00:00:00:00:01" is not a GUID of 8 bytes`},
		{"GUID of 20 bytes", `"infiniband-guid":"80` + strings.Repeat(":00", 19) + `"`, `infiniband-guid: "80` + strings.Repeat(":00", 12) + `:0…" is not a GUID of 8 bytes`},
		{"GUID of zeros", `"infiniband-guid":"00:00:00:00:00:00:00:00"`, "infiniband-guid: 00:00:00:00:00:00:00:00 is no GUID of an interface"},
		{"GUID, a number", `"infiniband-guid":1`, `"infiniband-guid" does not take a JSON number`},

		{"cni-args, a list", `"cni-args":["a"]`, `cni-args: ["a"], where an object is wanted`},
		{"cni-args, words", `"cni-args":"a=b"`, `cni-args: "a=b", where an object is wanted`},
		{"cni-args, profiles in words", `"cni-args":{"securityProfiles":"web"}`, `cni-args: securityProfiles is no list of names like ["web-only"]`},
		{"cni-args, profiles twice", `"cni-args":{"securityProfiles":["web"],"securityProfiles":[]}`, `cni-args: key "securityProfiles" is given twice`},
		{"cni-args, a profile that is none", `"cni-args":{"securityProfiles":["$web"]}`,
			`cni-args: securityProfiles: "$web" is no name of a profile: letters, digits, '_', '.' and '-', the first one no digit and no '-', at most 63`},
		{"cni-args, 17 profiles", `"cni-args":{"securityProfiles":["a","b","c","d","e","f","g","h","i","j","k","l","m","n","o","p","q"]}`,
			"cni-args: securityProfiles: 17 are more than 16"},
		{"cni-args, deep", `"cni-args":` + deep, "cni-args: " + deep[:40] + "…, where an object is wanted"},

		{"an IPAMClaim of another namespace", `"ipam-claim-reference":"other/vm.blue"`, `ipam-claim-reference: "other/vm.blue" cannot be the name of an IPAMClaim`},
		{"an IPAMClaim that is no text", `"ipam-claim-reference":1`, `"ipam-claim-reference" does not take a JSON number`},

		{"deviceID, empty", `"deviceID":""`, `deviceID: "" is no name of a device`},
		{"deviceID, a number", `"deviceID":1`, `"deviceID" does not take a JSON number`},
		{"deviceID with a space", `"deviceID":"0000:18:02.5 0000:18:02.6"`, `deviceID: "0000:18:02.5 0000:18:02.6" is no name of a device`},
		{"deviceID with a line's end", `"deviceID":"0000:18:02.5\n"`, `deviceID: "0000:18:02.5\n" is no name of a device`},
		{"deviceID beyond ASCII", `"deviceID":"gerät"`, `deviceID: "gerät" is no name of a device`},
		{"deviceID of 254", `"deviceID":"` + strings.Repeat("d", 254) + `"`, `deviceID: "` + strings.Repeat("d", 40) + `…" is no name of a device`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := ParseRequests(networks(`[{"name":"a"},{"name":"blue",`+tt.keys+`}]`), "shop", "eth0")
			if err == nil {
				t.Fatalf("taken as %s", showKeys(t, &got[1]))
			}
			wantRefusal(t, err, "annotation k8s.v1.cni.cncf.io/networks: entry 1: "+tt.want)
		})
	}
}

// 256 mappings are allowed, as many as one attachment may ask for.
func TestMostPortMappings(t *testing.T) {
	got, err := ParseRequests(networks(`[{"name":"blue",`+ports(256)+`}]`), "shop", "eth0")
	if err != nil || len(got[0].PortMappings) != 256 {
		t.Errorf("%v: %+v", err, got)
	}
}

// TestIgnoredKey: the keys that charts for Multus have, and that it ignores, are ignored with a warning. Others stay
// errors.
func TestIgnoredKey(t *testing.T) {
	for text, want := range map[string]string{
		"blue":              "",
		`[{"name":"blue"}]`: "",
		`[{"name":"a"},{"name":"blue","ips":["10.1.0.7/24"],"gateway":["10.1.0.1"]}]`: `entry 1: the key "gateway" is ignored: default-route`,
		`[{"name":"blue","gateways":["10.1.0.1"]}]`:                                   `entry 0: the key "gateways" is ignored`,
		`[{"name":"blue","gateway":null}]`:                                            "",
	} {
		annotations := map[string]string{conf.NetworksAnnotation: text}
		if _, err := ParseRequests(annotations, "shop", "eth0"); err != nil {
			t.Errorf("%s: %v", text, err)
		}
		if got := IgnoredKey(annotations); !strings.Contains(got, want) || want == "" && got != "" {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
	wrong := map[string]string{conf.NetworksAnnotation: `[{"name":"blue","gatewey":["10.1.0.1"]}]`}
	if _, err := ParseRequests(wrong, "shop", "eth0"); err == nil {
		t.Error("a key of no program is ignored")
	}
}
