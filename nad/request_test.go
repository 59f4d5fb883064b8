package nad

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/ovn-multinet/ovn-multinet/conf"
)

// show writes requests the way the tests below expect them: "ns/name@interface ip,ip mac".
func show(requests []Request) string {
	words := make([]string, len(requests))
	for i, s := range requests {
		words[i] = s.String() + "@" + s.Interface
		for j, p := range s.IPs {
			words[i] += string(" ,"[min(j, 1)]) + p.Addr().String()
			if p.Bits() >= 0 {
				words[i] += fmt.Sprintf("/%d", p.Bits())
			}
		}
		if s.MAC != nil {
			words[i] += " " + s.MAC.String()
		}
	}
	return strings.Join(words, "; ")
}

func networks(text string) map[string]string {
	return map[string]string{conf.NetworksAnnotation: text}
}

// Conformance: N-16 N-17 N-18 N-19 N-20 N-22 N-23 N-27 N-38 N-91
func TestParseRequests(t *testing.T) {
	tests := []struct {
		name string
		text string
		want string
	}{
		{"nothing", "", ""},
		{"blanks", " \n\t", ""},
		{"empty list", "[]", ""},
		{"short: one", "blue", "shop/blue@net1"},
		{"short: namespace", "infra/blue", "infra/blue@net1"},
		{"short: interface", "blue@eth1", "shop/blue@eth1"},
		{"short: namespace and interface", "infra/blue@eth1", "infra/blue@eth1"},
		{"short: several, in order", "c,a,b", "shop/c@net1; shop/a@net2; shop/b@net3"},
		{"short: the same network twice", "a,a", "shop/a@net1; shop/a@net2"},
		{"short: names by position", "a,b@x,c", "shop/a@net1; shop/b@x; shop/c@net3"},
		{"short: spaces around", " a , infra/b@x ,\n c\n", "shop/a@net1; infra/b@x; shop/c@net3"},
		{"short: a YAML block's first line is empty", "\n  blue", "shop/blue@net1"},
		{"short: dots, dashes and digits", "my-net.v2,0x", "shop/my-net.v2@net1; shop/0x@net2"},
		{"short: interface of 15", "blue@abcdefghijklmno", "shop/blue@abcdefghijklmno"},
		{"json: one", `[{"name":"blue"}]`, "shop/blue@net1"},
		{"json: namespace and interface", `[{"name":"blue","namespace":"infra","interface":"eth1"}]`, "infra/blue@eth1"},
		{"json: names by position", `[{"name":"a","interface":"x"},{"name":"b"}]`, "shop/a@x; shop/b@net2"},
		{"json: spaces around", " \n[ {\n\"name\" : \"blue\" } ]\n", "shop/blue@net1"},
		{"json: an address", `[{"name":"blue","ips":["10.1.0.7"]}]`, "shop/blue@net1 10.1.0.7"},
		{"json: addresses with prefix length, in order", `[{"name":"blue","ips":["fd01::7/64","10.1.0.7/16"]}]`,
			"shop/blue@net1 fd01::7/64,10.1.0.7/16"},
		{"json: a MAC", `[{"name":"blue","mac":"02:00:00:00:00:2A"}]`, "shop/blue@net1 02:00:00:00:00:2a"},
		{"json: MAC and address", `[{"name":"blue","mac":"02-00-00-00-00-2a","ips":["10.1.0.7"]}]`,
			"shop/blue@net1 10.1.0.7 02:00:00:00:00:2a"},
		{"json: a foreign key has a dot", `[{"name":"blue","example.com/x":{"y":[1]}}]`, "shop/blue@net1"},
		{"json: null is as good as left out", `[{"name":"blue","ips":null,"mac":null,"interface":null}]`, "shop/blue@net1"},
		{"json: 64 networks", "[" + strings.Repeat(`{"name":"a"},`, 63) + `{"name":"z","interface":"last"}]`,
			show(many(63)) + "; shop/z@last"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := ParseRequests(networks(tt.text), "shop", "eth0")
			if err != nil {
				t.Fatal(err)
			}
			if show(got) != tt.want {
				t.Errorf("got  %s\nwant %s", show(got), tt.want)
			}
		})
	}
}

func many(n int) []Request {
	out := make([]Request, n)
	for i := range out {
		out[i] = Request{Namespace: "shop", Name: "a", Interface: fmt.Sprintf("net%d", i+1)}
	}
	return out
}

