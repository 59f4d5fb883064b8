package plugin

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/skel"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/node/journal"
)

// These tests hold the plugin, and what it does as a runtime to the plugins that it calls, against the CNI
// specification.

// recorder is a plugin that writes down how it is called, and answers what lies in its folder.
const recorder = `#!/bin/sh
cd '%s' || exit 9
call="$CNI_COMMAND ${0##*/}${CNI_IFNAME:+ $CNI_IFNAME}"
env > "$call.env"
readlink /proc/self/ns/net > "$call.netns"
cat > "$call.stdin"
echo "$call" >> calls
if [ -e "fail $CNI_COMMAND ${0##*/}" ]; then cat "fail $CNI_COMMAND ${0##*/}"; exit 1; fi
if [ "$CNI_COMMAND" = ADD ]; then cat "result ${0##*/}"; fi
`

// node is a node with two plugins of others, alpha and beta.
type node struct {
	t                    *testing.T
	dir, bin, state, pod string
	socket               string // of the agent; "": in the state folder
	args                 *skel.CmdArgs
	call                 *call
}

func newNode(t *testing.T) *node {
	t.Helper()
	dir := t.TempDir()
	n := &node{t: t, dir: dir, bin: filepath.Join(dir, "bin"), state: filepath.Join(dir, "s"), pod: filepath.Join(dir, "netns")}
	n.must(os.Mkdir(n.bin, 0o755))
	for name, addresses := range map[string]string{"alpha": `{"address":"192.0.2.1/24"}`, "beta": `{"address":"192.0.2.1/24"},{"address":"192.0.2.2/24"}`} {
		n.must(os.WriteFile(filepath.Join(n.bin, name), fmt.Appendf(nil, recorder, dir), 0o755))
		n.write("result "+name, `{"cniVersion":"1.1.0","ips":[`+addresses+`]}`)
	}
	n.write("netns", "")
	n.args = n.argsOf("c1", "")
	var err error
	n.call, err = newCall(n.args, conf.Strict)
	n.must(err)
	n.must(n.call.journal.Prepare())
	return n
}

// argsOf are the arguments of a call for a container, with further keys of the configuration.
func (n *node) argsOf(container, keys string) *skel.CmdArgs {
	args := callArgs(fmt.Appendf(nil, `{"cniVersion":"1.1.0","name":"cbr0","type":"ovn-multinet","stateDir":%q,"agentSocket":%q,
		"allowedDelegates":["alpha","beta","missing"],"allowedIPAM":["alpha","beta"]%s}`, n.state, cmp.Or(n.socket, filepath.Join(n.state, "sock")), keys))
	args.ContainerID, args.Path, args.Netns = container, n.bin, n.pod
	return args
}

func (n *node) must(err error) {
	n.t.Helper()
	if err != nil {
		n.t.Fatal(err)
	}
}

func (n *node) write(file, text string) {
	n.must(os.WriteFile(filepath.Join(n.dir, file), []byte(text), 0o600))
}

func (n *node) read(file string) string {
	text, err := os.ReadFile(filepath.Join(n.dir, file))
	n.must(err)
	return string(text)
}

// called tells which calls there were since it was asked last.
func (n *node) called() []string {
	n.t.Helper()
	text, _ := os.ReadFile(filepath.Join(n.dir, "calls"))
	n.must(os.RemoveAll(filepath.Join(n.dir, "calls")))
	return strings.FieldsFunc(string(text), func(r rune) bool { return r == '\n' })
}

func (n *node) wantCalled(what string, want ...string) {
	n.t.Helper()
	if got := n.called(); !slices.Equal(got, want) {
		n.t.Errorf("%s: called %q, want %q", what, got, want)
	}
}

// fails makes a plugin answer a command with an error.
func (n *node) fails(command, plugin string) {
	n.write("fail "+command+" "+plugin, `{"code":119,"msg":"`+plugin+` cannot `+command+`"}`)
}

