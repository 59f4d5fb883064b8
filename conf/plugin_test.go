package conf

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

const entry = `"cniVersion":"1.0.0","name":"cbr0","type":"ovn-multinet"`

func TestParsePlugin(t *testing.T) {
	tests := []struct {
		name   string
		keys   string
		strict Strictness
		want   string
	}{
		{"defaults", ``, Strict, "/run/ovn-multinet/agent.sock /var/lib/cni/ovn-multinet [] log= 3m0s"},
		{"all keys", `,"agentSocket":"/a/s","stateDir":"/b","allowedDelegates":["sriov","host-device"],"logFile":"/c.log","timeout":"90s",
			"capabilities":{"io.kubernetes.cri.pod-annotations":true},"ipam":{},"dns":{},"args":{},"prevResult":{},"runtimeConfig":{}`, Strict,
			"/a/s /b [sriov host-device] log=/c.log 1m30s"},
		{"least timeout", `,"timeout":"1s"`, Strict, "/run/ovn-multinet/agent.sock /var/lib/cni/ovn-multinet [] log= 1s"},
		{"keys of CNI's GC", `,"cni.dev/valid-attachments":[],"cni.dev/attachments":[]`, Strict, "/run/ovn-multinet/agent.sock /var/lib/cni/ovn-multinet [] log= 3m0s"},
		{"unknown keys, lenient", `,"agentsocket":"x","colour":[1],"timeout":"2s"`, Lenient, "/run/ovn-multinet/agent.sock /var/lib/cni/ovn-multinet [] log= 2s"},
		{"a key twice, lenient", `,"timeout":"3s","timeout":"2s"`, Lenient, "/run/ovn-multinet/agent.sock /var/lib/cni/ovn-multinet [] log= 2s"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p, err := ParsePlugin([]byte("{"+entry+tt.keys+"}"), tt.strict)
			if err != nil {
				t.Fatal(err)
			}
			if got := fmt.Sprintf("%s %s %v log=%s %v", p.AgentSocket, p.StateDir, p.AllowedDelegates, p.LogFile, p.Timeout); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
			if p.Name != "cbr0" {
				t.Errorf("name %q", p.Name)
			}
		})
	}
}

