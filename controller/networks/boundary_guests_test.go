package networks

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/ovn-multinet/ovn-multinet/controller/engine"
)

// queued is a queue that notes what is asked for at once, and what for later.
type queued struct {
	asks
	now []string
}

func (q *queued) Add(i engine.Item) { q.now = append(q.now, i.Tenant+" "+i.Key) }

// A change of an owner's network has the guests on that router looked at, in the owner's turn: a guest that has spent its
// own budget does not delay the end of its consent. Networks that only name the router wait for their own turn.
func TestBoundaryGuestsAreLookedAtInTheOwnersTurn(t *testing.T) {
	const green = `"subnets":"10.2.0.0/24","router":"shop/r1"`
	c, _, _ := newTested()
	q := &queued{}
	c.Engine.Queue = q
	c.noteGuest("web/green", tested(t, "web/green", green), true)
	c.noteGuest("dev/n", tested(t, "dev/n", `"subnets":"10.3.0.0/24","router":"shop/r2"`), true)
	c.noteGuest("shop/red", tested(t, "shop/red", `"subnets":"10.4.0.0/24","router":"r1"`), true)
	c.refuse("mallory/n", "mallory", tested(t, "mallory/n", green))
	owners := item("shop/blue", "shop")
	c.waits[item("web/green", "shop")] = true // it was held back once, and is to be read again
	for _, step := range []struct {
		name       string
		change     engine.Item
		router     string
		now, later string
	}{
		{"the owner's", owners, "shop/r1", "[shop web/green]", "[mallory mallory/n]"},
		{"the owner's, on another router", owners, "shop/r2", "[shop dev/n]", "[]"},
		{"a guest's", item("web/green", "web"), "shop/r1", "[]", "[mallory mallory/n]"},
		{"of a network without a router", owners, "", "[]", "[]"},
	} {
		q.now, q.later = nil, map[string]time.Duration{}
		c.routerChanged(step.change, step.router)
		later := fmt.Sprint(slices.Sorted(maps.Keys(q.later)))
		if got := fmt.Sprint(q.now); got != step.now || later != step.later {
			t.Errorf("a change %s: now %s, later %s; want %s and %s", step.name, got, later, step.now, step.later)
		}
	}
	if len(c.waits) > 0 {
		t.Errorf("not read again: %v", c.waits)
	}
	c.noteGuest("web/green", tested(t, "web/green", green).WithoutRouter(), true)
	q.now = nil
	c.routerChanged(owners, "shop/r1")
	if len(q.now) > 0 {
		t.Errorf("looks at %v, which is on no router", q.now)
	}
}