// attachments is a container's entry in the journal, with one delegate for each configuration: net1, net2, …
func (n *node) attachments(container string, conflists ...string) *journal.Entry {
	n.t.Helper()
	e := &journal.Entry{Summary: journal.Summary{Sandbox: sandbox(container), Plan: &agentapi.Plan{}}, NetNS: n.pod, Args: n.args.Args}
	for i, list := range conflists {
		e.Plan.Delegates = append(e.Plan.Delegates, agentapi.Delegate{
			Name: fmt.Sprintf("net%d", i+1), Network: "shop/ext", Conflist: json.RawMessage(list), Args: [][2]string{{"IP", "192.0.2.9"}},
			Capabilities: map[string]json.RawMessage{"mac": json.RawMessage(`"02:00:00:00:00:01"`), "ips": json.RawMessage(`["192.0.2.9/24"]`)},
		})
	}
	return e
}

// attached is attachments that are made already.
func (n *node) attached(container string, conflists ...string) *journal.Entry {
	n.t.Helper()
	e := n.attachments(container, conflists...)
	n.must(n.call.runner().Add(n.t.Context(), e))
	n.must(n.call.journal.Write(e))
	n.called()
	return e
}

// both is a configuration with two plugins, of which each declares another capability.
const both = `{"cniVersion":"1.1.0","name":"ext","plugins":[
	{"type":"alpha","capabilities":{"mac":true,"ips":false},"key A":["x",{"b":null}],"big":12345678901234567890,"text":"<&>é"},
	{"type":"beta","capabilities":{"ips":true,"mtu":true},"ipam":{"type":"alpha","x":1.10},"dns":{}}]}`

func of(plugins, keys string) string {
	return `{"cniVersion":"1.1.0","name":"ext"` + keys + `,"plugins":[` + plugins + `]}`
}

// operations has all that is called for an attachment to both plugins.
func (n *node) operations() {
	n.t.Helper()
	e := n.attachments("c1", both)
	n.must(n.call.runner().Add(n.t.Context(), e))
	n.must(n.call.journal.Write(e))
	n.wantCalled("ADD", "ADD alpha net1", "ADD beta net1")
	n.call.args = n.argsOf("c1", "")
	n.call.args.Netns, n.call.args.Args = "", "" // what counts is what the ADD was given
	n.must(n.call.runner().Check(n.t.Context(), e))
	n.wantCalled("CHECK", "CHECK alpha net1", "CHECK beta net1")
	n.must((&Plugin{}).GC(n.argsOf("", `,"cni.dev/valid-attachments":[{"containerID":"c1","ifname":"eth0"}]`)))
	n.wantCalled("GC", "GC alpha", "GC beta")
	n.must((&Plugin{}).Del(n.call.args))
	n.wantCalled("DEL", "DEL beta net1", "DEL alpha net1")
}

