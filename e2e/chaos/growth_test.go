//go:build chaos

package chaos

import (
	"context"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

// agentMetrics is where the agent serves its metrics, in the network namespace of its node.
const agentMetrics = "127.0.0.1:9410"

// levels is what an agent has open, and the bytes that its heap may have before the next collection of garbage: twice
// what was in use after the last one.
type levels map[string]float64

var ofTheAgent = []string{"process_open_fds", "go_goroutines", "go_memstats_next_gc_bytes"}

// levels reads the agent's metrics, and counts the controller's open files.
func (s *site) levels() levels {
	metrics, err := s.Nodes[0].Metrics(agentMetrics)
	s.Must(err)
	got := levels{}
	for _, name := range ofTheAgent {
		if value, known := metrics[name]; known {
			got[name] = value
		}
	}
	if len(got) != len(ofTheAgent) {
		s.T.Fatalf("the agent has the metrics %v", got)
	}
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", s.Controller.Pid()))
	s.Must(err)
	got["files of the controller"] = float64(len(files))
	return got
}

// grown lists what is more than before. A part of the heap depends on when garbage is collected.
func (l levels) grown(before levels) (words []string) {
	for name, was := range before {
		limit := was
		if name == "go_memstats_next_gc_bytes" {
			limit = 1.5*was + 4<<20
		}
		if l[name] > limit {
			words = append(words, fmt.Sprintf("%s: %.0f, before %.0f", name, l[name], was))
		}
	}
	slices.Sort(words)
	return words
}

// TestGrowth starts and ends pods one after the other. What the programs have open, their memory, and all rows, links
// and files are in the end as they were after the first tenth.
func TestGrowth(t *testing.T) {
	s := newSite(t)
	row := Row{Fault: "pods that come and go"}
	var before levels
	for i := range *cycles {
		if i == *cycles/10 {
			row.Residue += s.residue("the first tenth")
			before = s.levels()
		}
		begin := time.Now()
		p := s.pod([]int{1, 4}[i%2])
		s.Add(p)
		s.End(p)
		row.Tries, row.Stall = row.Tries+1, max(row.Stall, time.Since(begin))
	}
	row.Residue += s.residue("the end")
	var grown []string
	ctx, cancel := context.WithTimeout(s.Ctx, time.Minute)
	defer cancel()
	_ = lab.Eventually(ctx, func() error { // calls that were served just now end
		if grown = s.levels().grown(before); len(grown) > 0 {
			return fmt.Errorf("%v", grown)
		}
		return nil
	})
	for _, word := range grown {
		t.Errorf("it has grown: %s", word)
		row.Residue++
	}
	t.Logf("after a tenth %v, in the end %v", before, s.levels())
	report(t, row)
}
