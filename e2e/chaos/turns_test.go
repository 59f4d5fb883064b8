//go:build chaos

package chaos

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbtest"
)

// turns has several actors use one database so that only one of them runs at a time: until its next transaction. A
// random number chooses who is next.
type turns struct {
	over     atomic.Pointer[chan struct{}] // closed when run ends; nil: outside of run, nobody waits
	reads    atomic.Bool                   // reads wait for their turn too, not only writes
	before   func()                        // is called before each turn, if it is not nil
	wrote    bool                          // the turn before was of a transaction that writes
	arrivals chan arrival
	ended    chan int
}

// arrival is an actor that waits for its turn.
type arrival struct {
	who    int
	turn   chan struct{}
	writes bool
	blocks bool // the server answers when another actor has written something
}

func newTurns() *turns { return &turns{arrivals: make(chan arrival), ended: make(chan int)} }

// limited is a context that ends with its caller's work. nbtest.WithLimit keeps a context until the end of the test: in
// 100,000 orders these take a gigabyte.
func limited() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), nbtest.Limit)
}

// connect returns an endpoint of the server for an actor. Its transactions wait for their turns.
func (s *turns) connect(t *testing.T, who int, server *ovndbtest.Server) (endpoint string) {
	proxy := ovndbtest.StartProxy(t, server.Endpoint())
	proxy.Before(func(tr ovndbtest.Transact) {
		blocks := slices.ContainsFunc(tr.Ops, func(op ovndbtest.Op) bool { return op["op"] == "wait" && op["timeout"] != 0.0 })
		if tr.Writes || blocks || s.reads.Load() {
			s.await(who, tr.Writes, blocks)
		}
	})
	return proxy.Endpoint()
}

// await waits for an actor's turn.
func (s *turns) await(who int, writes, blocks bool) {
	over := s.over.Load()
	if over == nil {
		return
	}
	turn := make(chan struct{})
	select {
	case s.arrivals <- arrival{who, turn, writes, blocks}:
		<-turn
	case <-*over: // of a call that was cancelled before its transaction arrived
	}
}

// run runs the actors. Before each turn, the next actor is chosen among those that wait. An actor may have several
// connections or goroutines; it waits when one of them does.
//
// cancel ends the context of what an actor does while it waits. Its transaction is then committed although the actor does
// not wait for the answer.
func (s *turns) run(rnd *rand.Rand, actors []func(), cancel func(who int)) (n int) {
	s.reads.Store(rnd.IntN(2) == 0)
	over := make(chan struct{})
	s.over.Store(&over)
	defer close(over)
	defer s.over.Store(nil)
	running := map[int]bool{}
	for i, act := range actors {
		running[i] = true
		go func() {
			act()
			s.ended <- i
		}()
	}
	waiting, blocked := map[int][]arrival{}, map[int]bool{}
	runs := func() bool { // some actor neither waits for its turn nor for another actor
		for i := range running {
			if len(waiting[i]) == 0 && !blocked[i] {
				return true
			}
		}
		return len(waiting) == 0 && len(running) > 0
	}
	for {
		for runs() {
			if len(waiting) == 0 && len(blocked) == len(running) { // nobody is left that could end their waiting
				for who := range blocked {
					cancel(who)
				}
			}
			select {
			case a := <-s.arrivals:
				waiting[a.who] = append(waiting[a.who], a)
				delete(blocked, a.who)
			case i := <-s.ended:
				delete(running, i)
				delete(blocked, i)
			}
		}
		if len(waiting) == 0 {
			return n
		}
		if s.before != nil {
			s.before()
		}
		who := slices.Sorted(maps.Keys(waiting))[rnd.IntN(len(waiting))]
		if rnd.IntN(20) == 0 {
			cancel(who)
		}
		i := rnd.IntN(len(waiting[who]))
		a := waiting[who][i]
		if waiting[who] = slices.Delete(waiting[who], i, i+1); len(waiting[who]) == 0 {
			delete(waiting, who)
		}
		if a.blocks && running[who] {
			blocked[who] = true
		}
		s.wrote = a.writes
		close(a.turn)
		n++
	}
}
