package chaos

import (
	"fmt"
	"io"
	"sync"
	"text/tabwriter"
	"time"
)

// Row is what one fault did. Every count but Tries has to be 0.
type Row struct {
	Fault      string
	Tries      int           // operations that ended while the fault came and went
	Failed     int           // pods that did not start within the kubelet's patience
	Lost       int           // acknowledged ports without a row
	Residue    int           // rows, links, files and leases that nothing owns
	Duplicates int           // addresses that two pods had at one time
	Stall      time.Duration // the longest operation
}

// Bad is the sum of the counts that have to be 0.
func (r Row) Bad() int { return r.Failed + r.Lost + r.Residue + r.Duplicates }

// Table collects the rows of a run.
type Table struct {
	mu   sync.Mutex
	rows []Row
}

// Add adds a row.
func (t *Table) Add(r Row) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.rows = append(t.rows, r)
}

// Write prints the table and the sums.
func (t *Table) Write(w io.Writer) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "FAULT\tTRIES\tFAILED\tLOST\tRESIDUE\tDUPLICATES\tWORST STALL")
	sum := Row{Fault: "all"}
	for _, r := range t.rows {
		r.print(out)
		sum.Tries, sum.Failed, sum.Lost = sum.Tries+r.Tries, sum.Failed+r.Failed, sum.Lost+r.Lost
		sum.Residue, sum.Duplicates = sum.Residue+r.Residue, sum.Duplicates+r.Duplicates
		sum.Stall = max(sum.Stall, r.Stall)
	}
	sum.print(out)
	return out.Flush()
}

func (r Row) print(w io.Writer) {
	fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%d\t%v\n", r.Fault, r.Tries, r.Failed, r.Lost, r.Residue, r.Duplicates,
		r.Stall.Round(10*time.Millisecond))
}
