package ovnport_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovnport"
)

func migrates(context.Context, ovnport.Owner) error {
	return fmt.Errorf("it runs: %w", ovnport.ErrMigrates)
}

// kept are ports of IPAMClaims, as an agent releases them.
func ofClaims(ports ...ovnport.Port) []ovnport.Keys {
	keys := held(ports)
	for i := range keys {
		keys[i].OfIPAMClaim = true
	}
	return keys
}

func (w *world) mustLeave(t testing.TB, i int, port ovnport.Port) {
	t.Helper()
	if err := w.nb.Release(timeout(t), launcher(i), ofClaims(port)); err != nil {
		t.Fatal(err)
	}
}

// wantShared compares the port of the IPAMClaim: its pod, its options, and the lists that have it.
func (w *world) wantShared(t testing.TB, pod, options, lists string) {
	t.Helper()
	now := read(t, w.Server)
	row := now.ports[ovndb.IPAMClaimPortKey("shop/vm.blue")]
	if row == nil {
		if pod != "" {
			t.Fatalf("there is no port")
		}
		return
	}
	if got := ids(row)["ovn-multinet/pod"]; got != pod {
		t.Errorf("the port is of %s, want %s", got, pod)
	}
	if got := fmt.Sprint(row["options"]); got != "map["+options+"]" {
		t.Errorf("options %s, want %s", got, options)
	}
	got := ""
	for _, node := range []string{"node-1", "node-2"} {
		for _, list := range now.lists {
			if sandbox := ids(list)[ovndb.IPAMClaimPortKey("shop/vm.blue")]; sandbox != "" && ids(list)["ovn-multinet/node"] == node {
				got += node + " " + sandbox + " "
			}
		}
	}
	if got != lists {
		t.Errorf("the lists have %q, want %q", got, lists)
	}
}

// TestMigration: source and target share the port. It is the target's when the source leaves, and the source's when the
// target leaves. Each of these is one transaction.
func TestMigration(t *testing.T) {
	w := newWorld(t)
	n := w.network(t, "blue", netDual)
	port := mustEnsure(t, w.nb, launcher(1), wantClaim(n))[0]
	w.wantShared(t, "launcher-1", "requested-chassis:chassis-2", "node-2 sandbox-1 ")
	join := func(i int) {
		t.Helper()
		w.proxy.Reset()
		got, err := w.nb.Ensure(timeout(t), launcher(i), []ovnport.Request{wantClaim(n)}, migrates)
		if err != nil {
			t.Fatal(err)
		}
		if fmt.Sprint(got[0]) != fmt.Sprint(port) {
			t.Errorf("the target has %v, the source %v", got[0], port)
		}
		if got := w.proxy.Counts().Committed; got != 1 {
			t.Errorf("%d transactions", got)
		}
	}
	const shared = "activation-strategy:rarp requested-chassis:chassis-2,chassis-1"
	for _, i := range []int{2, 2, 4, 6} { // the second call of the runtime, and targets whose DELs are late
		join(i)
		w.wantShared(t, "launcher-1", shared, "node-2 sandbox-1 ")
	}
	for _, i := range []int{2, 4} {
		w.mustLeave(t, i, port)
		w.wantShared(t, "launcher-1", shared, "node-2 sandbox-1 ")
	}
	w.mustLeave(t, 6, port)
	w.wantShared(t, "launcher-1", "requested-chassis:chassis-2", "node-2 sandbox-1 ")
	join(8)
	w.proxy.Reset()
	w.mustLeave(t, 1, port)
	if got := w.proxy.Counts(); got.Committed != 1 || got.ReadOnly != 1 {
		t.Errorf("%+v", got)
	}
	w.wantShared(t, "launcher-8", "requested-chassis:chassis-1", "node-1 sandbox-8 ")
	w.mustLeave(t, 1, port) // once more
	w.wantShared(t, "launcher-8", "requested-chassis:chassis-1", "node-1 sandbox-8 ")

	before := read(t, w.Server)
	for name, request := range map[string]ovnport.Request{"another MAC": wantClaim(n, "02:00:00:00:00:01"), "the same node": wantClaim(n)} {
		_, err := w.nb.Ensure(timeout(t), launcher(map[bool]int{true: 9, false: 10}[name == "another MAC"]),
			[]ovnport.Request{request}, migrates)
		if !errors.Is(err, ovnport.ErrMigrates) {
			t.Errorf("%s: %v", name, err)
		}
		w.wantUnchanged(t, before)
	}
	w.mustLeave(t, 8, port)
	w.wantShared(t, "", "", "")
}

