package agent

import (
	"net/netip"
	"slices"
	"sync"
	"time"
)

// Bounds on what an agent remembers of the addresses that other hosts use.
const (
	usedFor     = 10 * time.Minute
	maxUsed     = 64 // addresses of one network; the oldest ones are forgotten first
	maxUsedNets = 256
)

// usedOutside are addresses that other hosts on physical networks have answered for. Pods of this node do not get them
// as dynamic addresses for some time. The search for an address begins at the same one for each ADD of a pod, so an ADD
// that failed of a conflict would meet it again and again.
type usedOutside struct {
	mu  sync.Mutex
	now func() time.Time
	all map[string][]usedAddress // by network, the oldest first
}

type usedAddress struct {
	addr  netip.Addr
	since time.Time
}

func newUsedOutside() *usedOutside {
	return &usedOutside{now: time.Now, all: map[string][]usedAddress{}}
}

// add notes an address of a network.
func (u *usedOutside) add(network string, addr netip.Addr) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.expire()
	list := slices.DeleteFunc(u.all[network], func(a usedAddress) bool { return a.addr == addr })
	if list == nil && len(u.all) >= maxUsedNets {
		return
	}
	list = append(list, usedAddress{addr, u.now()})
	u.all[network] = list[max(0, len(list)-maxUsed):]
}

// of returns the addresses of a network.
func (u *usedOutside) of(network string) (addrs []netip.Addr) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.expire()
	for _, a := range u.all[network] {
		addrs = append(addrs, a.addr)
	}
	return addrs
}

// expire forgets what is older than usedFor. It needs the lock.
func (u *usedOutside) expire() {
	for network, list := range u.all {
		list = slices.DeleteFunc(list, func(a usedAddress) bool { return u.now().Sub(a.since) >= usedFor })
		if u.all[network] = list; len(list) == 0 {
			delete(u.all, network)
		}
	}
}
