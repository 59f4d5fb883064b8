package controller

import (
	"time"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovnnet"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbrows"
)

// refusal is a network that something in the database is in the way of.
type refusal struct {
	tenant   string
	router   string // that the network would be attached to; "": none
	revision string
	last     time.Time // when it was refused last
	times    int
}

// refuse has a network tried again later. What is in the way may go without a word to the controller, such as the ports of a
// network that is to change: so the times between two attempts grow up to longest. A change on its router may free the network
// sooner: see wake. The attempts are for the tenant whose network it is, whichever tenant's NAD caused this one: so there is
// one series of attempts.
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

// Bounds on the time between two attempts at a network that waits. A namespace gets waitingPerSecond attempts a second for all of its
// networks together, however many of them wait.
const (
	waitingLast      = 15 * time.Second
	waitingPerSecond = 10
)

// longest is the longest time between two attempts at one of a namespace's networks that wait.
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

// growing is the time after so many attempts: twice as long each time.
func growing(first time.Duration, times int, last time.Duration) time.Duration {
	wait := first
	for ; times > 0 && wait < last; times-- {
		wait *= 2
	}
	return min(wait, last)
}

// wake has the networks tried again that are refused on a router, each no more often than refusedEvery.
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

// usage is a network that is being deleted and has ports.
type usage struct {
	tenant string
	text   string
	times  int // that it was found so
}

// stillUsed has a network looked at again for the end of its last port: soon while ports go, less often when none
// does. As with refuse, the tenant is that of the network.
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