// TestMigrationsFail: 200 targets that fail cost two transactions each, and one that does not fail works after them.
func TestMigrationsFail(t *testing.T) {
	w := newWorld(t)
	n := w.network(t, "blue", net4)
	port := mustEnsure(t, w.nb, launcher(1), wantClaim(n))[0]
	w.proxy.Reset()
	for i := 2; i <= 400; i += 2 {
		if _, err := w.nb.Ensure(timeout(t), launcher(i), []ovnport.Request{wantClaim(n)}, migrates); err != nil {
			t.Fatal(err)
		}
		if i%6 > 0 { // the DEL of each third one does not come
			w.mustLeave(t, i, port)
		}
	}
	if got := w.proxy.Counts().Committed; got > 400 {
		t.Errorf("%d transactions", got)
	}
	if _, err := w.nb.Ensure(timeout(t), launcher(402), []ovnport.Request{wantClaim(n)}, migrates); err != nil {
		t.Fatal(err)
	}
	w.mustLeave(t, 1, port)
	w.wantShared(t, "launcher-402", "requested-chassis:chassis-1", "node-1 sandbox-402 ")
}

// TestTargetOfLostSource: the source is gone without a DEL. The target takes the port over in a repair pass.
func TestTargetOfLostSource(t *testing.T) {
	w := newWorld(t)
	n := w.network(t, "blue", net4)
	port := mustEnsure(t, w.nb, launcher(1), wantClaim(n))[0]
	if _, err := w.nb.Ensure(timeout(t), launcher(2), []ovnport.Request{wantClaim(n)}, migrates); err != nil {
		t.Fatal(err)
	}
	missing, err := w.nb.Incomplete(timeout(t), launcher(2).Sandbox, []ovnport.Port{port})
	if err != nil || !missing[port.Name] {
		t.Fatalf("missing %v, %v", missing, err)
	}
	request := wantClaim(n, port.Addresses[0].Addr().String(), port.MAC.String())
	before := read(t, w.Server)
	if err := w.nb.Restore(timeout(t), launcher(2), request, port, migrates); !errors.Is(err, ovnport.ErrMigrates) {
		t.Errorf("while the source runs: %v", err)
	}
	w.wantUnchanged(t, before)
	if err := w.nb.Restore(timeout(t), launcher(2), request, port, anyone); err != nil {
		t.Fatal(err)
	}
	w.wantShared(t, "launcher-2", "requested-chassis:chassis-1", "node-1 sandbox-2 node-2 sandbox-1 ")
}

// TestArrive: when the guest runs in the target's pod, the target's node becomes the first one, and then the only one. The
// end of the source's pod changes nothing any more; a target that leaves in between leaves the port with the source, and
// a lost or repeated call does no harm.
func TestArrive(t *testing.T) {
	w := newWorld(t)
	n := w.network(t, "blue", netDual)
	port := mustEnsure(t, w.nb, launcher(1), wantClaim(n))[0]
	keys := []string{port.UUID}
	join := func(i int) {
		t.Helper()
		if _, err := w.nb.Ensure(timeout(t), launcher(i), []ovnport.Request{wantClaim(n)}, migrates); err != nil {
			t.Fatal(err)
		}
	}
	arrive := func(i, want, written int) {
		t.Helper()
		w.proxy.Reset()
		arrived, err := w.nb.Arrive(timeout(t), fmt.Sprint("sandbox-", i), keys)
		if err != nil || len(arrived) != want || w.proxy.Counts().Committed != written {
			t.Errorf("%v have arrived, %v, with %+v", arrived, err, w.proxy.Counts())
		}
	}
	follow := func(i int) {
		t.Helper()
		if err := w.nb.Follow(timeout(t), fmt.Sprint("sandbox-", i), keys); err != nil {
			t.Error(err)
		}
	}
	const source, both = "requested-chassis:chassis-2", "requested-chassis:chassis-1,chassis-2"
	arrive(1, 0, 0) // it is no target
	follow(1)
	w.wantShared(t, "launcher-1", source, "node-2 sandbox-1 ")
	join(2)
	arrive(2, 1, 1)
	arrive(2, 1, 0)
	w.wantShared(t, "launcher-1", both, "node-2 sandbox-1 ")
	w.mustLeave(t, 2, port)
	w.wantShared(t, "launcher-1", source, "node-2 sandbox-1 ")
	arrive(2, 0, 0)
	follow(2)
	w.wantShared(t, "launcher-1", source, "node-2 sandbox-1 ")

	join(2)
	arrive(2, 1, 1)
	join(4) // the first target has failed
	w.wantShared(t, "launcher-1", "activation-strategy:rarp requested-chassis:chassis-2,chassis-1", "node-2 sandbox-1 ")
	follow(2)
	w.wantShared(t, "launcher-1", "activation-strategy:rarp requested-chassis:chassis-2,chassis-1", "node-2 sandbox-1 ")
	arrive(4, 1, 1)
	follow(4)
	const target = "requested-chassis:chassis-1"
	w.wantShared(t, "launcher-4", target, "node-1 sandbox-4 ")
	follow(4)
	w.mustLeave(t, 1, port)
	w.wantShared(t, "launcher-4", target, "node-1 sandbox-4 ")

	join(5) // and back
	arrive(5, 1, 1)
	w.mustLeave(t, 4, port) // before its agent has made it the only one
	w.wantShared(t, "launcher-5", source, "node-2 sandbox-5 ")
}
