package nad

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
)

// delegated resolves one attachment, of the pod shop/…, to a NAD with this configuration.
func delegated(t testing.TB, rules Rules, config, keys string) (*Delegate, error) {
	t.Helper()
	if keys != "" {
		keys = "," + keys
	}
	requests, err := ParseRequests(networks(`[{"name":"ext"`+keys+`}]`), "shop", "eth0")
	if err != nil {
		t.Fatal(err)
	}
	got, err := Resolve(context.Background(), "shop", requests, rules, always(config, netmodel.NAD{}))
	if err != nil {
		return nil, err
	}
	if got[0].Network != nil || got[0].Delegate == nil {
		t.Fatalf("no delegate: %+v", got[0])
	}
	return got[0].Delegate, nil
}

// What the plugins get of a NAD, whose name is ext.
// Conformance: N-2 N-12 N-13 N-43 N-44 N-45 N-46 N-90 N-136 C-1 C-7 C-16 C-157 C-159 C-160
func TestConflistOfADelegate(t *testing.T) {
	tests := []struct{ name, config, keys, want string }{
		{"as short as can be", `{"type":"bridge"}`, "", `{"cniVersion":"0.3.1","name":"ext","plugins":[{"type":"bridge"}]}`},
		{"its own name and version", `{"cniVersion":"1.0.0","name":"x.Y_z-1","type":"bridge"}`, "", `{"cniVersion":"1.0.0","name":"x.Y_z-1","plugins":[{"type":"bridge"}]}`},
		{"name and version left open", `{"cniVersion":"","name":null,"type":"bridge"}`, "", `{"cniVersion":"0.3.1","name":"ext","plugins":[{"type":"bridge"}]}`},
		{"a list", `{"name":"l","plugins":[{"type":"bridge"},{"type":"tuning","sysctl":{}}]}`, "", `{"cniVersion":"0.3.1","name":"l","plugins":[{"type":"bridge"},{"sysctl":{},"type":"tuning"}]}`},
		{"a list without a name", `{"cniVersion":"1.1.0","plugins":[{"type":"bridge"}]}`, "", `{"cniVersion":"1.1.0","name":"ext","plugins":[{"type":"bridge"}]}`},
		{"versions to choose from", `{"cniVersion":"0.4.0","cniVersions":["0.3.1","1.0.0"],"plugins":[{"type":"bridge"}]}`, "", `{"cniVersion":"1.0.0","name":"ext","plugins":[{"type":"bridge"}]}`},
		{"versions to choose from, the one is the highest", `{"cniVersion":"1.1.0","cniVersions":["0.3.1","1.0.0"],"plugins":[{"type":"bridge"}]}`, "", `{"cniVersion":"1.1.0","name":"ext","plugins":[{"type":"bridge"}]}`},
		{"versions to choose from, one of the future", `{"cniVersions":["1.0.0","7.0.0"],"type":"bridge"}`, "", `{"cniVersion":"1.0.0","name":"ext","plugins":[{"type":"bridge"}]}`},
		{"versions to choose from, none", `{"cniVersion":"0.4.0","cniVersions":[],"type":"bridge"}`, "", `{"cniVersion":"0.4.0","name":"ext","plugins":[{"type":"bridge"}]}`},
		{"keys of the list in words", `{"disableCheck":"true","disableGC":"false","plugins":[{"type":"bridge"}]}`, "", `{"cniVersion":"0.3.1","disableCheck":true,"disableGC":false,"name":"ext","plugins":[{"type":"bridge"}]}`},
		{"keys of the list beside a single configuration", `{"disableCheck":true,"disableGC":"true","type":"bridge"}`, "", `{"cniVersion":"0.3.1","disableCheck":true,"disableGC":true,"name":"ext","plugins":[{"type":"bridge"}]}`},
		{"numbers keep their digits", `{"type":"bridge","vlan":12345678901234567890,"x":[1.10,1e400,-0]}`, "", `{"cniVersion":"0.3.1","name":"ext","plugins":[{"type":"bridge","vlan":12345678901234567890,"x":[1.10,1e400,-0]}]}`},
		{"keys of its own", `{"type":"My.plugin_2","dns":{"domain":"a"},"ipam":{"type":"host-local"}}`, "", `{"cniVersion":"0.3.1","name":"ext","plugins":[{"dns":{"domain":"a"},"ipam":{"type":"host-local"},"type":"My.plugin_2"}]}`},

		{"the NAD's args", `{"type":"bridge","args":{"cni":{"a":1},"other":2}}`, "", `{"cniVersion":"0.3.1","name":"ext","plugins":[{"args":{"cni":{"a":1},"other":2},"type":"bridge"}]}`},
		{"the pod's args", `{"type":"bridge"}`, `"cni-args":{"a":9007199254740993}`, `{"cniVersion":"0.3.1","name":"ext","plugins":[{"args":{"cni":{"a":9007199254740993}},"type":"bridge"}]}`},
		{"the pod's args before the NAD's", `{"type":"bridge","args":{"cni":{"a":1,"b":12345678901234567890},"other":{"a":3}}}`, `"cni-args":{"a":[2],"c":null}`,
			`{"cniVersion":"0.3.1","name":"ext","plugins":[{"args":{"cni":{"a":[2],"b":12345678901234567890,"c":null},"other":{"a":3}},"type":"bridge"}]}`},
		{"the pod's args for each plugin of a list", `{"plugins":[{"type":"bridge"},{"type":"tuning","args":{"cni":{"b":1}}}]}`, `"cni-args":{"a":2}`,
			`{"cniVersion":"0.3.1","name":"ext","plugins":[{"args":{"cni":{"a":2}},"type":"bridge"},{"args":{"cni":{"a":2,"b":1}},"type":"tuning"}]}`},
		{"no args in the pod's", `{"type":"bridge","args":{"cni":"as it is"}}`, `"cni-args":{}`, `{"cniVersion":"0.3.1","name":"ext","plugins":[{"args":{"cni":"as it is"},"type":"bridge"}]}`},
		{"capabilities stay for who runs it", `{"type":"bridge","capabilities":{"mac":true}}`, `"mac":"02:00:00:00:00:01"`, `{"cniVersion":"0.3.1","name":"ext","plugins":[{"capabilities":{"mac":true},"type":"bridge"}]}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d, err := delegated(t, Rules{}, tt.config, tt.keys)
			if err != nil {
				t.Fatal(err)
			}
			if string(d.Conflist) != tt.want {
				t.Errorf("got  %s\nwant %s", d.Conflist, tt.want)
			}
		})
	}
}

// Each is something that a NAD may have. The answer has code 7 and says what is wrong where.
// Conformance: C-3 C-4 C-11 C-14 C-15 C-16 F-13
func TestDelegateRefuses(t *testing.T) {
	of := func(keys string) string { return `{"plugins":[{"type":"bridge"},{"type":"tuning",` + keys + `}]}` }
	deep := strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000)
	tests := []struct {
		name, config, keys string
		want               string // behind "spec.config: "
	}{
		{"null", "null", "", `"type" is missing`},
		{"a list", "[]", "", "a JSON array where another kind of value is wanted"},
		{"no type", `{"name":"x"}`, "", `"type" is missing`},
		{"nested too deep", `{"type":"bridge","x":` + deep + "}", "", "not valid JSON: invalid character '[' exceeded max depth"},
		{"too long", `{"type":"bridge","x":"` + strings.Repeat("x", 256<<10) + `"}`, "", "262168 bytes are more than 262144"},
		{"plugins, none", `{"plugins":[]}`, "", `"plugins" is empty`},
		{"plugins, null", `{"plugins":null}`, "", `"plugins" is empty`},
		{"plugins, an object", `{"plugins":{}}`, "", `"plugins" is not a list of objects`},
		{"plugins, a number in it", `{"plugins":[1]}`, "", `"plugins" is not a list of objects`},
		{"plugins, null in it", `{"plugins":[{"type":"bridge"},null]}`, "", "plugins[1]: null, where a plugin's configuration is wanted"},
		{"plugins, 33", `{"plugins":[{}` + strings.Repeat(",{}", 32) + `]}`, "", "33 plugins are more than 32"},

		{"name, a number", `{"name":1,"type":"bridge"}`, "", `"name" does not take a JSON number`},
		{"name with a slash", `{"name":"../x","type":"bridge"}`, "", `name: "../x" is no network's name`},
		{"name of 254", `{"name":"` + strings.Repeat("n", 254) + `","type":"bridge"}`, "", `name: "` + strings.Repeat("n", 40) + `…" is no network's name`},
		{"version, a number", `{"cniVersion":1,"type":"bridge"}`, "", `"cniVersion" is not a string`},
		{"version that is none", `{"cniVersion":"1.0","type":"bridge"}`, "", `cniVersion: "1.0" is none of 0.1.0, 0.2.0, 0.3.0, 0.3.1, 0.4.0, 1.0.0, 1.1.0`},
		{"versions of the future", `{"cniVersions":["7.0.0","8.0.0"],"type":"bridge"}`, "", `cniVersion: "7.0.0, 8.0.0" is none of 0.1.0, 0.2.0, 0.3.0, 0.3.1, 0.4.0, 1.0.0, 1.1.0`},
		{"versions that are no list", `{"cniVersion":"1.0.0","cniVersions":"1.0.0","type":"bridge"}`, "", `"cniVersions" is not a list of strings`},
		{"versions, null", `{"cniVersions":null,"type":"bridge"}`, "", `"cniVersions" is not a list of strings`},
		{"ipam, words", of(`"ipam":"host-local"`), "", `plugins[1]: "ipam" is not an object`},
		{"ipam's type, a number", of(`"ipam":{"type":1}`), "", `plugins[1]: ipam: "type" is not a string`},
		{"ipam's type, a path", of(`"ipam":{"type":"/bin/sh"}`), "", `plugins[1]: type: "/bin/sh" is no name of a plugin`},
		{"disableCheck", `{"disableCheck":1,"type":"bridge"}`, "", `"disableCheck" is neither true nor false`},
		{"disableGC", `{"disableGC":"yes","plugins":[{"type":"bridge"}]}`, "", `"disableGC" is neither true nor false`},

		{"type missing", `{"plugins":[{"type":"bridge"},{}]}`, "", `plugins[1]: "type" is missing`},
		{"type, null", `{"plugins":[{"type":null}]}`, "", `plugins[0]: "type" is missing`},
		{"type, a number", `{"plugins":[{"type":1}]}`, "", `plugins[0]: "type" is not a string`},
		{"type, a path", `{"type":"/bin/sh"}`, "", `plugins[0]: type: "/bin/sh" is no name of a plugin`},
		{"type, a path upwards", `{"plugins":[{"type":"bridge"},{"type":"../../bin/sh"}]}`, "", `plugins[1]: type: "../../bin/sh" is no name of a plugin`},
		{"type, a folder", `{"type":".."}`, "", `plugins[0]: type: ".." is no name of a plugin`},
		{"type with a line's end", `{"type":"bridge\n"}`, "", `plugins[0]: type: "bridge\n" is no name of a plugin`},
		{"type of 65", `{"type":"` + strings.Repeat("t", 65) + `"}`, "", `plugins[0]: type: "` + strings.Repeat("t", 65) + `" is no name of a plugin`},
		{"OVN in a list", `{"plugins":[{"type":"bridge"},{"type":"ovn-multinet"}]}`, "", `plugins[1]: type: "ovn-multinet" is a network of its own, it cannot be chained: a list has it once, as its first plugin`},
		{"ovn-kubernetes in a list", `{"plugins":[{"type":"bridge"},{"type":"ovn-k8s-cni-overlay"}]}`, "", `plugins[1]: type: "ovn-k8s-cni-overlay" is a network of its own, it cannot be chained: a list has it once, as its first plugin`},

		{"runtimeConfig", of(`"runtimeConfig":{}`), "", `plugins[1]: "runtimeConfig" is for the runtime to set, leave it out`},
		{"prevResult", `{"type":"bridge","prevResult":null}`, "", `plugins[0]: "prevResult" is for the runtime to set, leave it out`},
		{"prevResult as Go reads it", `{"type":"bridge","PrevResult":{}}`, "", `write key "PrevResult" as "prevResult": plugins read both as the same key`},
		{"runtimeConfig as Go reads it", of(`"runtimeconfig":{}`), "", `write key "runtimeconfig" as "runtimeConfig": plugins read both as the same key`},
		{"cni.dev", of(`"cni.dev/valid-attachments":[]`), "", `plugins[1]: "cni.dev/valid-attachments" is for the runtime to set, leave it out`},

		{"capabilities, a list", of(`"capabilities":["mac"]`), "", `plugins[1]: "capabilities" is not an object of true and false`},
		{"capabilities in words", of(`"capabilities":{"mac":"true"}`), "", `plugins[1]: "capabilities" is not an object of true and false`},
		{"args, words", of(`"args":"x"`), "", `plugins[1]: "args" is not an object`},
		{"args, null", of(`"args":null`), "", `plugins[1]: "args" is not an object`},
		{"args, a list beside the pod's", of(`"args":[]`), `"cni-args":{"a":1}`, `plugins[1]: "args" is not an object`},
		{"args.cni, words beside the pod's", of(`"args":{"cni":"x"}`), `"cni-args":{"a":1}`, `plugins[1]: "args.cni" is not an object`},
		{"args.cni, null beside the pod's", of(`"args":{"cni":null}`), `"cni-args":{"a":1}`, `plugins[1]: "args.cni" is not an object`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d, err := delegated(t, Rules{Compatible: true}, tt.config, tt.keys)
			if err == nil {
				t.Fatalf("taken as %.200s", d.Conflist)
			}
			code, _, details := conf.Describe(err)
			want := "interface net1: network shop/ext: spec.config: " + tt.want
			if code != conf.CodeInvalidConfig || err.Error() != want || details != "correct spec.config of the NetworkAttachmentDefinition" {
				t.Errorf("got  %d %s (%s)\nwant 7 %s", code, err, details, want)
			}
		})
	}
}

// showDelegate writes what goes to the plugins beside their configuration.
func showDelegate(d *Delegate) string {
	var words []string
	for key, value := range d.Capabilities {
		words = append(words, key+" "+string(value))
	}
	slices.Sort(words)
	for _, arg := range d.Args {
		words = append(words, arg[0]+"="+arg[1])
	}
	return strings.Join(words, "; ")
}

// What each key of an element is to the plugins that declare its capability, and that the attachment fails if none does
// (multi-net-spec 1.3, sections 4.1.2.1.3.2 to 4.1.2.1.10.2).
// Conformance: N-31 N-32 N-36 N-37 N-57 N-58 N-70 N-72 N-82 N-83 C-119 C-153 C-155 C-156 F-7
func TestCapabilities(t *testing.T) {
	tests := []struct{ key, keys, capability, want string }{
		{"ips", `"ips":["10.2.2.42/24","2001:db8::5"]`, "ips", `ips ["10.2.2.42/24","2001:db8::5"]`},
		{"mac", `"mac":"02-23-45-67-89-0A"`, "mac", `mac "02:23:45:67:89:0a"`},
		{"portMappings", `"portMappings":[{"hostPort":8080,"containerPort":80}]`, "portMappings", `portMappings [{"hostPort":8080,"containerPort":80,"protocol":"tcp"}]`},
		{"bandwidth", `"bandwidth":{"ingressRate":2048,"ingressBurst":1600}`, "bandwidth", `bandwidth {"ingressRate":2048,"ingressBurst":1600}`},
		{"infiniband-guid", `"infiniband-guid":"24:8a:07:03:00:8d:ae:2f"`, "infinibandGUID", `infinibandGUID "24:8a:07:03:00:8d:ae:2f"`},
	}
	for _, tt := range tests {
		t.Run(tt.key, func(t *testing.T) {
			declared := `"capabilities":{"other":true,"` + tt.capability + `":%t}`
			for config, want := range map[string]string{
				`{"type":"x",` + fmt.Sprintf(declared, true) + `}`:                                                                 tt.want,
				`{"plugins":[{"type":"x","capabilities":null},{"type":"y",` + fmt.Sprintf(declared, true) + `}]}`:                  tt.want,
				`{"plugins":[{"type":"x",` + fmt.Sprintf(declared, true) + `},{"type":"y",` + fmt.Sprintf(declared, false) + `}]}`: tt.want,
				`{"type":"x"}`: "",
				`{"type":"x",` + fmt.Sprintf(declared, false) + `}`:                        "",
				`{"type":"x","x":{` + fmt.Sprintf(declared, true) + `}}`:                   "",
				`{"capabilities":{"` + tt.capability + `":true},"plugins":[{"type":"x"}]}`: "",
			} {
				d, err := delegated(t, Rules{}, config, tt.keys)
				if want == "" {
					wantNotCapable(t, err, tt.key, tt.capability)
				} else if err != nil || showDelegate(d) != want || d.Warning != "" {
					t.Errorf("%s: %v, %+v; want %s", config, err, d, want)
				}
			}
			d, err := delegated(t, Rules{}, `{"type":"x",`+fmt.Sprintf(declared, true)+`}`, "")
			if err != nil || showDelegate(d) != "" {
				t.Errorf("not asked for: %v, %+v", err, d)
			}
		})
	}
}

func wantNotCapable(t *testing.T, err error, key, capability string) {
	t.Helper()
	if err == nil {
		t.Errorf("%s is taken", key)
		return
	}
	code, msg, details := conf.Describe(err)
	want := fmt.Sprintf("interface net1: network shop/ext: %s: no plugin of the network declares the capability %q", key, capability)
	if code != conf.CodeInvalidConfig || msg != want || !strings.Contains(details, "correct the pod's annotation") || !strings.Contains(details, "declare it") {
		t.Errorf("got  %d %s (%s)\nwant 7 %s", code, msg, details, want)
	}
}

// Plugins that take an address by CNI_ARGS alone are served when the operator says so, and the pod's owner is warned.
// Conformance: C-161
func TestCompatibleMode(t *testing.T) {
	const both = `"ips":["10.2.2.42/24","2001:db8::5"],"mac":"02:00:00:00:00:01"`
	warning := func(key, arg string) string {
		return key + " is passed as " + arg + " in CNI_ARGS, since no plugin of network shop/ext declares the capability"
	}
	tests := []struct{ name, config, keys, want, warning string }{
		{"nothing asked for", `{"type":"x"}`, `"interface":"a"`, "", ""},
		{"both", `{"type":"x"}`, both, "IP=10.2.2.42/24,2001:db8::5; MAC=02:00:00:00:00:01", warning("ips", "IP") + "; " + warning("mac", "MAC")},
		{"one of them declared", `{"type":"x","capabilities":{"ips":true}}`, both, `ips ["10.2.2.42/24","2001:db8::5"]; MAC=02:00:00:00:00:01`, warning("mac", "MAC")},
		{"both declared", `{"type":"x","capabilities":{"ips":true,"mac":true}}`, both, `ips ["10.2.2.42/24","2001:db8::5"]; mac "02:00:00:00:00:01"`, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d, err := delegated(t, Rules{Compatible: true}, tt.config, tt.keys)
			if err != nil {
				t.Fatal(err)
			}
			if showDelegate(d) != tt.want || d.Warning != tt.warning {
				t.Errorf("got  %s (%s)\nwant %s (%s)", showDelegate(d), d.Warning, tt.want, tt.warning)
			}
		})
	}
	for key, keys := range map[string]string{
		"portMappings": `"portMappings":[{"hostPort":1,"containerPort":1}]`, "bandwidth": `"bandwidth":{"egressRate":1}`,
	} {
		_, err := delegated(t, Rules{Compatible: true}, `{"type":"x"}`, keys)
		wantNotCapable(t, err, key, key)
	}
	_, err := delegated(t, Rules{}, `{"type":"x","capabilities":{"ips":true}}`, both)
	wantNotCapable(t, err, "mac", "mac")
}

