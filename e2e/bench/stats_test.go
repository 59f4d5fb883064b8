package bench

import (
	"math"
	"testing"
)

// TestRatioOfTurns: load that meets both sides of a turn does not widen the interval of their ratio much, and a ratio
// that is there is found.
func TestRatioOfTurns(t *testing.T) {
	var ours, peers []float64
	for i := range 40 {
		load := 1 + float64(i%7)
		ours, peers = append(ours, 2*load), append(peers, 4*load)
	}
	r := RatioOf(ours, peers)
	if math.Abs(r.Median-0.5) > 1e-9 || r.Low > 0.5 || r.High < 0.5 || r.High-r.Low > 1e-9 {
		t.Errorf("ratio %+v, want 0.5 without doubt", r)
	}
}

func TestEstimated(t *testing.T) {
	e := Estimated([]float64{5, 1, 4, 2, 3})
	if e.Median != 3 || e.Low > 3 || e.High < 3 || e.Low == e.High {
		t.Errorf("estimate %+v, want a median of 3 within an interval", e)
	}
	if e := Estimated(nil); e != (Estimate{}) {
		t.Errorf("estimate of nothing: %+v", e)
	}
}

func TestVerdict(t *testing.T) {
	sure := Estimate{2, 1, 3}
	for want, r := range map[string]Row{
		"":                {Peer: "x", N: 9, Peers: sure, Ratio: Estimate{9, 9, 9}},
		"reached":         {Peer: "x", N: 9, Peers: sure, Ratio: Estimate{1.2, 1.1, 1.3}, Goal: atMost(1.5)},
		"**not reached**": {Peer: "x", N: 9, Peers: sure, Ratio: Estimate{1.8, 1.6, 1.9}, Goal: atMost(1.5)},
		"too few turns":   {Peer: "x", N: 4, Peers: sure, Ratio: Estimate{1.2, 1.1, 1.3}, Goal: atMost(1.5)},
		"open: the peer's cost is within the noise": {
			Peer: "x", N: 9, Peers: Estimate{2, -1, 3}, Ratio: Estimate{-1, -2, 1}, Goal: atMost(1.5)},
		"open: the interval has the goal in it": {Ours: Estimate{1.4, 1.3, 1.6}, Goal: atMost(1.5)},
	} {
		if got := r.Verdict(); got != want {
			t.Errorf("verdict %q, want %q", got, want)
		}
	}
}
