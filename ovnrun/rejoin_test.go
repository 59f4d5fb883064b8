package ovnrun

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"
)

// TestRejoin: a member joins by addresses that become nobody's while it waits. It begins again with those that the list of
// members has by then.
func TestRejoin(t *testing.T) {
	w := newWorld(t)
	a, b, gone := w.node("a"), w.node("b"), w.node("gone")
	w.start(a)
	w.members(false, "a=1")
	w.wantRaft(a)
	w.insert(a, "one")

	w.nodes = map[string]*node{"b": b, "gone": gone} // b's list differs from that of a for now
	var said syncBuffer
	b.Log, b.joining.patience = slog.New(slog.NewTextHandler(&said, nil)), time.Millisecond
	w.members(true, "gone=1", "b=1")
	w.start(b)
	w.eventually("a second attempt", func() error {
		if !strings.Contains(said.String(), "joining anew with the members of now") {
			return fmt.Errorf("b says %s", said.String())
		}
		return nil
	})
	w.nodes = map[string]*node{"a": a, "b": b}
	w.members(true, "a=1", "b=1")
	w.wantRaft(a, b)
	w.wantRows(b, "one")
}

// TestPatienceOfJoining: a member that takes its time is left alone, and each attempt has twice the time of the one before.
func TestPatienceOfJoining(t *testing.T) {
	w := newWorld(t)
	d := w.node("a")
	start := time.Now()
	for _, tt := range []struct {
		after time.Duration
		gone  bool
	}{{0, false}, {149, false}, {151, true}, {152, false}, {451, false}, {453, true}} {
		if got, _ := d.rejoin(status{joining: true}, start.Add(tt.after*time.Second)); got != tt.gone {
			t.Errorf("after %d s the member joins anew: %t, want %t", tt.after, got, tt.gone)
		}
	}
	// A member that has data and waits for the others is no member that joins.
	d.joining = joining{}
	for _, after := range []time.Duration{0, 10 * time.Hour} {
		if gone, err := d.rejoin(status{}, start.Add(after)); gone || err == nil {
			t.Errorf("a member that has joined before: %t, %v", gone, err)
		}
	}
	if s, err := parseStatus("Status: joining cluster\nRemotes for joining: ssl:192.0.2.1:6643\nRole: follower\n"); err != nil || !s.joining || s.joined {
		t.Errorf("status %+v, %v", s, err)
	}
}
