package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"

	"golang.org/x/sys/unix"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/internal/nettest"
)

// These tests run the plugin as a runtime does, by its process, and hold it against the CNI specification.

// roleEnv makes a copy of the test's binary the plugin.
const roleEnv = "OVN_MULTINET_TEST_ROLE"

func TestMain(m *testing.M) {
	if os.Getenv(roleEnv) == "plugin" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// node is where the plugin is called.
type node struct {
	t     *testing.T
	state string
	netns string
}

// call runs the plugin; env is added to that of a pod, and takes its place where "K=" is empty.
func (n *node) call(command, stdin string, env ...string) (code int, stdout string) {
	n.t.Helper()
	// The race detector lets a process sleep for a second at its end.
	all := []string{roleEnv + "=plugin", "CNI_COMMAND=" + command, "GORACE=atexit_sleep_ms=0"}
	if env == nil {
		env = []string{"CNI_CONTAINERID=c1", "CNI_IFNAME=eth0", "CNI_NETNS=" + n.netns, "CNI_PATH=/opt/cni/bin",
			"CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web"}
	}
	cmd := exec.Command("/proc/self/exe")
	var out bytes.Buffer
	cmd.Env, cmd.Stdin, cmd.Stdout = append(all, env...), strings.NewReader(stdin), &out
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		n.t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String()
}

// stdin is our entry of a conflist as a runtime hands it, with further keys.
func (n *node) stdin(keys ...string) string {
	return fmt.Sprintf(`{"cniVersion":"1.1.0","name":"cbr0","type":"ovn-multinet","stateDir":%q,"agentSocket":%q%s}`,
		n.state, filepath.Join(n.state, "sock"), strings.Join(append([]string{""}, keys...), ","))
}

const (
	plain      = `"runtimeConfig":{"io.kubernetes.cri.pod-annotations":{}}`
	wanted     = `"runtimeConfig":{"io.kubernetes.cri.pod-annotations":{"k8s.v1.cni.cncf.io/networks":"blue"}}`
	result     = `{"cniVersion":"1.1.0","interfaces":[{"name":"eth0"}],"ips":[{"address":"10.244.1.2/24"}],"x":[1.10]}`
	prevResult = `"prevResult":` + result
)

func newNode(t *testing.T) *node {
	return &node{t: t, state: t.TempDir(), netns: "/run/netns/none"}
}

// refusal is an error as the plugin prints it.
type refusal struct {
	Code         uint
	Msg, Details string
}

func (n *node) refused(what string, code int, stdout string) refusal {
	n.t.Helper()
	var r refusal
	if err := json.Unmarshal([]byte(stdout), &r); err != nil || code == 0 {
		n.t.Errorf("%s: it ends with %d and prints %q, want an error", what, code, stdout)
	}
	return r
}

// TestVersion: the answer to VERSION, for which nothing but the command is needed (sections 2 and 5, "VERSION").
// Conformance: C-66 C-67 C-131 C-143
func TestVersion(t *testing.T) {
	code, stdout := newNode(t).call("VERSION", `{"cniVersion":"1.1.0"}`, "CNI_NETNS=")
	const want = `{"cniVersion":"1.1.0","supportedVersions":["0.3.1","0.4.0","1.0.0","1.1.0"]}` + "\n"
	if code != 0 || stdout != want {
		t.Errorf("it ends with %d and prints %s, want %s", code, stdout, want)
	}
}

// TestSuccess: each operation ends with 0 and prints its result, which only ADD has (section 2, "Errors").
// Conformance: C-25 C-29 C-36 C-57 C-61 C-70 C-131 C-132 C-163
func TestSuccess(t *testing.T) {
	n := newNode(t)
	if err := os.WriteFile(agentapi.ReadyMarker(filepath.Join(n.state, "sock")), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ command, stdin, want string }{
		{"ADD", n.stdin(plain, prevResult), result + "\n"},
		{"CHECK", n.stdin(plain, prevResult), ""},
		{"DEL", n.stdin(plain, prevResult), ""},
		{"DEL", n.stdin(plain), ""},
		{"GC", n.stdin(`"cni.dev/valid-attachments":[]`), ""},
		{"STATUS", n.stdin(), ""},
	} {
		if code, stdout := n.call(tt.command, tt.stdin); code != 0 || stdout != tt.want {
			t.Errorf("%s ends with %d and prints %q, want %q", tt.command, code, stdout, tt.want)
		}
	}
}

// TestAnyVersion: the result is of the version that the configuration has (section 5, "ADD Success").
// Conformance: C-133 C-143
func TestAnyVersion(t *testing.T) {
	n := newNode(t)
	for _, version := range []string{"0.3.1", "0.4.0", "1.0.0", "1.1.0"} {
		of := func(text string) string { return strings.ReplaceAll(text, "1.1.0", version) }
		if code, stdout := n.call("ADD", of(n.stdin(plain, prevResult))); code != 0 || stdout != of(result)+"\n" {
			t.Errorf("%s: it ends with %d and prints %s", version, code, stdout)
		}
	}
}

// TestErrors: what goes wrong ends with another code than 0, and is on standard output as an object with a code of the
// specification's table and a message that names what is wrong (section 5, "Error").
// Conformance: C-26 C-27 C-58 C-59 C-60 C-145 C-146 C-148 C-149 C-150
func TestErrors(t *testing.T) {
	n := newNode(t)
	for _, tt := range []struct {
		name, command, stdin string
		env                  []string
		code                 uint
		words                string
	}{
		{"incompatible version", "ADD", strings.Replace(n.stdin(prevResult), "1.1.0", "9.0.0", 1), nil, 1, "incompatible CNI versions"},
		{"a variable is missing", "ADD", n.stdin(), []string{"CNI_CONTAINERID=c1", "CNI_PATH=/opt"}, conf.CodeEnvironment, "CNI_NETNS,CNI_IFNAME"},
		{"of DEL", "DEL", n.stdin(), []string{"CNI_NETNS=/x", "CNI_PATH=/opt"}, conf.CodeEnvironment, "CNI_CONTAINERID,CNI_IFNAME"},
		{"of CHECK", "CHECK", n.stdin(), []string{"CNI_PATH=/opt"}, conf.CodeEnvironment, "CNI_CONTAINERID,CNI_NETNS,CNI_IFNAME"},
		{"unknown command", "REMOVE", n.stdin(), nil, conf.CodeEnvironment, "CNI_COMMAND"},
		{"no pod is named", "ADD", n.stdin(wanted, prevResult), []string{"CNI_CONTAINERID=c1", "CNI_IFNAME=eth0", "CNI_NETNS=/x", "CNI_PATH=/opt"}, conf.CodeEnvironment, "CNI_ARGS"},
		{"no JSON", "ADD", `{"name":`, nil, conf.CodeDecoding, "JSON"},
		{"an unknown key", "ADD", n.stdin(prevResult, `"agentSock":"/x"`), nil, conf.CodeDecoding, `"agentSock"`},
		{"no name", "ADD", `{"cniVersion":"1.1.0","type":"ovn-multinet"}`, nil, conf.CodeInvalidConfig, "network name"},
		{"a name that is a path", "ADD", strings.Replace(n.stdin(prevResult), "cbr0", "../x", 1), nil, conf.CodeInvalidConfig, "network name"},
		{"not chained", "ADD", n.stdin(plain), nil, conf.CodeInvalidConfig, "prevResult"},
		{"an invalid value", "ADD", n.stdin(prevResult, `"timeout":"soon"`), nil, conf.CodeInvalidConfig, `timeout: "soon"`},
		{"passing trouble", "ADD", n.stdin(wanted, prevResult, `"timeout":"1s"`), nil, conf.CodeTryAgain, "agent"},
		{"not ready", "STATUS", n.stdin(), nil, conf.CodeNotAvailable, "not ready"},
		{"GC of an older version", "GC", strings.Replace(n.stdin(), "1.1.0", "1.0.0", 1), nil, 1, "GC"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := &node{t: t, state: n.state, netns: n.netns}
			code, stdout := n.call(tt.command, tt.stdin, tt.env...)
			if r := n.refused(tt.command, code, stdout); r.Code != tt.code || !strings.Contains(r.Msg, tt.words) {
				t.Errorf("got code %d, %q; want %d and %q", r.Code, r.Msg, tt.code, tt.words)
			}
		})
	}
}