// TestRequests: what each plugin gets on its standard input (sections 1 and 3).
// Conformance: N-90 N-135 N-136 N-137 N-148 C-8 C-12 C-13 C-19 C-35 C-54 C-70 C-74 C-75 C-84 C-86 C-90 C-93
// Conformance: C-94 C-96 C-98 C-102 C-106 C-110 C-111 C-112 C-113 C-114 C-115 C-116 C-117 C-118 C-119 C-120
// Conformance: C-123 C-124 C-127 C-155
func TestRequests(t *testing.T) {
	n := newNode(t)
	n.operations()
	const first, all = "192.0.2.1/24", "192.0.2.1/24 192.0.2.2/24"
	const valid = `[{"containerID":"c1","ifname":"net1"}]`
	for _, tt := range []struct{ name, call, key, want string }{
		{"the protocol's version", "ADD alpha net1", "cniVersion", `"1.1.0"`},
		{"the network's name", "ADD beta net1", "name", `"ext"`},
		{"unknown keys, a list", "ADD alpha net1", "key A", `["x",{"b":null}]`},
		{"unknown keys, a number", "ADD alpha net1", "big", `12345678901234567890`},
		{"unknown keys, a text", "CHECK alpha net1", "text", `"<&>é"`},
		{"known keys", "DEL beta net1", "ipam", `{"type":"alpha","x":1.10}`},
		{"known keys, at GC", "GC beta", "ipam", `{"type":"alpha","x":1.10}`},
		{"no capabilities, at ADD", "ADD alpha net1", "capabilities", ""},
		{"no capabilities, at CHECK", "CHECK beta net1", "capabilities", ""},
		{"no capabilities, at DEL", "DEL alpha net1", "capabilities", ""},
		{"what a plugin declares", "ADD alpha net1", "runtimeConfig", `{"mac":"02:00:00:00:00:01"}`},
		{"what another one declares", "ADD beta net1", "runtimeConfig", `{"ips":["192.0.2.9/24"]}`},
		{"the same at CHECK", "CHECK alpha net1", "runtimeConfig", `{"mac":"02:00:00:00:00:01"}`},
		{"the same at DEL", "DEL beta net1", "runtimeConfig", `{"ips":["192.0.2.9/24"]}`},
		{"no result before the first", "ADD alpha net1", "prevResult", ""},
		{"the first one's result", "ADD beta net1", "prevResult", first},
		{"the last result, at CHECK of the first", "CHECK alpha net1", "prevResult", all},
		{"the last result, at CHECK of the last", "CHECK beta net1", "prevResult", all},
		{"the last result, at DEL of the first", "DEL beta net1", "prevResult", all},
		{"the last result, at DEL of the last", "DEL alpha net1", "prevResult", all},
		{"valid attachments", "GC alpha", "cni.dev/valid-attachments", valid},
		{"no runtimeConfig at GC", "GC alpha", "runtimeConfig", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var request map[string]json.RawMessage
			if err := json.Unmarshal([]byte(n.read(tt.call+".stdin")), &request); err != nil {
				t.Fatal(err)
			}
			if got := shown(tt.key, request[tt.key]); got != tt.want {
				t.Errorf("%s of %s is %s, want %s", tt.key, tt.call, got, tt.want)
			}
		})
	}
}

// shown is a value as it is written, but for the signs that JSON may write in two ways; of a result, its addresses.
func shown(key string, value json.RawMessage) string {
	if key == "prevResult" && len(value) > len("{}") {
		return strings.Join(regexp.MustCompile(`192[0-9./]+`).FindAllString(string(value), -1), " ")
	}
	return strings.NewReplacer(`\u003c`, "<", `\u003e`, ">", `\u0026`, "&").Replace(string(value))
}

// TestParameters: what each plugin gets in its environment, and where it runs (sections 2, 3 and 4).
// Conformance: N-42 N-88 N-89 C-21 C-22 C-23 C-33 C-43 C-55 C-56 C-76 C-88 C-89 C-91 C-101 C-106 C-122 C-161
func TestParameters(t *testing.T) {
	t.Setenv("NOT_OF_CNI", "handed on")
	t.Setenv("CNI_CONTAINERID", "that of our own call")
	t.Setenv("CNI_IFNAME", "eth0")
	n := newNode(t)
	n.operations()
	ours := map[string]string{
		"CNI_CONTAINERID": "c1", "CNI_IFNAME": "net1", "CNI_NETNS": n.pod, "CNI_PATH": n.bin, "NOT_OF_CNI": "handed on",
		"CNI_ARGS": "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web;IP=192.0.2.9",
	}
	ofGC := map[string]string{"CNI_CONTAINERID": "", "CNI_IFNAME": "", "CNI_NETNS": "", "CNI_PATH": n.bin, "NOT_OF_CNI": "handed on", "CNI_ARGS": ""}
	here, err := os.Readlink("/proc/self/ns/net")
	n.must(err)
	for call, want := range map[string]map[string]string{"ADD beta net1": ours, "CHECK beta net1": ours, "DEL beta net1": ours, "GC beta": ofGC} {
		t.Run(call, func(t *testing.T) {
			got := map[string]string{}
			for line := range strings.Lines(n.read(call + ".env")) {
				key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
				got[key] = value
			}
			command, _, _ := strings.Cut(call, " ")
			if got["CNI_COMMAND"] != command {
				t.Errorf("CNI_COMMAND is %q", got["CNI_COMMAND"])
			}
			for key, value := range want {
				if got[key] != value {
					t.Errorf("%s is %q, want %q", key, got[key], value)
				}
			}
			if netns := strings.TrimSpace(n.read(call + ".netns")); netns != here {
				t.Errorf("it runs in %s, not in the node's namespace %s", netns, here)
			}
		})
	}
}

