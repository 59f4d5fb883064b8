package journal

import (
	"testing"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
)

func TestBeganAfter(t *testing.T) {
	const (
		old   = `,"began":{"boot":"b","since":1000}`
		later = `,"began":{"boot":"b","since":2000}`
		other = `,"began":{"boot":"a","since":9000}` // before a reboot
	)
	d := Dir(state(t, map[string]string{
		"attached/old@eth0":       oneEntry("old", old),
		"attached/later@eth0":     oneEntry("later", later),
		"attached/other@eth0":     oneEntry("other", other),
		"attached/none@eth0":      oneEntry("none", ""), // of an earlier version
		"attached/damaged@eth0":   "{",
		"attached/only@eth0.lock": "",
	}))
	after := map[[2]string]bool{{"later", "old"}: true}
	all := []string{"old", "later", "other", "none", "damaged", "only", "absent"}
	for _, a := range all {
		for _, b := range all {
			if got := d.BeganAfter(a, b); got != after[[2]string{a, b}] {
				t.Errorf("%s began after %s: %t", a, b, got)
			}
		}
	}
}

// The moment of an entry is that of its first version.
func TestNewEntriesHaveAnOrder(t *testing.T) {
	d := Dir(state(t, nil))
	first := NewEntry(agentapi.Sandbox{ContainerID: "c0", Interface: "eth0"}, "", "")
	second := NewEntry(agentapi.Sandbox{ContainerID: "c1", Interface: "eth0"}, "", "")
	for _, e := range []*Entry{second, first} {
		if err := d.Write(e); err != nil {
			t.Fatal(err)
		}
	}
	again, err := d.Read(&first.Sandbox)
	if err == nil {
		err = d.Write(again)
	}
	if err != nil {
		t.Fatal(err)
	}
	if !d.BeganAfter("c1", "c0") || d.BeganAfter("c0", "c1") {
		t.Errorf("c0 began at %+v, c1 at %+v", first.Began, second.Began)
	}
}
