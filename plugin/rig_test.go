package plugin

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/node/journal"
)

func sandbox(id string) agentapi.Sandbox {
	return agentapi.Sandbox{ContainerID: id, Interface: "eth0", Conflist: "cbr0", Namespace: "shop", Pod: "web", UID: "u-1"}
}

func pointer(id string) *agentapi.Sandbox {
	s := sandbox(id)
	return &s
}

// entry is the file of a container's journal entry.
func (n *node) entry(container string) string { return journal.Dir(n.state).Entry(pointer(container)) }

// release is the file of a container's pending release.
func (n *node) release(container string) string {
	return journal.Dir(n.state).PendingRelease(pointer(container))
}

// readRelease reads a pending release as the agent does.
func (n *node) readRelease(container string) agentapi.Release {
	n.t.Helper()
	r, damaged, err := journal.Dir(n.state).ReadRelease(pointer(container).ID())
	n.must(err)
	if r == nil || damaged {
		n.t.Fatalf("the release of %s: %+v, damaged: %t", container, r, damaged)
	}
	return *r
}

// files lists a folder of the state, hidden files too.
func files(t *testing.T, dir ...string) []string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(dir...))
	if err != nil {
		t.Fatal(err)
	}
	names := []string{}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// onePort are the interfaces of a plan with one port.
func onePort() []agentapi.Interface {
	return []agentapi.Interface{{Name: "net1", Port: agentapi.Port{Name: "shop/web/net1", UUID: "p-1", Claims: []string{"c-1"}}}}
}
