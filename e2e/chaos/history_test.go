package chaos

import (
	"slices"
	"strings"
	"testing"
)

// TestDuplicates: two sandboxes that have one address at one time are found, however long the first keeps it and
// whatever comes between. One sandbox after the other is no duplicate.
func TestDuplicates(t *testing.T) {
	for _, tt := range []struct {
		name, events string // "+a1": sandbox a gets address 1, "-a": its DEL begins
		want         []string
	}{
		{"one after the other", "+a1 -a +b1 -b +c1", nil},
		{"two addresses", "+a1 +b2 -a -b", nil},
		{"at one time", "+a1 +b1 -a -b", []string{"1: a and b"}},
		{"without an end", "+a1 +b1", []string{"1: a and b"}},
		{"within another", "+a1 +b1 -b +c1 -a -c", []string{"1: a and b", "1: a and c"}},
		{"later than the middle one", "+a1 +b1 -a +c1 -b -c", []string{"1: a and b", "1: b and c"}},
		{"of several addresses", "+a12 +b23 -a -b", []string{"2: a and b"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h, holds := &History{}, map[string]*Hold{}
			for event := range strings.FieldsSeq(tt.events) {
				sandbox := event[1:2]
				if event[0] == '-' {
					h.Releasing(holds[sandbox])
					continue
				}
				holds[sandbox] = h.Attached(sandbox, strings.Split(event[2:], ""))
			}
			if got := h.Duplicates(); !slices.Equal(got, tt.want) {
				t.Errorf("found %v, want %v", got, tt.want)
			}
		})
	}
}

// TestTable: the last line has the sums, and of the stalls the longest.
func TestTable(t *testing.T) {
	table, out := &Table{}, &strings.Builder{}
	table.Add(Row{Fault: "leader killed", Tries: 100, Lost: 1, Stall: 2e9})
	table.Add(Row{Fault: "leader paused", Tries: 50, Residue: 2, Duplicates: 3, Failed: 4, Stall: 1e9})
	if err := table.Write(out); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if got, want := strings.Fields(lines[len(lines)-1]), strings.Fields("all 150 4 1 2 3 2s"); !slices.Equal(got, want) {
		t.Errorf("sums %v, want %v", got, want)
	}
	if bad := (Row{Tries: 9, Failed: 1, Lost: 2, Residue: 4, Duplicates: 8}).Bad(); bad != 15 {
		t.Errorf("bad %d, want 15", bad)
	}
}