// newPod is a node with a namespace for a pod, and with an agent that plans this and refuses what is in refusals.
func newPod(t *testing.T, p *agentapi.Plan, refusals map[string]*agentapi.Error) *node {
	t.Helper()
	n := newNode(t)
	n.netns = nettest.Namespace(t)
	l, err := net.Listen("unix", filepath.Join(n.state, "sock"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	body, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for conn, err := l.Accept(); err == nil; conn, err = l.Accept() {
			requests := agentapi.NewReader(conn)
			for r := (agentapi.Request{}); requests.Read(&r) == nil; {
				_ = agentapi.Write(conn, agentapi.Response{Version: agentapi.Version, Body: body, Error: refusals[r.Op]})
			}
			_ = conn.Close()
		}
	}()
	return n
}

// inPod does something to a link of the pod.
func (n *node) inPod(name string, do func(netlink.Link) error) {
	n.t.Helper()
	err := ns.WithNetNSPath(n.netns, func(ns.NetNS) error {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		return do(link)
	})
	if err != nil {
		n.t.Fatal(err)
	}
}

// blue is a plan for one interface.
func blue() *agentapi.Plan {
	return &agentapi.Plan{Interfaces: []agentapi.Interface{{
		Name: "net1", Network: "shop/blue", MAC: "0a:58:0a:01:00:05", MTU: 1400, Addresses: []netip.Prefix{netip.MustParsePrefix("10.1.0.5/24")},
		Port: agentapi.Port{Name: "shop/web/net1", UUID: "p-1"},
	}}}
}

// TestCheck: right after the ADD all is well, what others may have changed since is passed over, and what is missing is
// an error (section 2, "CHECK").
// Conformance: C-44 C-45 C-46 C-47 C-49 C-63
func TestCheck(t *testing.T) {
	if !nettest.InOwn(t) {
		return
	}
	n := newPod(t, blue(), nil)
	for range 2 { // nothing of the first is in the way of the second
		if code, stdout := n.call("ADD", n.stdin(wanted, prevResult)); code != 0 || stdout != result+"\n" {
			t.Fatalf("ADD ends with %d and prints %s", code, stdout)
		}
		if code, stdout := n.call("CHECK", n.stdin(wanted, prevResult)); code != 0 || stdout != "" {
			t.Errorf("CHECK right after ADD ends with %d and prints %s", code, stdout)
		}
		n.inPod("net1", func(l netlink.Link) error {
			_, all, _ := net.ParseCIDR("10.9.0.0/16")
			return netlink.RouteAdd(&netlink.Route{LinkIndex: l.Attrs().Index, Dst: all, Gw: net.IPv4(10, 1, 0, 1)})
		})
		n.inPod("net1", func(l netlink.Link) error { return netlink.LinkSetMTU(l, 1300) })
		if code, stdout := n.call("CHECK", n.stdin(wanted, prevResult)); code != 0 || stdout != "" {
			t.Errorf("CHECK after others' changes ends with %d and prints %s", code, stdout)
		}
		there := n.netns
		n.netns = "/run/netns/gone"
		code, stdout := n.call("CHECK", n.stdin(wanted, prevResult))
		if r := n.refused("CHECK", code, stdout); r.Code != conf.CodeNotAsMade || !strings.Contains(r.Msg, "the pod's network namespace: ") {
			t.Errorf("CHECK without the namespace says %d %q", r.Code, r.Msg)
		}
		n.netns = there
		for _, damage := range []struct {
			link  string
			do    func(netlink.Link) error
			words string
		}{
			{"net1", func(l netlink.Link) error {
				return netlink.AddrDel(l, &netlink.Addr{IPNet: &net.IPNet{IP: net.IPv4(10, 1, 0, 5), Mask: net.CIDRMask(24, 32)}})
			}, "it lacks address 10.1.0.5/24"},
			{"net1", func(l netlink.Link) error { return netlink.LinkSetHardwareAddr(l, net.HardwareAddr{2, 0, 0, 0, 0, 9}) },
				"its MAC is 02:00:00:00:00:09, not 0a:58:0a:01:00:05"},
			{"net1", func(l netlink.Link) error {
				return errors.Join(netlink.LinkSetDown(l), netlink.LinkSetName(l, "other"))
			}, "Link not found"},
			{"other", netlink.LinkDel, "host-side veth"},
		} {
			n.inPod(damage.link, damage.do)
			code, stdout := n.call("CHECK", n.stdin(wanted, prevResult))
			if r := n.refused("CHECK", code, stdout); r.Code != conf.CodeNotAsMade ||
				!strings.Contains(r.Msg, "interface net1 is not as it was made: ") || !strings.Contains(r.Msg, damage.words) {
				t.Errorf("CHECK says %d %q, want %d %q", r.Code, r.Msg, conf.CodeNotAsMade, damage.words)
			}
		}
		if code, stdout := n.call("DEL", n.stdin(wanted)); code != 0 || stdout != "" {
			t.Errorf("DEL ends with %d and prints %s", code, stdout)
		}
	}
}

// TestCheckByTheAgent: what the agent finds missing in the databases is the answer to CHECK.
// Conformance: C-47 C-48
func TestCheckByTheAgent(t *testing.T) {
	if !nettest.InOwn(t) {
		return
	}
	n := newPod(t, blue(), map[string]*agentapi.Error{agentapi.OpCheck: {Code: conf.CodeNotAsMade, Msg: "interface net1: its port is gone"}})
	if code, stdout := n.call("ADD", n.stdin(wanted, prevResult)); code != 0 {
		t.Fatalf("ADD ends with %d and prints %s", code, stdout)
	}
	code, stdout := n.call("CHECK", n.stdin(wanted, prevResult))
	if r := n.refused("CHECK", code, stdout); r.Code != conf.CodeNotAsMade || r.Msg != "interface net1: its port is gone" {
		t.Errorf("got code %d, %q", r.Code, r.Msg)
	}
}

// TestInterfaceIsThere: an interface of the name that is asked for is an error, stays, and nothing else does (section 2,
// "ADD").
// Conformance: C-31
func TestInterfaceIsThere(t *testing.T) {
	if !nettest.InOwn(t) {
		return
	}
	p := blue()
	first := p.Interfaces[0]
	first.Name, first.MAC, first.Addresses = "first", "0a:58:0a:01:00:06", nil
	p.Interfaces = append([]agentapi.Interface{first}, p.Interfaces...)
	n := newPod(t, p, nil)
	n.inPod("lo", func(netlink.Link) error {
		return netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "net1"}, PeerName: "other"})
	})
	links := func() (names []string) {
		list := func(netlink.Link) error {
			all, err := netlink.LinkList()
			for _, l := range all {
				names = append(names, fmt.Sprint(l.Attrs().Name, l.Attrs().Index))
			}
			return err
		}
		n.inPod("lo", list)
		if err := list(nil); err != nil {
			t.Error(err)
		}
		return names
	}
	before := links()
	code, stdout := n.call("ADD", n.stdin(wanted, prevResult))
	if r := n.refused("ADD", code, stdout); r.Code != conf.CodeInvalidConfig || r.Msg != "interface net1: the pod already has an interface of that name" {
		t.Errorf("got code %d, %q", r.Code, r.Msg)
	}
	if after := links(); !slices.Equal(after, before) {
		t.Errorf("links of pod and node are %q, were %q", after, before)
	}
}