func wantError(t *testing.T, err error, code uint, words ...string) {
	t.Helper()
	if err == nil || !conf.HasCode(err, code) {
		t.Errorf("got %v, want an error with code %d", err, code)
		return
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("%q does not say %q", err, word)
		}
	}
}

// plans is an agent that answers everything with this plan.
func (n *node) plans(p *agentapi.Plan) {
	n.t.Helper()
	l, err := net.Listen("unix", filepath.Join(n.state, "sock"))
	n.must(err)
	n.t.Cleanup(func() { _ = l.Close() })
	body, err := json.Marshal(p)
	n.must(err)
	go func() {
		for conn, err := l.Accept(); err == nil; conn, err = l.Accept() {
			requests := agentapi.NewReader(conn)
			for r := (agentapi.Request{}); requests.Read(&r) == nil; {
				_ = agentapi.Write(conn, agentapi.Response{Version: agentapi.Version, Body: body})
			}
			_ = conn.Close()
		}
	}()
}

// TestFailedAdd: the list ends where it fails, and before the failure is returned all that was begun gets its DEL, the
// last one first (sections 3, "Adding an attachment", and 4).
// Conformance: N-88 N-138 N-140 N-141 N-145 C-10 C-85 C-95 C-97 C-130
func TestFailedAdd(t *testing.T) {
	n := newNode(t)
	n.plans(n.attachments("c1", of(`{"type":"alpha"}`, ""), of(`{"type":"beta"},{"type":"alpha"}`, ""), of(`{"type":"alpha"}`, "")).Plan)
	n.fails("ADD", "beta")
	args := n.argsOf("c1", `,"runtimeConfig":{"io.kubernetes.cri.pod-annotations":{"k8s.v1.cni.cncf.io/networks":"ext,ext,ext"}},"prevResult":`+prevResult)
	var out bytes.Buffer
	wantError(t, (&Plugin{Stdout: &out}).Add(args), 119, "interface net2: network shop/ext", "beta cannot ADD")
	n.wantCalled("ADD", "ADD alpha net1", "ADD beta net2", "DEL alpha net2", "DEL beta net2", "DEL alpha net1")
	if out.Len() > 0 {
		t.Errorf("it printed %s", &out)
	}
	for _, dir := range []string{"attached", "results/results"} {
		if left := files(t, n.state, dir); len(left) > 0 {
			t.Errorf("%s has %q", dir, left)
		}
	}
}

// TestFailedDel: a list ends where its DEL fails, the error is returned and a later DEL goes on with what is left;
// one of another attachment is done all the same (section 3, "Deleting an attachment").
// Conformance: N-142 N-143 C-34 C-41 C-97 C-100 C-129
func TestFailedDel(t *testing.T) {
	n := newNode(t)
	n.attached("c1", of(`{"type":"beta"}`, ""), both)
	n.fails("DEL", "beta")
	wantError(t, (&Plugin{}).Del(n.args), 119, "interface net2: network shop/ext", "interface net1: network shop/ext", "beta cannot DEL")
	n.wantCalled("DEL", "DEL beta net2", "DEL beta net1")
	n.must(os.Remove(filepath.Join(n.dir, "fail DEL beta")))
	n.must((&Plugin{}).Del(n.args))
	n.wantCalled("a later DEL", "DEL beta net2", "DEL alpha net2", "DEL beta net1")
	n.must((&Plugin{}).Del(n.args))
	n.wantCalled("a DEL of what is gone")
	if left := files(t, n.state, "attached"); len(left) > 0 {
		t.Errorf("the journal has %q", left)
	}
}

