package controller

import (
	"maps"
	"time"

	"github.com/ovn-multinet/ovn-multinet/policy"
)

// behind knows where the source's copies are older than what NB was written by: an agent, or another controller, has
// heard of newer labels. What was chosen by newer labels stays until the source has heard of them, too.
type behind struct {
	now   func() time.Time
	times map[string]*behindTimes // of ports, by row key, and of namespaces
	some  bool                    // a copy was older since some was last reset
}

type behindTimes struct{ first, last time.Time }

const (
	// behindEvery is the time after which policies are compared again if a copy was older.
	behindEvery = time.Second
	// behindFor is the time after which the copy is used all the same. After a restore of the API server's database,
	// resource versions are lower than before, perhaps for ever.
	behindFor = time.Minute
)

func newBehind() *behind { return &behind{now: time.Now, times: map[string]*behindTimes{}} }

// is tells whether the source's copy of something is older than what NB was written by, by their resource versions.
func (b *behind) is(what, inNB, inSource string) bool {
	now := b.now()
	if !policy.Newer(inNB, inSource) {
		delete(b.times, what)
		return false
	}
	t := b.times[what]
	if t == nil {
		t = &behindTimes{first: now}
		b.times[what] = t
		maps.DeleteFunc(b.times, func(_ string, other *behindTimes) bool { // what is gone is not asked for any more
			return other != t && now.Sub(other.last) > 10*behindFor
		})
	}
	t.last = now
	waits := now.Sub(t.first) < behindFor
	b.some = b.some || waits
	return waits
}
