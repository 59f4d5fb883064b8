package bench

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
)

// A Part is what one measurement found.
type Part struct {
	Name  string // of its file and plots
	Title string
	Text  string // what was measured, and how
	Where Where
	Rows  []Row
	Plots []Plot
	Notes []string
}

// A Row compares us with a peer, or states one number of ours when it has no peer.
type Row struct {
	What  string
	Unit  string
	Ours  Estimate
	Peer  string // its name; "" for none
	Peers Estimate
	Ratio Estimate // ours : peer
	N     int
	// Goal is the most that the ratio may be, or our number when there is no peer; nil: no goal.
	Goal *float64
	// Bound says what keeps us from the goal, with numbers of the same run. The page shows it if the goal is missed.
	Bound string
}

// atMost is a goal; 0 is none.
func atMost(goal float64) *float64 {
	if goal == 0 {
		return nil
	}
	return &goal
}

// Compare makes the row of a comparison; ours and peers are by turns.
func Compare(what, unit, peer string, ours, peers []float64, goal float64) Row {
	return Row{What: what, Unit: unit, Ours: Estimated(ours), Peer: peer, Peers: Estimated(peers),
		Ratio: RatioOf(ours, peers), N: min(len(ours), len(peers)), Goal: atMost(goal)}
}

// Number makes the row of a number without a peer.
func Number(what, unit string, ours []float64, goal float64) Row {
	return Row{What: what, Unit: unit, Ours: Estimated(ours), N: len(ours), Goal: atMost(goal)}
}

// AtMost gives a row a goal that may be 0.
func (r Row) AtMost(goal float64) Row {
	r.Goal = &goal
	return r
}

// fewTurns are too few for an interval that means something.
const fewTurns = 5

const (
	tooFewTurns = "too few turns"
	notReached  = "**not reached**"
)

// Verdict reports whether the goal is reached, by the interval.
func (r Row) Verdict() string {
	bounded := r.Ratio
	if r.Peer == "" {
		bounded = r.Ours
	}
	switch {
	case r.Goal == nil:
		return ""
	case r.Peer != "" && r.N < fewTurns:
		return tooFewTurns
	case r.Peer != "" && r.Peers.Low <= 0:
		return "open: the peer's cost is within the noise"
	case bounded.High <= *r.Goal:
		return "reached"
	case bounded.Low > *r.Goal:
		return notReached
	}
	return "open: the interval has the goal in it"
}

// Missed reports whether the page has to say why the goal is not reached. Too few turns have no interval: there the
// median decides.
func (r Row) Missed() bool {
	v := r.Verdict()
	return v == notReached || v == tooFewTurns && r.Ratio.Median > *r.Goal
}

// Write puts the part into a folder, as JSON.
func (p *Part) Write(dir string) error {
	text, err := json.MarshalIndent(p, "", "\t")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, p.Name+".json"), text, 0o644)
}

// ReadParts reads the parts of a folder, in the order of their names.
func ReadParts(dir string) ([]*Part, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return nil, err
	}
	slices.Sort(files)
	var parts []*Part
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		p := &Part{}
		if err := json.Unmarshal(text, p); err != nil {
			return nil, err
		}
		parts = append(parts, p)
	}
	return parts, nil
}