// TestDelWithoutResult: without libcni's results a plugin is told of none, and the DEL goes on (section 2, "DEL").
// Conformance: C-36 C-37 C-40
func TestDelWithoutResult(t *testing.T) {
	n := newNode(t)
	n.attached("c1", both)
	n.must(os.RemoveAll(n.call.journal.Results()))
	n.must(os.Remove(n.pod))
	n.must((&Plugin{}).Del(n.args))
	n.wantCalled("DEL", "DEL beta net1", "DEL alpha net1")
	if text := n.read("DEL alpha net1.env"); !strings.Contains(text, "CNI_NETNS=\n") {
		t.Errorf("it was given a namespace that is gone: %s", text)
	}
}

// A runtime may name a namespace by a process that has ended, and whose number a process of the node has by now. No
// plugin is told of the node's namespace, in which it would delete the interfaces of the node.
func TestDelInTheNodesNamespace(t *testing.T) {
	for name, del := range map[string]func(*node) error{
		"DEL": func(n *node) error { return (&Plugin{}).Del(n.args) },
		"GC":  func(n *node) error { return (&Plugin{}).GC(n.argsOf("", `,"cni.dev/valid-attachments":[]`)) },
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.attached("c1", both)
			n.must(os.Remove(n.pod))
			n.must(os.Symlink("/proc/self/ns/net", n.pod))
			n.must(del(n))
			for _, plugin := range []string{"beta", "alpha"} {
				if text := n.read("DEL " + plugin + " net1.env"); !strings.Contains(text, "CNI_NETNS=\n") {
					t.Errorf("%s was given the node's namespace: %s", plugin, text)
				}
			}
			if left := files(t, n.state, "attached"); len(left) > 0 {
				t.Errorf("the journal has %q", left)
			}
		})
	}
}

// TestCheckOfDelegates: what is checked, and that an error ends it (sections 1, "disableCheck", and 3, "Checking an
// attachment").
// Conformance: C-5 C-12 C-51 C-53 C-103 C-105 C-129
func TestCheckOfDelegates(t *testing.T) {
	n := newNode(t)
	two := `{"type":"alpha"},{"type":"beta"}`
	for _, tt := range []struct {
		name, config string
		fails        bool
		want         []string
	}{
		{"both", of(two, ""), false, []string{"CHECK alpha net1", "CHECK beta net1"}},
		{"disabled", of(two, `,"disableCheck":true`), false, nil},
		{"of a version without it", strings.Replace(of(two, ""), "1.1.0", "0.3.1", 1), false, nil},
		{"failing", of(two, ""), true, []string{"CHECK alpha net1"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n.t = t
			e := n.attached("c1", tt.config)
			if tt.fails {
				n.fails("CHECK", "alpha")
			}
			err := n.call.runner().Check(t.Context(), e)
			if tt.fails {
				wantError(t, err, 119, "interface net1: network shop/ext", "alpha cannot CHECK")
			} else {
				n.must(err)
			}
			n.wantCalled("CHECK", tt.want...)
		})
	}
}

// TestCheckOfNothing: what was never added, or is deleted, is not checked (section 2, "CHECK").
// Conformance: C-52
func TestCheckOfNothing(t *testing.T) {
	n := newNode(t)
	n.must((&Plugin{}).Check(n.args))
	n.attached("c1", both)
	n.must((&Plugin{}).Del(n.args))
	n.called()
	n.must((&Plugin{}).Check(n.args))
	n.wantCalled("CHECK of what is gone")
}

// TestGC: what the runtime does not list gets its DEL, the plugins of all networks hear what is valid, and an error
// ends nothing (sections 1, "disableGC", 2, "GC", and 3, "Garbage-collecting a network").
// Conformance: C-6 C-68 C-71 C-72 C-73 C-74 C-108 C-109 C-128 C-129
func TestGC(t *testing.T) {
	n := newNode(t)
	network := func(name, config string) string { return strings.Replace(config, `"ext"`, `"`+name+`"`, 1) }
	n.attached("c1", both)
	n.attached("c2", network("quiet", of(`{"type":"alpha"}`, `,"disableGC":true`)))
	n.attached("c3", network("other", of(`{"type":"beta"}`, "")))
	n.attached("c4", network("old", strings.Replace(of(`{"type":"beta"}`, ""), "1.1.0", "1.0.0", 1)))
	n.fails("DEL", "alpha")
	n.fails("GC", "alpha")
	err := (&Plugin{}).GC(n.argsOf("", `,"cni.dev/valid-attachments":[{"containerID":"c1","ifname":"eth0"}]`))
	wantError(t, err, 119, "alpha cannot DEL", "alpha cannot GC")
	got := n.called()
	slices.Sort(got) // the order of networks is open
	if want := []string{"DEL alpha net1", "DEL beta net1", "DEL beta net1", "GC alpha", "GC beta", "GC beta"}; !slices.Equal(got, want) {
		t.Errorf("called %q, want %q", got, want)
	}
	if left := files(t, n.state, "attached"); !slices.Equal(left, []string{"c1@eth0", "c2@eth0"}) {
		t.Errorf("the journal has %q, want what is valid and what would not go", left)
	}
}

