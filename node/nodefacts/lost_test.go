package nodefacts

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/node/journal"
)

// TestLostInterfaces: interfaces of the journal whose host-side veths are not among the links, and no others.
func TestLostInterfaces(t *testing.T) {
	there := agentapi.HostVeth("c-web", "net1")
	node := root(tree(t, map[string]string{
		"proc/net/dev":                   "Inter-|   Receive\n face |bytes\n    lo: 1 2\n" + there + ": 3 4\n",
		conf.DefaultStateDir + "/unused": "",
	}))
	proc := procfs(filepath.Join(string(node), "proc"))
	dir := journal.Dir(filepath.Join(string(node), conf.DefaultStateDir))
	if err := dir.Prepare(); err != nil {
		t.Fatal(err)
	}
	write := func(pod string, change func(*journal.Entry), names ...string) {
		t.Helper()
		e := journal.NewEntry(agentapi.Sandbox{ContainerID: "c-" + pod, Interface: "eth0", Namespace: "shop", Pod: pod}, "/run/netns/x", "")
		e.Plan = &agentapi.Plan{}
		for _, name := range names {
			e.Plan.Interfaces = append(e.Plan.Interfaces, agentapi.Interface{Name: name, MAC: "02:00:00:00:00:01", MTU: 1400})
		}
		if change(e); e.Plan == nil {
			t.Log(pod, "has no plan")
		}
		if err := dir.Write(e); err != nil {
			t.Fatal(err)
		}
	}
	write("web", func(*journal.Entry) {}, "net1", "net2")
	write("begins", func(e *journal.Entry) { e.Plan = nil })
	write("changes", func(e *journal.Entry) { e.Changing = []string{"net1"} }, "net1")
	write("ends", func(e *journal.Entry) { e.FailedAttempts = 1 }, "net1")
	if lost := lostInterfaces(node, proc); !slices.Equal(lost, []string{"shop/web/net2"}) {
		t.Errorf("lost %q", lost)
	}
	var many []string
	for n := range maxLost + 5 {
		many = append(many, fmt.Sprint("x", n))
	}
	write("many", func(*journal.Entry) {}, many...)
	if lost := lostInterfaces(node, proc); len(lost) != maxLost || !strings.HasPrefix(lost[0], "shop/many/") {
		t.Errorf("lost %q", lost)
	}
	if lost := lostInterfaces(root(t.TempDir()), proc); lost != nil {
		t.Errorf("without a journal: %q", lost)
	}
}