// No annotations handed and none there are two things.
// Conformance: C-151
func TestAnnotationsOfThePlugin(t *testing.T) {
	tests := []struct {
		name, keys string
		want       string
	}{
		{"no runtimeConfig", "", "map[string]string(nil)"},
		{"empty runtimeConfig", `,"runtimeConfig":{}`, "map[string]string(nil)"},
		{"runtimeConfig of others", `,"runtimeConfig":{"portMappings":[]}`, "map[string]string(nil)"},
		{"null", `,"runtimeConfig":{"io.kubernetes.cri.pod-annotations":null}`, "map[string]string(nil)"},
		{"none", `,"runtimeConfig":{"io.kubernetes.cri.pod-annotations":{}}`, "map[string]string{}"},
		{"one", `,"runtimeConfig":{"io.kubernetes.cri.pod-annotations":{"a":"b"}}`, `map[string]string{"a":"b"}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p, err := ParsePlugin([]byte("{"+entry+tt.keys+"}"), Strict)
			if err != nil {
				t.Fatal(err)
			}
			if got := fmt.Sprintf("%#v", p.Annotations); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

func TestPrevResultIsKeptAsItCame(t *testing.T) {
	p, err := ParsePlugin([]byte("{"+entry+`,"prevResult":{"cniVersion":"1.0.0","x":[1,2]}}`), Strict)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := string(p.RawResult), `{"cniVersion":"1.0.0","x":[1,2]}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestPrevResultIsAnObject: the plugin prints it as its own result. null is none: ADD then says that no plugin ran before.
func TestPrevResultIsAnObject(t *testing.T) {
	p, err := ParsePlugin([]byte("{"+entry+`,"prevResult":null}`), Strict)
	if err != nil || p.RawResult != nil {
		t.Errorf("got %q, %v", p.RawResult, err)
	}
	for _, value := range []string{`5`, ` [{}]`, `"{}"`} {
		_, err := ParsePlugin([]byte("{"+entry+`,"prevResult":`+value+`}`), Strict)
		if code, message, _ := Describe(err); code != CodeDecoding ||
			message != "plugin configuration: prevResult is not a JSON object" {
			t.Errorf("%s: %d %s", value, code, message)
		}
	}
}

// Conformance: C-147 C-149 C-154
func TestParsePluginRefuses(t *testing.T) {
	tests := []struct {
		name  string
		stdin string
		code  uint
		want  string // after "plugin configuration: "
	}{
		{"nothing", "", CodeDecoding, "not valid JSON: EOF"},
		{"null", "null", CodeDecoding, "null where an object is wanted"},
		{"a list", "[]", CodeDecoding, "a JSON array where another kind of value is wanted"},
		{"unknown key", "{" + entry + `,"agentSock":"/x"}`, CodeDecoding, `unknown key "agentSock", did you mean "agentSocket"?`},
		{"a key in another case", "{" + entry + `,"Timeout":"2s"}`, CodeDecoding, `unknown key "Timeout", did you mean "timeout"?`},
		{"a key twice", "{" + entry + `,"timeout":"2s","timeout":"3s"}`, CodeDecoding, `key "timeout" is given twice`},
		{"strictStatus in words", "{" + entry + `,"strictStatus":"yes"}`, CodeDecoding, `"strictStatus" does not take a JSON string`},
		{"timeout is a number", "{" + entry + `,"timeout":60}`, CodeDecoding, `"timeout" does not take a JSON number`},
		{"annotation is a number", "{" + entry + `,"runtimeConfig":{"io.kubernetes.cri.pod-annotations":{"a":1}}}`, CodeDecoding,
			`"runtimeConfig.io.kubernetes.cri.pod-annotations" does not take a JSON number`},
		{"timeout without a unit", "{" + entry + `,"timeout":"60"}`, CodeInvalidConfig, `timeout: "60" is not a duration of at least 1s, like "60s"`},
		{"timeout too short", "{" + entry + `,"timeout":"999ms"}`, CodeInvalidConfig, `timeout: "999ms" is not a duration of at least 1s, like "60s"`},
		{"timeout negative", "{" + entry + `,"timeout":"-60s"}`, CodeInvalidConfig, `timeout: "-60s" is not a duration of at least 1s, like "60s"`},
		{"socket relative", "{" + entry + `,"agentSocket":"run/agent.sock"}`, CodeInvalidConfig, `agentSocket: "run/agent.sock" is not a clean absolute path`},
		{"state folder with dots", "{" + entry + `,"stateDir":"/var/../etc"}`, CodeInvalidConfig, `stateDir: "/var/../etc" is not a clean absolute path`},
		{"state folder with a slash at its end", "{" + entry + `,"stateDir":"/var/lib/"}`, CodeInvalidConfig, `stateDir: "/var/lib/" is not a clean absolute path`},
		{"log relative", "{" + entry + `,"logFile":"x.log"}`, CodeInvalidConfig, `logFile: "x.log" is not a clean absolute path`},
		{"several paths: the first", "{" + entry + `,"logFile":"x","stateDir":"y","agentSocket":"z"}`, CodeInvalidConfig, `agentSocket: "z" is not a clean absolute path`},
		{"delegate with a path", "{" + entry + `,"allowedDelegates":["sriov","../sh"]}`, CodeInvalidConfig, `allowedDelegates: "../sh" is not the name of a plugin`},
		{"delegate with a slash", "{" + entry + `,"allowedDelegates":["a/b"]}`, CodeInvalidConfig, `allowedDelegates: "a/b" is not the name of a plugin`},
		{"delegate with a backslash", "{" + entry + `,"allowedDelegates":["a\\b"]}`, CodeInvalidConfig, `allowedDelegates: "a\\b" is not the name of a plugin`},
		{"delegate hidden", "{" + entry + `,"allowedDelegates":[".sriov"]}`, CodeInvalidConfig, `allowedDelegates: ".sriov" is not the name of a plugin`},
		{"delegate without a name", "{" + entry + `,"allowedDelegates":[""]}`, CodeInvalidConfig, `allowedDelegates: "" is not the name of a plugin`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := ParsePlugin([]byte(tt.stdin), Strict)
			if err == nil {
				t.Fatal("it is taken")
			}
			code, msg, details := Describe(err)
			if want := "plugin configuration: " + tt.want; code != tt.code || msg != want {
				t.Errorf("got  %d %s\nwant %d %s", code, msg, tt.code, want)
			}
			if want := correctPlugin; details != want {
				t.Errorf("details %q, want %q", details, want)
			}
		})
	}
}

func FuzzParsePlugin(f *testing.F) {
	for _, keys := range []string{"", `,"timeout":"1s"`, `,"allowedDelegates":["sriov"]`, `,"prevResult":{"ips":[]}`, `,"x":1`,
		`,"runtimeConfig":{"io.kubernetes.cri.pod-annotations":{"a":"b"}}`, `,"stateDir":"/a"`, `,"logFile":"b"`, `,"Name":1`, `,"prevResult":1`} {
		f.Add([]byte("{"+entry+keys+"}"), true)
		f.Add([]byte("{"+entry+keys+"}"), false)
	}
	f.Fuzz(func(t *testing.T, stdin []byte, strict bool) {
		p, err := ParsePlugin(stdin, Strictness(strict))
		if err != nil {
			if code, msg, _ := Describe(err); code != CodeDecoding && code != CodeInvalidConfig || strings.Contains(msg, "\n") {
				t.Errorf("%d %q", code, msg)
			}
			return
		}
		for _, path := range []string{p.AgentSocket, p.StateDir, "/" + strings.TrimPrefix(p.LogFile, "/")} {
			if !strings.HasPrefix(path, "/") || strings.Contains(path, "/../") {
				t.Errorf("path %q", path)
			}
		}
		for _, d := range p.AllowedDelegates {
			if d == "" || strings.Contains(d, "/") {
				t.Errorf("delegate %q", d)
			}
		}
		if p.Timeout < time.Second {
			t.Errorf("timeout %v", p.Timeout)
		}
	})
}

// Conformance: N-39
func TestCheckInterfaceName(t *testing.T) {
	const short, reserved, char = "is not of 1 to 15 characters", "is reserved", "has a character that an interface cannot have"
	tests := []struct{ name, want string }{
		{"net1", ""},
		{"a", ""},
		{"abcdefghijklmno", ""},
		{"eth0.100", ""},
		{"a-b_c@d", ""},
		{"...", ""},
		{"", `interface name "" ` + short},
		{"abcdefghijklmnop", `interface name "abcdefghijklmnop" ` + short},
		{strings.Repeat("x", 100), `interface name "` + strings.Repeat("x", 20) + `" ` + short},
		{".", `interface name "." ` + reserved},
		{"..", `interface name ".." ` + reserved},
		{"all", `interface name "all" ` + reserved},
		{"default", `interface name "default" ` + reserved},
		{"a/b", `interface name "a/b" ` + char},
		{"a:b", `interface name "a:b" ` + char},
		{"a b", `interface name "a b" ` + char},
		{"a%d", `interface name "a%d" ` + char},
		{"a,b", `interface name "a,b" ` + char},
		{`a"b`, `interface name "a\"b" ` + char},
		{`a\b`, `interface name "a\\b" ` + char},
		{"a\x00b", `interface name "a\x00b" ` + char},
		{"a\nb", `interface name "a\nb" ` + char},
		{"a\x7fb", `interface name "a\x7fb" ` + char},
		{"né", `interface name "né" ` + char},
		{"\xff", `interface name "\xff" ` + char},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := ""
			if err := CheckInterfaceName(tt.name); err != nil {
				got = err.Error()
			}
			if got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

func TestOwnAnnotations(t *testing.T) {
	got := NetworkAnnotations(map[string]string{
		NetworksAnnotation: "blue", DefaultNetworkAnnotation: "x", "ovn-multinet/anything": "", "k8s.v1.cni.cncf.io/network-status": "[]",
		"example.com/ovn-multinet/x": "", "kubernetes.io/config.source": "api",
	})
	want := `map[k8s.v1.cni.cncf.io/networks:blue ovn-multinet/anything: v1.multus-cni.io/default-network:x]`
	if fmt.Sprint(got) != want {
		t.Errorf("got  %v\nwant %s", got, want)
	}
	if plain := NetworkAnnotations(map[string]string{"kubernetes.io/config.source": "api"}); plain == nil || len(plain) != 0 {
		t.Errorf("of a plain pod: %#v", plain)
	}
}
