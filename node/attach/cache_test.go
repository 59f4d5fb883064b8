package attach

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/conf"
)

// TestFind: of the runtime's files the one counts that is of the pod and whose network namespace is there.
func TestFind(t *testing.T) {
	dir := t.TempDir()
	netns := filepath.Join(dir, "netns")
	must(t, os.MkdirAll(filepath.Join(dir, "results"), 0o700))
	must(t, os.WriteFile(netns, nil, 0o600))
	write := func(name, container, network, pod, uid, path, sandbox string) {
		text := fmt.Sprintf(`{"kind":"cniCacheV1","containerId":%q,"ifName":"eth0","networkName":%q,"netns":%q,
			"cniArgs":[["IgnoreUnknown","1"],["K8S_POD_NAMESPACE","shop"],["K8S_POD_NAME",%q],["K8S_POD_UID",%q]],
			"result":{"cniVersion":"1.0.0","interfaces":[{"name":"veth1"},{"name":"eth0","sandbox":%q}]}}`,
			container, network, path, pod, uid, sandbox)
		must(t, os.WriteFile(filepath.Join(dir, "results", name), []byte(text), 0o600))
	}
	c, web := Config{Cache: dir}, &agentapi.Sandbox{Namespace: "shop", Pod: "web", UID: "u-1"}
	finds := func(want, words string) {
		t.Helper()
		a, err := c.find(web, "cbr0")
		if want == "" {
			if err == nil || !strings.Contains(err.Error(), words) || !conf.HasCode(err, conf.CodeTryAgain) {
				t.Errorf("found %+v, %v, want an error with %q", a, err, words)
			}
			return
		}
		if err != nil || a.ContainerID != want || a.netns() != netns ||
			a.args() != "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web;K8S_POD_UID=u-1" || !strings.Contains(string(a.Result), "veth1") {
			t.Errorf("found %+v, %v, want %s", a, err, want)
		}
	}
	finds("", "has no result")
	write("cbr0-old-eth0", "old", "cbr0", "web", "u-1", filepath.Join(dir, "gone"), "")
	write("cbr0-other-eth0", "other", "cbr0", "db", "u-2", netns, "")
	write("cbr0-former-eth0", "former", "cbr0", "web", "u-0", netns, "")
	write("cbr01-second-eth0", "second", "cbr01", "web", "u-1", netns, "")
	write("cbr0-x-second-eth0", "second", "cbr0-x", "web", "u-1", netns, "")
	must(t, os.WriteFile(filepath.Join(dir, "results", "cbr0-broken-eth0"), []byte("{"), 0o600))
	finds("", "has no result")
	write("cbr0-c1-eth0", "c1", "cbr0", "web", "u-1", netns, "")
	finds("c1", "")
	write("cbr0-c1-eth0", "c1", "cbr0", "web", "u-1", "", netns) // as libcni before 1.2
	finds("c1", "")
	write("cbr0-c2-eth0", "c2", "cbr0", "web", "u-1", netns, "")
	finds("", "has 2 sandboxes of the pod")
}

// TestEntry: the plugin gets its own entry of the conflist, with the list's name and version.
func TestEntry(t *testing.T) {
	c := Config{NetDir: t.TempDir()}
	for _, tt := range []struct{ text, words string }{
		{"", "no such file"}, {"{", "unexpected end"}, {`{"name":"cbr0","plugins":[{"type":"flannel"}]}`, "does not chain"},
	} {
		if tt.text != "" {
			must(t, os.WriteFile(filepath.Join(c.NetDir, conf.ConflistName), []byte(tt.text), 0o600))
		}
		if _, _, err := c.entry(); err == nil || !strings.Contains(err.Error(), tt.words) {
			t.Errorf("%s: %v, want %q", tt.text, err, tt.words)
		}
	}
	must(t, os.WriteFile(filepath.Join(c.NetDir, conf.ConflistName), []byte(
		`{"name":"cbr0","cniVersion":"1.0.0","plugins":[{"type":"flannel"},{"type":"ovn-multinet","agentSocket":"/x"}]}`), 0o600))
	entry, name, err := c.entry()
	if err != nil || name != "cbr0" || entry["name"] != "cbr0" || entry["cniVersion"] != "1.0.0" || entry["agentSocket"] != "/x" {
		t.Errorf("entry %v of %s, %v", entry, name, err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