// TestNodeNamespace: what is for a pod is never done in the node's network namespace. A DEL succeeds all the same, or it would
// be repeated for ever, and takes away what the ADD made.
func TestNodeNamespace(t *testing.T) {
	if !nettest.InOwn(t) {
		return
	}
	n := newPod(t, blue(), nil)
	links := func() (names []string) {
		all, err := netlink.LinkList()
		if err != nil {
			t.Error(err)
		}
		for _, l := range all {
			names = append(names, l.Attrs().Name)
		}
		return names
	}
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "eth0"}, PeerName: "net1"}); err != nil {
		t.Fatal(err)
	}
	before, pod := links(), n.netns
	refused := func(command, stdin string) {
		t.Helper()
		n.netns = fmt.Sprintf("/proc/%d/ns/net", os.Getpid())
		defer func() { n.netns = pod }()
		code, stdout := n.call(command, stdin)
		if r := n.refused(command, code, stdout); r.Code != conf.CodeEnvironment || r.Details == "" || strings.Contains(r.Msg, "\n") ||
			!strings.Contains(r.Msg, "CNI_NETNS "+n.netns+" is the network namespace of the node itself") {
			t.Errorf("%s: got code %d, %q", command, r.Code, r.Msg)
		}
	}
	deleted := func(what string) {
		t.Helper()
		n.netns = fmt.Sprintf("/proc/%d/ns/net", os.Getpid())
		defer func() { n.netns = pod }()
		if code, stdout := n.call("DEL", n.stdin(wanted)); code != 0 || stdout != "" {
			t.Errorf("DEL %s ends with %d and prints %s", what, code, stdout)
		}
		if after := links(); !slices.Equal(after, before) {
			t.Errorf("DEL %s: links of the node are %q, were %q", what, after, before)
		}
	}
	for name, annotations := range map[string]string{"a plain pod": plain, "a pod with networks": wanted} {
		refused("ADD", n.stdin(annotations, prevResult))
		if entries, err := os.ReadDir(n.state); err != nil || len(entries) != 1 { // the agent's socket
			t.Errorf("%s: the state folder has %v, %v", name, entries, err)
		}
		if after := links(); !slices.Equal(after, before) {
			t.Errorf("%s: links of the node are %q, were %q", name, after, before)
		}
		deleted("of " + name)
	}
	if code, stdout := n.call("ADD", n.stdin(wanted, prevResult)); code != 0 {
		t.Fatalf("ADD ends with %d and prints %s", code, stdout)
	}
	refused("CHECK", n.stdin(wanted, prevResult))
	refused("ADD", n.stdin(wanted, prevResult)) // and what is there stays
	if code, stdout := n.call("CHECK", n.stdin(wanted, prevResult)); code != 0 {
		t.Errorf("CHECK ends with %d and prints %s", code, stdout)
	}
	deleted("after an ADD")
	deleted("once more")
}

