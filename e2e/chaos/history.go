package chaos

import (
	"fmt"
	"slices"
	"sync"
)

// History has every acknowledged port. Its clock counts events, so that two events of this process are never at the same
// time, and an event that ended before another began has the lower number.
type History struct {
	mu    sync.Mutex
	now   int
	holds []*Hold
}

// Hold is one sandbox's ports from the answer to the ADD until the DEL begins: no other pod may have their addresses.
type Hold struct {
	Sandbox   string
	Addresses []string
	from      int
	until     int // 0: the DEL has not begun
}

// Attached records an ADD that was answered with these addresses.
func (h *History) Attached(sandbox string, addresses []string) *Hold {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.now++
	hold := &Hold{Sandbox: sandbox, Addresses: addresses, from: h.now}
	h.holds = append(h.holds, hold)
	return hold
}

// Releasing records that the DEL begins, or that another pod may take the addresses over. Only the first call for a
// hold counts; nil is a sandbox without ports.
func (h *History) Releasing(hold *Hold) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if hold == nil || hold.until != 0 {
		return
	}
	h.now++
	hold.until = h.now
}

// Duplicates lists the addresses that two holds had at one time, with the sandboxes.
func (h *History) Duplicates() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	byAddress := map[string][]*Hold{}
	for _, hold := range h.holds { // in the order of their beginnings
		for _, a := range hold.Addresses {
			byAddress[a] = append(byAddress[a], hold)
		}
	}
	var found []string
	for address, holds := range byAddress {
		last := holds[0] // the one that ends last so far
		for _, hold := range holds[1:] {
			if last.until == 0 || hold.from < last.until {
				found = append(found, fmt.Sprintf("%s: %s and %s", address, last.Sandbox, hold.Sandbox))
			}
			if last.until != 0 && (hold.until == 0 || hold.until > last.until) {
				last = hold
			}
		}
	}
	slices.Sort(found)
	return found
}