func TestParseRequestsOfAPlainPod(t *testing.T) {
	for _, annotations := range []map[string]string{nil, {}, {"kubernetes.io/config.source": "api", "example.com/x": "y"}} {
		if got, err := ParseRequests(annotations, "shop", "eth0"); err != nil || got != nil {
			t.Errorf("%v: %s, %v; want nothing", annotations, show(got), err)
		}
	}
}

// Each of these is what someone may write. The answer is one line with code 7 that names the element.
// Conformance: N-6 N-15 N-20 N-21 N-25 N-26 N-34 N-39 N-41 N-92 C-24 F-12
func TestParseRequestsRefuses(t *testing.T) {
	element := func(keys string) string { return `[{"name":"a"},{"name":"blue",` + keys + `}]` }
	deep := strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000)
	tests := []struct {
		name string
		text string
		want string // after "annotation k8s.v1.cni.cncf.io/networks: "
	}{
		{"null", "null", "null, where a list of networks is wanted"},
		{"null with spaces", " null\n", "null, where a list of networks is wanted"},
		{"null in the list", "[null]", "entry 0: null, where an object is wanted"},
		{"a string", `"x"`, `the JSON form is a list of objects, like [{"name":"blue"}]`},
		{"an object", "{}", `the JSON form is a list of objects, like [{"name":"blue"}]`},
		{"an object that would be an element", `{"name":"blue"}`, `the JSON form is a list of objects, like [{"name":"blue"}]`},
		{"a number in the list", `[{"name":"a"},1]`, "entry 1: 1, where an object is wanted"},
		{"a string in the list", `["blue"]`, `entry 0: "blue", where an object is wanted`},
		{"a list in the list", `[["blue"]]`, `entry 0: ["blue"], where an object is wanted`},
		{"an empty object in the list", "[{}]", `entry 0: "name" is missing`},
		{"not closed", `[{"name":"blue"}`, "not valid JSON: unexpected end of JSON input"},
		{"text after it", `[{"name":"blue"}] x`, "not valid JSON: invalid character 'x' after top-level value"},
		{"a comma too many", `[{"name":"blue"},]`, "not valid JSON: invalid character ']' looking for beginning of value"},

		{"comma at the end", "a,", "entry 1: it is empty"},
		{"comma at the beginning", ",a", "entry 0: it is empty"},
		{"two commas", "a, ,b", "entry 1: it is empty"},
		{"only a comma", ",", "entry 0: it is empty"},
		{"only an interface", "a,@net1", `entry 1: "@net1" has no network before @, write [namespace/]network[@interface]`},
		{"no interface after @", "a,b@", `entry 1: "b@" has no interface name after @, write [namespace/]network[@interface]`},
		{"only @", "a,@", `entry 1: "@" has no interface name after @, write [namespace/]network[@interface]`},
		{"two @", "a@b@c", `entry 0: "a@b@c" has @ twice, write [namespace/]network[@interface]`},
		{"two @, side by side", "a,b@@c", `entry 1: "b@@c" has @ twice, write [namespace/]network[@interface]`},
		{"two @, the last one at the end", "ns/a@b@", `entry 0: "ns/a@b@" has @ twice, write [namespace/]network[@interface]`},
		{"no namespace before /", "a,/b", `entry 1: "/b" has no namespace before /, write [namespace/]network[@interface]`},
		{"no name after /", "a,ns/", `entry 1: "ns/" has no network after /, write [namespace/]network[@interface]`},
		{"no name after /, an interface", "a,ns/@b", `entry 1: "ns/@b" has no network after /, write [namespace/]network[@interface]`},
		{"only /", "/", `entry 0: "/" has no namespace before /, write [namespace/]network[@interface]`},
		{"two slashes", "ns/a/b", `entry 0: "ns/a/b" has / twice, write [namespace/]network[@interface]`},
		{"two slashes, the last one at the end", "ns/a/@b", `entry 0: "ns/a/@b" has / twice, write [namespace/]network[@interface]`},
		{"two slashes, side by side", "//a", `entry 0: "//a" has / twice, write [namespace/]network[@interface]`},
		{"cut inside a letter", strings.Repeat("n", 39) + "é@b@c", `entry 0: "` + strings.Repeat("n", 39) + `…" has @ twice, write [namespace/]network[@interface]`},
		{"a long element", strings.Repeat("n", 300) + "@b@c", `entry 0: "` + strings.Repeat("n", 40) + `…" has @ twice, write [namespace/]network[@interface]`},
		{"a space before @", "a @b", `entry 0: "a " cannot be the name of a NetworkAttachmentDefinition`},
		{"a space before /", "ns /a", `entry 0: "ns " cannot be the name of a namespace`},
		{"upper case", "Blue", `entry 0: "Blue" cannot be the name of a NetworkAttachmentDefinition`},
		{"a space within", "a b", `entry 0: "a b" cannot be the name of a NetworkAttachmentDefinition`},
		{"namespace with a dot", "my.ns/a", `entry 0: "my.ns" cannot be the name of a namespace`},
		{"namespace of 64", strings.Repeat("n", 64) + "/a",
			`entry 0: "` + strings.Repeat("n", 40) + `…" cannot be the name of a namespace`},
		{"name of 254", strings.Repeat("n", 254),
			`entry 0: "` + strings.Repeat("n", 40) + `…" cannot be the name of a NetworkAttachmentDefinition`},
		{"path", "../../etc", `entry 0: "../../etc" has / twice, write [namespace/]network[@interface]`},
		{"invalid UTF-8", "bl\xffue", `entry 0: "bl\xffue" cannot be the name of a NetworkAttachmentDefinition`},
		{"invalid UTF-8 in JSON", "[{\"name\":\"bl\xffue\"}]", `entry 0: "bl�ue" cannot be the name of a NetworkAttachmentDefinition`},

		{"unknown key", element(`"interfce":"x"`), `entry 1: unknown key "interfce", did you mean "interface"?`},
		{"unknown key of another case", element(`"Mac":"x"`), `entry 1: unknown key "Mac", did you mean "mac"?`},
		{"unknown key like none", element(`"q":1`), `entry 1: unknown key "q"`},
		{"unknown key, long", element(`"` + strings.Repeat("k", 5000) + `":1`), `entry 1: unknown key "` + strings.Repeat("k", 64) + `"`},
		{"a key twice", element(`"name":"red"`), `entry 1: key "name" is given twice`},
		{"name is a number", `[{"name":1}]`, `entry 0: "name" does not take a JSON number`},
		{"name is null", `[{"name":null}]`, `entry 0: "name" is missing`},
		{"name is empty", `[{"name":""}]`, `entry 0: "name" is missing`},
		{"namespace is a list", element(`"namespace":[]`), `entry 1: "namespace" does not take a JSON array`},
		{"interface is an object", element(`"interface":{}`), `entry 1: "interface" does not take a JSON object`},
		{"mac is true", element(`"mac":true`), `entry 1: "mac" does not take a JSON bool`},
		{"ips is a string", element(`"ips":"10.1.0.7"`), `entry 1: "ips" does not take a JSON string`},
		{"ips has a number", element(`"ips":[10]`), `entry 1: "ips" does not take a JSON number`},
		{"ips is empty", element(`"ips":[]`), "entry 1: ips is an empty list, leave it out or name an address"},
		{"ips has null", element(`"ips":[null]`), `entry 1: ips: "" is not an IP address`},
		{"ips has words", element(`"ips":["ten"]`), `entry 1: ips: "ten" is not an IP address`},
		{"ip with a bad prefix length", element(`"ips":["10.1.0.7/33"]`), `entry 1: ips: "10.1.0.7/33" is not an IP address`},
		{"ip with zeros in front", element(`"ips":["10.1.0.07"]`), `entry 1: ips: "10.1.0.07" is not an IP address`},
		{"ip with a zone", element(`"ips":["fe80::1%eth0"]`), `entry 1: ips: "fe80::1%eth0" is not an IP address`},
		{"IPv4 in IPv6", element(`"ips":["::ffff:10.1.0.7"]`), `entry 1: ips: "::ffff:10.1.0.7" is not an IP address`},
		{"IPv4 in IPv6 with prefix length", element(`"ips":["::ffff:10.1.0.7/120"]`), `entry 1: ips: "::ffff:10.1.0.7/120" is not an IP address`},
		{"ip unspecified", element(`"ips":["0.0.0.0/24"]`), "entry 1: ips: 0.0.0.0 is no unicast address of an interface"},
		{"ip multicast", element(`"ips":["ff02::1/64"]`), "entry 1: ips: ff02::1 is no unicast address of an interface"},
		{"ip loopback", element(`"ips":["127.0.0.1/8"]`), "entry 1: ips: 127.0.0.1 is no unicast address of an interface"},
		{"ip twice", element(`"ips":["10.1.0.7","10.1.0.7"]`), "entry 1: ips: 10.1.0.7 is named twice"},
		{"ip twice, spelled differently", element(`"ips":["fd01::7","fd01:0::7/64"]`), "entry 1: ips: fd01::7 is named twice"},
		{"17 ips", element(`"ips":["1"` + strings.Repeat(`,"1"`, 16) + `]`), "entry 1: ips: 17 addresses are more than 16"},
		{"mac of words", element(`"mac":"blue"`), `entry 1: mac: "blue" is not a MAC address of 6 bytes`},
		{"mac of 7 bytes", element(`"mac":"02:00:00:00:00:00:01"`), `entry 1: mac: "02:00:00:00:00:00:01" is not a MAC address of 6 bytes`},
		{"mac of 8 bytes", element(`"mac":"02:00:00:00:00:00:00:01"`), `entry 1: mac: "02:00:00:00:00:00:00:01" is not a MAC address of 6 bytes`},
		{"mac multicast", element(`"mac":"01:00:5e:00:00:01"`), "entry 1: mac: 01:00:5e:00:00:01 is a group address, an interface takes a unicast one"},
		{"mac broadcast", element(`"mac":"ff:ff:ff:ff:ff:ff"`), "entry 1: mac: ff:ff:ff:ff:ff:ff is a group address, an interface takes a unicast one"},
		{"mac zero", element(`"mac":"00:00:00:00:00:00"`), "entry 1: mac: 00:00:00:00:00:00 is no address of an interface"},

		{"one interface twice", "a@x,b@y,c@x", `entry 2 (shop/c): interface "x" is asked for by entry 0 (shop/a) too`},
		{"one interface by name and by position", "a@net2,b", `entry 1 (shop/b): interface "net2" is asked for by entry 0 (shop/a) too`},
		{"one interface by position and by name", "a,b@net1", `entry 1 (shop/b): interface "net1" is asked for by entry 0 (shop/a) too`},
		{"the primary interface", "a,b@eth0", `entry 1 (shop/b): interface "eth0" is taken, the pod has it already`},
		{"lo", "a@lo", `entry 0 (shop/a): interface "lo" is taken, the pod has it already`},
		{"interface of 16", "a@abcdefghijklmnop", `entry 0 (shop/a): interface name "abcdefghijklmnop" is not of 1 to 15 characters`},
		{"interface with a slash", "a@x/y", `entry 0 (shop/a): interface name "x/y" has a character that an interface cannot have`},
		{"interface with a slash in JSON", `[{"name":"a","interface":"x/y"}]`, `entry 0 (shop/a): interface name "x/y" has a character that an interface cannot have`},
		{"interface with @ in JSON", `[{"name":"a"},{"name":"b","interface":"b@c"}]`, `entry 1 (shop/b): interface name "b@c" has an @, write a name without it`},
		{"interface of @ alone in JSON", `[{"name":"a","interface":"@"}]`, `entry 0 (shop/a): interface name "@" has an @, write a name without it`},
		{"name with an interface in JSON", `[{"name":"a@b"}]`, `entry 0: "a@b" cannot be the name of a NetworkAttachmentDefinition`},
		{"name with a namespace in JSON", `[{"name":"ns/a"}]`, `entry 0: "ns/a" cannot be the name of a NetworkAttachmentDefinition`},
		{"interface with a space", `[{"name":"a","interface":"x y"}]`, `entry 0 (shop/a): interface name "x y" has a character that an interface cannot have`},

		{"65 networks", strings.Repeat("a,", 64) + "a", "65 networks are more than 64"},
		{"10,000 networks", strings.Repeat("a,", 9_999) + "a", "10000 networks are more than 64"},
		{"10,000 networks in JSON", "[" + strings.Repeat("1,", 9_999) + "1]", "10000 networks are more than 64"},
		{"256 kB", strings.Repeat("a", 256<<10), "262144 bytes are more than 65536"},
		{"nested 10,000 deep", deep, "entry 0: [[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[…, where an object is wanted"},
		{"nested deeper than the parser goes", "[" + deep + "]", "not valid JSON: invalid character '[' exceeded max depth"},
		{"nested deep in a key", `[{"name":"a","ips":` + deep[100:len(deep)-100] + `}]`, `entry 0: "ips" does not take a JSON array`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := ParseRequests(networks(tt.text), "shop", "eth0")
			if err == nil {
				t.Fatalf("taken as %s", show(got))
			}
			wantRefusal(t, err, "annotation k8s.v1.cni.cncf.io/networks: "+tt.want)
			if got != nil {
				t.Errorf("%s beside the error", show(got))
			}
		})
	}
}