// TestEachCallReachesDelegates: ADD, CHECK, GC and DEL are called of the plugins of a pod's networks too (section 4,
// "Delegated plugin execution procedure"), and STATUS is not: which they are only a pod can say.
// Conformance: C-51 C-64 C-65 C-73 C-126 C-127 C-128
func TestEachCallReachesDelegates(t *testing.T) {
	if err := unix.Access("/sys/fs/cgroup", unix.W_OK); err != nil {
		t.Skip("needs root, who may make control groups: ", err)
	}
	if !nettest.InOwn(t) {
		return
	}
	p := &agentapi.Plan{Delegates: []agentapi.Delegate{{Name: "net1", Network: "shop/ext", Conflist: []byte(`{"cniVersion":"1.1.0","name":"ext","plugins":[{"type":"other"}]}`)}}}
	n := newPod(t, p, nil)
	calls := filepath.Join(n.state, "calls")
	script := "#!/bin/sh\necho $CNI_COMMAND >> '" + calls + "'\n[ $CNI_COMMAND != ADD ] || echo '{}'\n"
	if err := os.WriteFile(filepath.Join(n.state, "other"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(agentapi.ReadyMarker(filepath.Join(n.state, "sock")), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{"STATUS", "ADD", "CHECK", "GC", "STATUS", "DEL"} {
		code, stdout := n.call(command, n.stdin(wanted, prevResult, `"allowedDelegates":["other"]`, `"cni.dev/valid-attachments":[{"containerID":"c1","ifname":"eth0"}]`),
			"CNI_CONTAINERID=c1", "CNI_IFNAME=eth0", "CNI_NETNS="+n.netns, "CNI_PATH="+n.state, "CNI_ARGS=K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web")
		if code != 0 {
			t.Errorf("%s ends with %d and prints %s", command, code, stdout)
		}
	}
	if text, err := os.ReadFile(calls); err != nil || string(text) != "ADD\nCHECK\nGC\nDEL\n" {
		t.Errorf("it was called with %q, %v", text, err)
	}
}

// TestVersionIsTheOneAsked: an answer to VERSION is in the version of the question, and an error in that of the call
// (section 5, "VERSION Success" and "Error").
// Conformance: C-142 C-144
func TestVersionIsTheOneAsked(t *testing.T) {
	n := newNode(t)
	for command, stdin := range map[string]string{
		"VERSION": `{"cniVersion":"0.4.0"}`, "ADD": strings.Replace(n.stdin(plain), "1.1.0", "0.4.0", 1),
	} {
		var got struct{ CNIVersion string }
		if _, stdout := n.call(command, stdin); json.Unmarshal([]byte(stdout), &got) != nil || got.CNIVersion != "0.4.0" {
			t.Errorf("%s: it prints %s, want version 0.4.0", command, stdout)
		}
	}
	var got struct{ CNIVersion string }
	if _, stdout := n.call("ADD", "{"); json.Unmarshal([]byte(stdout), &got) != nil || got.CNIVersion != "1.1.0" {
		t.Errorf("of what says no version: it prints %s, want version 1.1.0", stdout)
	}
}

// TestInvalidVariables: the message of code 4 has the name of the variable (section 5, "Error").
// Conformance: C-150
func TestInvalidVariables(t *testing.T) {
	n := newNode(t)
	for want, env := range map[string][]string{
		"CNI_CONTAINERID: ": {"CNI_CONTAINERID=-x", "CNI_IFNAME=eth0", "CNI_NETNS=/x", "CNI_PATH=/opt"},
		"CNI_IFNAME: ":      {"CNI_CONTAINERID=c1", "CNI_IFNAME=e/0", "CNI_NETNS=/x", "CNI_PATH=/opt"},
	} {
		code, stdout := n.call("ADD", n.stdin(plain, prevResult), env...)
		if r := n.refused("ADD", code, stdout); r.Code != conf.CodeEnvironment || !strings.HasPrefix(r.Msg, want) {
			t.Errorf("got code %d, %q; want %d and %q", r.Code, r.Msg, conf.CodeEnvironment, want)
		}
	}
}
