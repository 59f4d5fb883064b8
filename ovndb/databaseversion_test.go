package ovndb

import "testing"

// Looks at the owner's row overlap. A look that ends late with an old row is no replaced database, and each
// replacement is told once.
func TestBoundaryLooksOverlap(t *testing.T) {
	type look struct{ before, now version }
	at := func(made string, age int64) version { return version{made, age} }
	for _, tt := range []struct {
		name  string
		looks []look // in the order in which they end
		told  int
		seen  version
	}{
		{"one after the other", []look{{version{}, at("a", 5)}, {at("a", 5), at("a", 5)}, {at("a", 5), at("a", 6)}}, 0, at("a", 6)},
		{"a count while a look is under way", []look{{version{}, at("a", 5)}, {at("a", 5), at("a", 6)}, {at("a", 5), at("a", 5)}}, 0, at("a", 6)},
		{"a backup", []look{{version{}, at("a", 6)}, {at("a", 6), at("a", 5)}}, 1, at("a", 5)},
		{"a backup, seen by two", []look{{version{}, at("a", 6)}, {at("a", 6), at("a", 5)}, {at("a", 6), at("a", 5)}}, 1, at("a", 5)},
		{"a backup, and a look from before", []look{{version{}, at("a", 6)}, {at("a", 6), at("a", 5)}, {at("a", 6), at("a", 6)}, {at("a", 5), at("a", 5)}}, 1, at("a", 5)},
		{"wiped", []look{{version{}, at("a", 6)}, {at("a", 6), version{}}, {at("a", 6), at("b", 1)}}, 1, at("b", 1)},
		{"wiped, and a look from before", []look{{version{}, at("a", 6)}, {at("a", 6), at("b", 1)}, {at("a", 6), at("a", 6)}}, 1, at("b", 1)},
		{"wiped, seen by two", []look{{version{}, at("a", 6)}, {at("a", 6), at("b", 1)}, {at("a", 6), at("b", 1)}}, 1, at("b", 1)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			told := 0
			a := age{replaced: func() { told++ }}
			for _, l := range tt.looks {
				a.observe(l.before, l.now)
			}
			if told != tt.told || a.seen != tt.seen {
				t.Errorf("told %d times, and seen is %v; want %d and %v", told, a.seen, tt.told, tt.seen)
			}
		})
	}
}
