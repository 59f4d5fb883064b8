package bench

import (
	"math/rand/v2"
	"slices"
)

// An Estimate is a median with its 95 % confidence interval.
type Estimate struct {
	Median, Low, High float64
}

// resamples is how often the bootstrap draws. The seed is fixed: the same measurements give the same page.
const (
	resamples = 2000
	seed      = 17
)

// Median is the middle of the values, 0 of none.
func Median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(values))
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}

// Estimated is the median of the values with its interval.
func Estimated(values []float64) Estimate {
	return bootstrap(len(values), func(turns []int) float64 { return Median(pick(values, turns)) })
}

// RatioOf estimates the median of ours over the median of the peer's. Values of one index are of one turn: the
// bootstrap draws turns, so that load which met both does not count as a difference.
func RatioOf(ours, peers []float64) Estimate {
	return bootstrap(min(len(ours), len(peers)), func(turns []int) float64 {
		return Median(pick(ours, turns)) / Median(pick(peers, turns))
	})
}

// bootstrap computes a statistic of n turns, and the 2.5 and 97.5 percentiles of the statistic of drawn turns.
func bootstrap(n int, statistic func(turns []int) float64) Estimate {
	if n == 0 {
		return Estimate{}
	}
	turns := make([]int, n)
	for i := range turns {
		turns[i] = i
	}
	e := Estimate{Median: statistic(turns)}
	random := rand.New(rand.NewPCG(seed, uint64(n)))
	drawn := make([]float64, resamples)
	for i := range drawn {
		for t := range turns {
			turns[t] = random.IntN(n)
		}
		drawn[i] = statistic(turns)
	}
	slices.Sort(drawn)
	e.Low, e.High = drawn[resamples*25/1000], drawn[resamples*975/1000]
	return e
}

func pick(values []float64, turns []int) []float64 {
	picked := make([]float64, len(turns))
	for i, t := range turns {
		picked[i] = values[t]
	}
	return picked
}

// Minus subtracts the values of each turn and divides the difference: the cost of one more of what a has n more of.
func Minus(a, b []float64, n int) []float64 {
	each := make([]float64, min(len(a), len(b)))
	for i := range each {
		each[i] = (a[i] - b[i]) / float64(n)
	}
	return each
}

// Plus adds the values of each turn.
func Plus(a, b []float64) []float64 {
	sum := make([]float64, min(len(a), len(b)))
	for i := range sum {
		sum[i] = a[i] + b[i]
	}
	return sum
}
