package engine

import (
	"errors"
	"maps"
	"testing"
)

// What an object does not need any more is deleted once. A row that could not be deleted is still known.
func TestDeleteRows(t *testing.T) {
	rows, deleted := Index[string]{}, map[string]int{}
	for _, network := range []string{"blue", "red", "blue"} {
		rows.Add("shop/web", network)
	}
	rows.Add("dev/web", "blue")
	blue := func(network string) bool { return network == "blue" }
	none := func(string) bool { return false }
	failed := errors.New("no answer")
	if err := rows.DeleteRows("shop/web", blue, func(string) error { return failed }); !errors.Is(err, failed) {
		t.Errorf("error %v, want %v", err, failed)
	}
	if !rows["shop/web"]["red"] {
		t.Error("the row that could not be deleted is forgotten")
	}
	deleteRow := func(network string) error { deleted[network]++; return nil }
	for _, needed := range []func(string) bool{blue, none, none} {
		if err := rows.DeleteRows("shop/web", needed, deleteRow); err != nil {
			t.Fatal(err)
		}
	}
	if want := map[string]int{"blue": 1, "red": 1}; !maps.Equal(deleted, want) {
		t.Errorf("deleted %v, want %v", deleted, want)
	}
	if len(rows) != 1 || !rows["dev/web"]["blue"] {
		t.Errorf("the index has %v, want the row of dev/web alone", rows)
	}
}

// NB is listed until that has succeeded, and then no more.
func TestListed(t *testing.T) {
	var listed Listed
	calls, failed := 0, errors.New("no answer")
	for _, answer := range []error{failed, nil, failed} {
		want := answer
		if listed {
			want = nil
		}
		if err := listed.Once(func() error { calls++; return answer }); !errors.Is(err, want) {
			t.Errorf("error %v, want %v", err, want)
		}
	}
	if calls != 2 {
		t.Errorf("listed %d times, want 2", calls)
	}
}
