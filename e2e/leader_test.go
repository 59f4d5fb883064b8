package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
)

// TestTwoControllers: of two on one folder one leads, and the other takes over when it is killed.
func TestTwoControllers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, lab.Options{}, nil)
	second, err := w.RunController(w.ctx, "second")
	w.must(err)
	w.says(second, "waiting")
	leads := func(p *lab.Process) bool { return strings.Contains(read(t, p.LogPath()), "msg=leading") }
	equal(t, "who leads: the first, the second", []bool{leads(w.Controller), leads(second)}, []bool{true, false})

	w.network("one", `{"type":"ovn-multinet","subnets":"10.20.1.0/24","router":"main","routes":[{"dst":"10.20.2.0/24"}]}`)
	p := w.attached(0, "web", "one")
	before := w.written()
	w.must(w.KillController())
	w.network("two", `{"type":"ovn-multinet","subnets":"10.20.2.0/24","router":"main"}`)
	equal(t, "the second leads", leads(second), true)
	if made := strings.Join(w.written()[len(before):], "\n"); !strings.Contains(made, "shop/two") || strings.Contains(made, "shop/one") {
		t.Errorf("the second controller should have written network shop/two alone:\n%s", made)
	}
	w.mustReach(p, "10.20.1.1", "10.20.2.1")

	// The one that comes back waits; what goes on is the second's work.
	w.must(w.StartController(w.ctx))
	w.says(w.Controller, "msg=waiting")
	w.end(p)
	w.endNetworks("one", "two")
	equal(t, "times that the first led", strings.Count(read(t, w.Controller.LogPath()), "msg=leading"), 1)
	w.asBefore()
}

// TestManyNetworks makes 500 networks at once, of which 200 have both families and hang on four routers, and then has
// another controller look at them all: it writes nothing.
func TestManyNetworks(t *testing.T) {
	t.Parallel()
	const all, routers = 500, 4
	w := newWorld(t, lab.Options{}, nil)
	names, configs, file := make([]string, all), make([]string, all), strings.Builder{}
	for i := range all {
		names[i] = fmt.Sprintf("many-%d", i)
		configs[i] = fmt.Sprintf(`{"type":"ovn-multinet","subnets":"10.%d.%d.0/24"}`, 32+i/256, i%256)
		if i < 200 {
			configs[i] = fmt.Sprintf(`{"type":"ovn-multinet","subnets":"10.%d.%d.0/24,fd00:%x::/64","router":"r%d","routes":[{"dst":"10.32.0.0/14"}]}`,
				32+i/256, i%256, i+1, i%routers)
		}
		fmt.Fprintf(&file, "---\n%s", manifest(names[i], configs[i]))
	}
	w.must(w.WriteManifest("many.yaml", file.String()))
	w.must(lab.Eventually(w.ctx, func() error {
		for _, name := range names {
			if state, ok := w.state(name); !ok || !state.Ready {
				return fmt.Errorf("network %s is not ready: %+v", name, state)
			}
		}
		return nil
	}))
	switches, err := w.switches("list", "Logical_Switch")
	w.must(err)
	for i, name := range names {
		n, err := netmodel.ParseNetwork("shop", name, []byte(configs[i]))
		w.must(err)
		equal(t, "revision of "+n.ID(), switches[n.ID()][ovndb.AcceptedPrefix+n.ID()], n.Revision())
	}
	out, err := w.NBCtl(w.ctx, "--bare", "--columns=ports", "list", "Logical_Router")
	w.must(err)
	equal(t, "ports on the routers", len(strings.Fields(out)), 200)
	a, b := w.attached(0, "a", names[0]), w.attached(0, "b", names[196])
	w.mustReach(a, w.links(b)["net1"].IPs()[0])
	w.end(a, b)

	w.settled()
	before := w.written()
	w.must(w.KillController())
	w.must(w.StartController(w.ctx))
	w.settled()
	w.nothingWritten(before)

	w.must(w.RemoveManifest("many.yaml"))
	w.asBefore()
	for _, name := range names {
		if _, ok := w.state(name); ok {
			t.Errorf("the state of %s is left", name)
		}
	}
}
