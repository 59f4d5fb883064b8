package ovnrun

import (
	"bytes"
	"strings"
	"testing"
)

// A backup and a restore work on a member that does not lead. The restore replaces all rows, and what is no backup
// changes nothing.
func TestBackup(t *testing.T) {
	w := newWorld(t)
	a, b, c := w.node("a"), w.node("b"), w.node("c")
	for _, n := range []*node{a, b, c} {
		w.start(n)
	}
	w.members(false, "a=1", "b=1", "c=1")
	leader := w.wantRaft(a, b, c)
	follower := a
	if leader == a {
		follower = b
	}
	w.insert(a, "before")
	w.wantRows(follower, "before")
	var backup bytes.Buffer
	w.must(follower.Backup(t.Context(), &backup))
	w.insert(a, "later")
	w.wantRows(c, "before", "later")

	half := backup.String()[:backup.Len()/2]
	err := follower.Restore(t.Context(), strings.NewReader(half))
	if err == nil || !strings.Contains(err.Error(), "restore of OVN_Northbound: ") || strings.Contains(err.Error(), "seek") {
		t.Errorf("restore of half a backup: error %v", err)
	}
	w.wantRows(c, "before", "later")

	w.must(follower.Restore(t.Context(), &backup))
	for _, n := range []*node{a, b, c} {
		w.wantRows(n, "before")
		w.wantNone(n, "later")
	}
}
