package nads

import (
	"fmt"
	"testing"
)

// Of a namespace's NADs of one network the oldest ones count, in whatever order the controller hears of them.
func TestBoundaryTheOldestNADsCount(t *testing.T) {
	const all = MaxOfNetwork + 2
	name := func(i int) string { return fmt.Sprintf("mallory/n%03d", i) }
	m := New(nil)
	for i := range all { // the youngest first
		out := m.Set(name(all-i), "blue", int64(all-i))
		if want := i >= MaxOfNetwork; (out != "") != want || want && out != name(all-i+MaxOfNetwork) {
			t.Errorf("after %d NADs, %q is beyond the limit", i+1, out)
		}
	}
	m.Set("shop/n", "blue", 1000)
	for range 2 {
		if got := m.Of("blue"); len(got) != MaxOfNetwork+1 || got[0] != name(1) || got[MaxOfNetwork-1] != name(MaxOfNetwork) || got[MaxOfNetwork] != "shop/n" {
			t.Fatalf("there count %v", got)
		}
		m.Set(name(3), "blue", 3) // once more
	}
	if out := m.Set(name(3), "blue", 2000); out != "" || !m.Beyond(name(3)) || m.Beyond(name(MaxOfNetwork+1)) {
		t.Errorf("one that turns out to be younger pushes %q out", out)
	}
	m.Set(name(1), "", 0)
	m.Set(name(2), "red", 1)
	if m.Beyond(name(3)) || m.Beyond(name(all)) || fmt.Sprint(m.Of("red")) != "["+name(2)+"]" {
		t.Errorf("after two are gone, there count %v", m.Of("blue"))
	}
	for i := range all {
		m.Set(name(i+1), "", 0)
	}
	if m.Set("shop/n", "", 0); len(m.of)+len(m.nads)+len(m.created) > 0 {
		t.Errorf("there are left %v", m)
	}
}
