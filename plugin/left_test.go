package plugin

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/node/journal"
)

// givenUp leaves an attachment in the journal that would not go until its DEL was success all the same.
func (n *node) givenUp(container string) {
	n.t.Helper()
	n.attached(container, of(`{"type":"alpha"}`, ""))
	n.fails("DEL", "alpha")
	for range journal.MaxAttempts - 1 {
		wantError(n.t, (&Plugin{}).Del(n.argsOf(container, "")), 119, "alpha cannot DEL")
	}
	n.must((&Plugin{}).Del(n.argsOf(container, "")))
	n.called()
}

// What would not go is not forgotten for a new attachment of the same container, and that one is not made: a later call
// would take it for the old one.
func TestAddAfterWhatWouldNotGo(t *testing.T) {
	n := newNode(t)
	n.givenUp("c1")
	add := func() error {
		return (&Plugin{}).Add(n.argsOf("c1", `,"timeout":"1s","prevResult":{"cniVersion":"1.1.0"},"runtimeConfig":{"`+conf.AnnotationsCapability+`":{"`+conf.NetworksAnnotation+`":"blue"}}`))
	}
	wantError(t, add(), 119, "undo the earlier ADD of this container", "interface net1: network shop/ext", "alpha cannot DEL")
	n.wantCalled("ADD", "DEL alpha net1")
	if left := files(t, n.state, "attached"); !slices.Equal(left, []string{"c1@eth0", "c1@eth0.left"}) {
		t.Errorf("the journal has %q", left)
	}
	n.must(os.Remove(filepath.Join(n.dir, "fail DEL alpha")))
	wantError(t, add(), conf.CodeTryAgain, "agent at ") // which does not run here
	n.wantCalled("an ADD when it goes", "DEL alpha net1")
	if left := files(t, n.state, "attached"); len(left) > 0 {
		t.Errorf("the journal has %q", left)
	}
}

// GC has no plugins before us to let go on: it says what would not go, however often that was tried.
func TestGCSaysWhatWouldNotGo(t *testing.T) {
	n := newNode(t)
	n.givenUp("c1")
	for range 2 {
		wantError(t, (&Plugin{}).GC(n.argsOf("", `,"cni.dev/valid-attachments":[]`)), 119, "alpha cannot DEL")
	}
}

// Later calls take up what would not go in turn: one that never goes keeps no other.
func TestWhatWouldNotGoIsTakenUpInTurn(t *testing.T) {
	n := newNode(t)
	old := time.Now().Add(-time.Hour)
	n.givenUp("c1")
	n.givenUp("c2")
	for i, container := range []string{"c1", "c2"} {
		at := old.Add(time.Duration(i) * time.Minute)
		n.must(os.Chtimes(n.entry(container)+journal.FailedSuffix, at, at))
	}
	for i, want := range []string{"c1", "c2", "c1"} {
		n.attached("c9", of(`{"type":"beta"}`, ""))
		got, _ := n.call.journal.NextFailed(&n.attachments("c9").Sandbox)
		if got == nil || got.ContainerID != want {
			t.Fatalf("call %d takes up %+v, want %s", i, got, want)
		}
		n.must((&Plugin{}).Del(n.argsOf("c9", "")))
		n.wantCalled("DEL of another container", "DEL beta net1", "DEL alpha net1")
	}
}
