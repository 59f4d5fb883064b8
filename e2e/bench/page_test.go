package bench

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestBounds: the page names the bound of each row that misses its goal, and of no other row.
func TestBounds(t *testing.T) {
	slow, fast := []float64{2, 2, 2, 2, 2}, []float64{1, 1, 1, 1, 1}
	row := func(what string, ours []float64, goal float64, bound string) Row {
		r := Compare(what, "ms", "peer", ours, fast, goal)
		r.Bound = bound
		return r
	}
	recomputes := Number("recomputes", "", []float64{7}, 0).AtMost(0)
	recomputes.Bound = "northd's."
	part := &Part{Rows: []Row{
		row("ADD", slow, 1.5, "start of a process."), row("DEL", slow, 1.5, "start of a process."),
		row("reached", fast, 1.5, "hidden"), row("without a goal", slow, 0, "hidden"),
		row("herd", slow[:1], 1.5, "one thread."), row("small herd", fast[:1], 1.5, "hidden"),
		row("riddle", slow, 1.5, ""), recomputes,
	}}
	want := "Not reached: ADD (peer); DEL (peer). start of a process.\n\nNot reached: herd (peer). one thread.\n\n" +
		"Not reached: riddle (peer). The bound is not known.\n\nNot reached: recomputes. northd's.\n\n"
	var got strings.Builder
	part.bounds(&got)
	if got.String() != want {
		t.Errorf("the bounds are\n%swant\n%s", got.String(), want)
	}
	if page := Page([]*Part{part}); !strings.Contains(page, "|\n\nNot reached: ADD") {
		t.Errorf("the bounds do not follow the table:\n%s", page)
	}
}

// TestPage writes a part as a measurement does, and reads what the page says of it.
func TestPage(t *testing.T) {
	dir, docs := t.TempDir(), t.TempDir()
	part := &Part{Name: "plain", Title: "A plain pod", Text: "Text.", Where: Where{Commit: "abc", Cores: 2, InUse: 0.3},
		Rows: []Row{
			Compare("time", "ms", "empty program", []float64{2, 2, 2, 2, 2}, []float64{1, 1, 1, 1, 1}, 1.5),
			Number("size", "MB", []float64{4}, 6),
		},
		Plots: []Plot{{Name: "plain", Title: "a < b", Log: true, Lines: []Line{
			{Name: "ours", X: []float64{1, 10}, Points: []Estimate{{1, 0.5, 2}, {3, 3, 3}}}}}},
	}
	idle := &Part{Name: "quiet", Title: "Quiet"}
	if err := idle.Write(dir); err != nil {
		t.Fatal(err)
	}
	if err := part.Write(dir); err != nil {
		t.Fatal(err)
	}
	parts, err := ReadParts(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := WritePage(docs, parts); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(docs, "performance.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| time | 2 ms | empty program: 1 ms | **2** (2 … 2) | 5 | ≤ 1.50 | **not reached** |",
		"| size | 4 MB |  |  | 1 | ≤ 6 | reached |",
		"Other programs used the machine", "commit abc", "(performance/plain.svg)",
	} {
		if !strings.Contains(string(page), want) {
			t.Errorf("the page lacks %q:\n%s", want, page)
		}
	}
	if n := strings.Count(string(page), "Other programs"); n != 1 {
		t.Errorf("%d warnings, want one, in the section of the part that others disturbed", n)
	}
	svg, err := os.Open(filepath.Join(docs, "performance", "plain.svg"))
	if err != nil {
		t.Fatal(err)
	}
	defer svg.Close()
	for d := xml.NewDecoder(svg); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("the plot is no XML: %v", err)
		}
	}
}