// TestMissingPlugin: one that is in no folder of CNI_PATH is an error of every operation (section 3).
// Conformance: C-90 C-92 C-99 C-104 C-107 C-123
func TestMissingPlugin(t *testing.T) {
	n := newNode(t)
	e := n.attachments("c1", of(`{"type":"missing"}`, ""))
	e.Begun = 1
	n.must(n.call.journal.Write(e))
	d := n.call.runner()
	_, _, del := d.Del(t.Context(), e)
	check := d.Check(t.Context(), e)
	e.Begun = 0
	for what, err := range map[string]error{
		"ADD": d.Add(t.Context(), e), "CHECK": check, "DEL": del,
		"GC": (&Plugin{}).GC(n.argsOf("", `,"cni.dev/valid-attachments":[{"containerID":"c1","ifname":"eth0"}]`)),
	} {
		t.Run(what, func(t *testing.T) { wantError(t, err, conf.CodeDelegateFailed, "delegate missing:") })
	}
}

// TestIPAMIsChecked: the plugin for addresses is a name too, and one that may be run (section 1).
// Conformance: C-18
func TestIPAMIsChecked(t *testing.T) {
	n := newNode(t)
	for kind, code := range map[string]uint{"beta": 0, "../beta": conf.CodeInvalidConfig, "/bin/sh": conf.CodeInvalidConfig, "gamma": conf.CodeNotAllowed} {
		e := n.attachments("c1", of(`{"type":"alpha","ipam":{"type":"`+kind+`"}}`, ""))
		if err := n.call.runner().CheckPlan(e.Plan); code == 0 {
			n.must(err)
		} else {
			wantError(t, err, code, "interface net1: network shop/ext:", kind)
		}
	}
}

// TestContainersApart: a call for one container does nothing to another's (section 3, "Lifecycle & Ordering").
// Conformance: C-82
func TestContainersApart(t *testing.T) {
	n := newNode(t)
	n.attached("c1", both)
	n.attached("c2", both)
	held, err := n.call.journal.Lock(t.Context(), pointer("c2"))
	n.must(err)
	defer held.Unlock()
	n.must((&Plugin{}).Del(n.args)) // while a call for the other one runs
	n.wantCalled("DEL", "DEL beta net1", "DEL alpha net1")
	if left := files(t, n.state, "attached"); !slices.Equal(left, []string{"c2@eth0", "c2@eth0.lock"}) {
		t.Errorf("the journal has %q", left)
	}
}

// The schema of the shipped plugins holds for an ADD, and keeps no DEL of what is there already.
func TestBoundarySchemaIsForAdd(t *testing.T) {
	n := newNode(t)
	n.call.conf.AllowedDelegates = []string{"vrf", "alpha"}
	n.must(os.Symlink(filepath.Join(n.bin, "alpha"), filepath.Join(n.bin, "vrf")))
	e := n.attachments("c1", of(`{"type":"alpha"},{"type":"vrf"}`, ""))
	wantError(t, n.call.runner().CheckPlan(e.Plan), conf.CodeInvalidConfig, `interface net1: network shop/ext: plugins[1]: plugin "vrf": "vrfname" is missing`)
	e.Begun = 1
	if left, _, err := n.call.runner().Del(t.Context(), e); err != nil || len(left) > 0 {
		t.Errorf("DEL of an attachment of another version: %v, left %v", err, left)
	}
}
