package controller

import (
	"time"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovnnet"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbrows"
)

// refusal describes a refused network: rows in NB are in the way of its configuration.
type refusal struct {
	tenant   string
	router   string    // the router that the network would be on; "": none
	revision string    // the refused configuration
	last     time.Time // the last attempt
	times    int       // the number of attempts at this revision
}

// refuse queues another attempt at a refused network. The controller does not hear when the obstacle is gone, for
// example when the last port of a network is deleted that has to change. So it tries again, and the time between two
// attempts grows up to longest. A change on the network's router may end the refusal sooner, see retryOnRouter. tenant
// is the owner of the network, whichever namespace's NAD requested this pass, so that there is only one series of
// attempts.
func (c *Controller) refuse(id, tenant string, network *netmodel.Network) {
	r, revision := c.refused[id], network.Revision()
	if r == nil || r.revision != revision {
		r = &refusal{revision: revision}
		c.refused[id] = r
	}
	r.tenant, r.router, r.last = tenant, network.RouterName(), c.now()
	c.queue.AddAfter(item{kindNetwork, id, tenant}, growing(refusedEvery, r.times, c.longest(tenant)))
	r.times++
}

// The time between two attempts at a waiting network grows up to waitingLast. But all waiting networks of a namespace
// together get at most waitingPerSecond attempts a second. A network waits if it is refused, or is deleted and has
// ports.
const (
	waitingLast      = 15 * time.Second
	waitingPerSecond = 10
)

// longest returns the longest time between two attempts at one waiting network of the tenant.
func (c *Controller) longest(tenant string) time.Duration {
	waiting := 0
	for _, r := range c.refused {
		if r.tenant == tenant {
			waiting++
		}
	}
	for _, u := range c.inUse {
		if u.tenant == tenant {
			waiting++
		}
	}
	return min(max(waitingLast, time.Duration(waiting)*time.Second/waitingPerSecond), nbrows.ReconcileEvery)
}

// growing returns the time until the next attempt: first, doubled with each earlier attempt, and at most last.
func growing(first time.Duration, times int, last time.Duration) time.Duration {
	wait := first
	for ; times > 0 && wait < last; times-- {
		wait *= 2
	}
	return min(wait, last)
}

// retryOnRouter queues the refused networks of a router. The attempt at a network is not earlier than refusedEvery
// after its last attempt.
func (c *Controller) retryOnRouter(router string) {
	if router == "" {
		return
	}
	for id, r := range c.refused {
		if r.router == router {
			c.queue.AddAfter(item{kindNetwork, id, r.tenant}, max(0, refusedEvery-c.now().Sub(r.last)))
		}
	}
}

// usage describes a network that is being deleted and still has ports.
type usage struct {
	tenant string
	text   string // which ports it has
	times  int    // how many passes found the same ports
}

// stillUsed queues another pass over a network that is being deleted and still has ports. The pass comes soon while
// ports are deleted, and later if none is. As for refuse, tenant is the owner of the network.
func (c *Controller) stillUsed(id, tenant string, inUse *ovnnet.InUse) {
	u, text := c.inUse[id], inUse.Error()
	if u == nil || u.text != text {
		u = &usage{tenant: tenant, text: text}
		c.inUse[id] = u
		c.log.Info("network is being deleted", "network", id, "reason", text)
	}
	c.queue.AddAfter(item{kindNetwork, id, tenant}, growing(inUseEvery, u.times, c.longest(tenant)))
	u.times++
}