// wantRefusal wants code 7, details, and the message on one line.
func wantRefusal(t *testing.T, err error, want string) {
	t.Helper()
	code, _, details := conf.Describe(err)
	if code != conf.CodeInvalidConfig || details == "" {
		t.Errorf("code %d, details %q; want code 7 and what to do", code, details)
	}
	if err.Error() != want {
		t.Errorf("got  %s\nwant %s", err, want)
	}
}

// Conformance: F-8
func TestParseRequestsRefusesAnnotations(t *testing.T) {
	tests := []struct {
		name, key string
		want      string
	}{
		{"default network", conf.DefaultNetworkAnnotation, "annotation v1.multus-cni.io/default-network is not supported"},
		{"unknown one of ours", "ovn-multinet/speed", "annotation ovn-multinet/speed is not known"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for _, value := range []string{"blue", ""} {
				_, err := ParseRequests(map[string]string{tt.key: value, conf.NetworksAnnotation: "blue"}, "shop", "eth0")
				if err == nil {
					t.Fatalf("%s=%q is taken", tt.key, value)
				}
				wantRefusal(t, err, tt.want)
			}
		})
	}
}

// Conformance: F-12
func FuzzSelect(f *testing.F) {
	for _, text := range []string{
		"", "blue", "a, ns/b@x ,c@net9", "a@net2,b", `[{"name":"blue"}]`, `[{"name":"a","ips":["10.1.0.7/16","fd01::7"],"mac":"02:00:00:00:00:01"}]`,
		`[{"name":"a","x.y/z":1}]`, "[null]", "null", "[[", `[{"name":"a","ips":[]}]`, "\xff", "a@\x00", `[{"name":"a","interface":"@"}]`,
		`[{"name":"a","cni-args":{"securityProfiles":["web-only","a"]}}]`, `[{"name":"a","cni-args":{"securityProfiles":{}}}]`,
	} {
		f.Add(text, "eth0")
	}
	f.Fuzz(func(t *testing.T, text, primary string) {
		got, err := ParseRequests(networks(text), "shop", primary)
		if err != nil {
			code, msg, _ := conf.Describe(err)
			if code != conf.CodeInvalidConfig || strings.ContainsAny(msg, "\n\r") || len(msg) > 1000 {
				t.Errorf("code %d, message of %d bytes: %s", code, len(msg), msg)
			}
			return
		}
		seen := map[string]bool{primary: true, "lo": true}
		for _, s := range got {
			if seen[s.Interface] || conf.CheckInterfaceName(s.Interface) != nil || strings.Contains(s.Interface, "@") {
				t.Errorf("interface %q: taken or none", s.Interface)
			}
			seen[s.Interface] = true
			if s.Namespace == "" || s.Name == "" || !utf8.ValidString(s.String()) || strings.Count(s.String(), "/") != 1 {
				t.Errorf("network %q", s.String())
			}
			if s.MAC != nil && (len(s.MAC) != 6 || s.MAC[0]&1 != 0) {
				t.Errorf("MAC %s", s.MAC)
			}
			checkIPs(t, s.IPs)
		}
		if len(got) > MaxNetworks {
			t.Errorf("%d networks", len(got))
		}
	})
}

func checkIPs(t *testing.T, ips []netip.Prefix) {
	t.Helper()
	seen := map[netip.Addr]bool{}
	for _, p := range ips {
		a := p.Addr()
		if seen[a] || a.Zone() != "" || a.Is4In6() || !a.IsValid() {
			t.Errorf("ips %v", ips)
		}
		seen[a] = true
	}
}
