package lab

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
)

// TestWatchBinding follows a machine's port from before it is there until after it is gone.
func TestWatchBinding(t *testing.T) {
	l := Start(t, Options{PrimaryOnly: true})
	n, ctx := l.Nodes[0], t.Context()
	w, err := l.WatchBinding(ctx, "blue-1")
	if err != nil {
		t.Fatal(err)
	}
	await := func(want string) {
		t.Helper()
		if err := w.Await(ctx, func(chassis string) bool { return chassis == want }); err != nil {
			t.Fatal(err)
		}
	}
	await("")
	nbctl(t, l, "ls-add blue")
	vm := newMachine(t, n, "blue", 1)
	await(n.SystemID)

	late, err := l.WatchBinding(ctx, "blue-1")
	if err != nil {
		t.Fatal(err)
	}
	if got := late.Chassis(); got != n.SystemID {
		t.Errorf("a later watch begins with %q, want %q", got, n.SystemID)
	}
	if err := late.Close(); err != nil {
		t.Error(err)
	}

	if err := vm.Close(ctx); err != nil {
		t.Fatal(err)
	}
	await("")
	again, err := n.NewMachine(ctx, "blue-1", "02:00:00:00:00:01")
	if err != nil {
		t.Fatal(err)
	}
	await(n.SystemID)
	nbctl(t, l, "lsp-del blue-1") // the row goes while it is bound
	await("")
	var hosts []string
	moves := w.Moves()
	for _, m := range moves {
		hosts = append(hosts, m.Chassis)
	}
	if want := []string{n.SystemID, "", n.SystemID, ""}; !slices.Equal(hosts, want) {
		t.Errorf("moves to %q, want %q", hosts, want)
	}
	if !slices.IsSortedFunc(moves, func(a, b Move) int { return a.At.Compare(b.At) }) {
		t.Errorf("moves are not in order: %v", moves)
	}
	if err := again.Close(ctx); err != nil {
		t.Error(err)
	}

	over, cancel := context.WithCancel(ctx)
	cancel()
	err = w.Await(over, func(string) bool { return false })
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), `wait for blue-1 to move: it is on "" after 4 moves`) {
		t.Errorf("a wait that is given up: %v", err)
	}
}
