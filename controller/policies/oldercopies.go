package policies

import (
	"maps"
	"time"

	"github.com/ovn-multinet/ovn-multinet/controller/engine"
	"github.com/ovn-multinet/ovn-multinet/netmodel/policy"
)

// olderCopies knows where the source's copies of pods and namespaces are older than those by which rows in NB were
// written: an agent, or another controller, has got newer labels. What was chosen by newer labels stays until the
// source has got these labels, too.
type olderCopies struct {
	engine *engine.Engine         // has the clock
	times  map[string]*olderTimes // of ports, by row key, and of namespaces
	some   bool                   // a copy was older since some was last reset
}

type olderTimes struct{ first, last time.Time }

const (
	// olderEvery is the time after which policies are compared again if a copy was older.
	olderEvery = time.Second
	// olderFor is the time after which the copy is used all the same. After a restore of the API server's database,
	// resource versions are lower than before, perhaps for ever.
	olderFor = time.Minute
)

func newOlderCopies(e *engine.Engine) *olderCopies {
	return &olderCopies{engine: e, times: map[string]*olderTimes{}}
}

// is reports whether the source's copy of something is older than what NB was written by, by their resource versions.
func (b *olderCopies) is(what, inNB, inSource string) bool {
	now := b.engine.Now()
	if !policy.Newer(inNB, inSource) {
		delete(b.times, what)
		return false
	}
	t := b.times[what]
	if t == nil {
		t = &olderTimes{first: now}
		b.times[what] = t
		maps.DeleteFunc(b.times, func(_ string, other *olderTimes) bool { // what is gone is not asked for any more
			return other != t && now.Sub(other.last) > 10*olderFor
		})
	}
	t.last = now
	waits := now.Sub(t.first) < olderFor
	b.some = b.some || waits
	return waits
}
