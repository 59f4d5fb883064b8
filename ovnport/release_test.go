package ovnport_test

import (
	"fmt"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnport"
)

// Of k ports one is gone and one is another sandbox's: the others go all the same.
func TestReleaseOfTheRest(t *testing.T) {
	w := newWorld(t)
	old := owner("web-1", "sandbox-1")
	var wants []ovnport.Request
	for i := range 5 {
		wants = append(wants, want(w.network(t, fmt.Sprint("n", i), netDual), fmt.Sprint("net", i)))
	}
	ports := mustEnsure(t, w.nb, old, wants...)
	w.NBCtl("ls-del", "shop/n1")
	newer := old
	newer.Sandbox = "sandbox-2"
	taken := mustEnsure(t, w.nb, newer, wants[3])
	w.proxy.Reset()
	mustRelease(t, w.nb, old.Sandbox, ports...)
	w.wantCounts(t, 1, 1, 1)
	s := read(t, w.Server)
	if bad := s.differs(newer, taken[0], true); bad != "" || len(s.ports) != 1 {
		t.Errorf("%s; %d ports left, want the one that was taken over", bad, len(s.ports))
	}

	// Twice and thrice it is success and nothing.
	w.proxy.Reset()
	for range 2 {
		mustRelease(t, w.nb, old.Sandbox, ports...)
		if err := w.nb.ReleaseSandbox(timeout(t), old); err != nil {
			t.Error(err)
		}
	}
	w.wantCounts(t, 2, 2, 4) // the port list has nothing of the sandbox
}

func TestReleaseOfNothing(t *testing.T) {
	w := newWorld(t)
	w.proxy.Reset()
	mustRelease(t, w.nb, "sandbox-1")
	w.wantCounts(t, 0, 0, 0)
}

func TestReleaseSandboxTakesOnlyItsOwn(t *testing.T) {
	w := newWorld(t)
	n, m := w.network(t, "blue", netDual), w.network(t, "red", net4)
	stays := owner("web-2", "sandbox-2")
	mustEnsure(t, w.nb, owner("web-1", "sandbox-1"), want(n, "net1"), want(m, "net2"), want(n, "net3"))
	ports := mustEnsure(t, w.nb, stays, want(n, "net1"), want(m, "net2"))
	if err := w.nb.ReleaseSandbox(timeout(t), on1("sandbox-1")); err != nil {
		t.Fatal(err)
	}
	w.wantPorts(t, stays, ports)
}

// A Release with claims that are another port's by now leaves them.
func TestReleaseLeavesOthersClaims(t *testing.T) {
	w := newWorld(t)
	n := w.network(t, "blue", net4)
	stays, goes := owner("web-1", "sandbox-1"), owner("web-2", "sandbox-2")
	ports := mustEnsure(t, w.nb, stays, want(n, "net1", "10.1.0.7", "10.1.0.8"))
	stale := mustEnsure(t, w.nb, goes, want(n, "net1", "10.1.0.9"))
	stale[0].Claims = []string{ovndb.AddressKey(n.ID(), addr("10.1.0.8"))}
	mustRelease(t, w.nb, goes.Sandbox, stale...)
	w.wantPorts(t, stays, ports)
}

// The release is refused as a whole, and before the second attempt a port is taken over: it stays.
func TestTakenOverBetweenTwoAttempts(t *testing.T) {
	w := newWorld(t)
	n, m, k := w.network(t, "blue", netDual), w.network(t, "red", netDual), w.network(t, "green", net4)
	other := w.other(t)
	old, newer := owner("web-1", "sandbox-1"), owner("web-1", "sandbox-2")
	ports := mustEnsure(t, w.nb, old, want(n, "net1"), want(m, "net2"), want(k, "net3"))
	w.NBCtl("lsp-del", "shop/web-1/net3")
	attempts := 0
	var taken []ovnport.Port
	happened := w.once(t, func(tx ovndbtest.Transact) bool {
		if hasOp("mutate", "Logical_Switch")(tx) {
			attempts++
		}
		return attempts == 2
	}, func() { taken = mustEnsure(t, other, newer, want(m, "net2")) })
	mustRelease(t, w.nb, old.Sandbox, ports...)
	happened()
	w.wantPorts(t, newer, taken)
}

// TestReleaseInterfaces: only the ports of these interfaces go, also those whose keys nobody knows.
func TestReleaseInterfaces(t *testing.T) {
	w := newWorld(t)
	n, m := w.network(t, "blue", netDual), w.network(t, "red", net4)
	other := owner("web-2", "sandbox-2")
	theirs := mustEnsure(t, w.nb, other, want(n, "net2"))
	ports := mustEnsure(t, w.nb, owner("web-1", "sandbox-1"), want(n, "net1"), want(m, "net2"), want(n, "net3"))
	for range 2 {
		if err := w.nb.ReleaseInterfaces(timeout(t), on1("sandbox-1"), []string{"net2", "net3", "net4"}); err != nil {
			t.Fatal(err)
		}
		s := read(t, w.Server)
		if bad := s.differs(owner("web-1", "sandbox-1"), ports[0], true); bad != "" || len(s.ports) != 2 {
			t.Errorf("%s; %d ports left, want net1, and net2 of the other pod", bad, len(s.ports))
		}
		if bad := s.differs(other, theirs[0], true); bad != "" {
			t.Error(bad)
		}
	}
}