// Each passed the list of what may run, for the list looked for another key than the plugins do.
func TestBoundaryDelegateKeysInAnotherCase(t *testing.T) {
	rules := Rules{Allowed: []string{"dummy", "sbr"}, AllowedIPAM: []string{"static"}}
	for config, want := range map[string]string{
		`{"type":"dummy","Ipam":{"type":"host-local","dataDir":"/etc"}}`:                        `spec.config: write key "Ipam" as "ipam"`,
		`{"type":"dummy","Ipam":{"type":"host-device","device":"eth0"}}`:                        `spec.config: write key "Ipam" as "ipam"`,
		`{"plugins":[{"type":"dummy","ipam":{"type":"static"}}],"Plugins":[{"prevResult":{}}]}`: `keys "plugins" and "Plugins" differ`,
		`{"plugins":[{"type":"dummy","ipam":{"type":"static"}}],"Plugin` + "\u017f" + `":[]}`:   `differ in the case of letters only`,
		`{"type":"dummy","ipam":{"type":"dummy"}}`:                                              `delegate "dummy" is not allowed as ipam on this node`,
		`{"type":"static","ipam":{"type":"static"}}`:                                            `delegate "static" is not allowed on this node`,
		`{"type":"sbr"}`: `plugin "sbr": it works on the interface of a plugin before it`,
		`{"plugins":[{"type":"dummy","ipam":{"type":"static"}},{"type":"sbr","x":1}]}`:                           `plugins[1]: plugin "sbr": unknown key "x"`,
		`{"type":"dummy","ipam":{"type":"static"},"` + strings.Repeat("k", 9000) + `":1}`:                        `unknown key "kkkk`,
		`{"type":"dummy","ipam":{"type":"static","addresses":[{"address":"` + strings.Repeat("1", 200) + `"}]}}`: `"` + strings.Repeat("1", 64) + `" is no address`,
	} {
		_, err := delegated(t, rules, config, "")
		if err == nil || !strings.Contains(err.Error(), want) || len(err.Error()) > 400 {
			t.Errorf("%.200s: %v, want %s", config, err, want)
		}
	}
	// The pod's own arguments are put in before the last look.
	_, err := delegated(t, rules, `{"type":"dummy","ipam":{"type":"static"},"args":{"cni":{"ips":["192.0.2.5/24"]}}}`, `"cni-args":{"IPs":["192.0.2.6/24"]}`)
	if err == nil || !strings.Contains(err.Error(), `write key "IPs" as "ips"`) {
		t.Errorf("args of the pod in another case: %v", err)
	}
	ips := strings.Repeat(`"192.0.2.5/24",`, 16) + `"192.0.2.5/24"`
	_, err = delegated(t, rules, `{"type":"dummy","ipam":{"type":"static"}}`, `"cni-args":{"ips":[`+ips+`]}`)
	if err == nil || !strings.Contains(err.Error(), `args: plugin "static": "cni": "ips": 17 values are more than 16`) {
		t.Errorf("args of the pod with 17 addresses: %v", err)
	}
	if d, err := delegated(t, rules, `{"type":"dummy","ipam":{"type":"static","addresses":[{"address":"192.0.2.5/24"}]}}`, ""); err != nil || len(d.programs) != 1 {
		t.Errorf("what is allowed: %+v, %v", d, err)
	}
}
