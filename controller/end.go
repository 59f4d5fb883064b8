package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovnnet"
)

// leave lets a NAD go.
func (c *Controller) releaseNAD(nad *netmodel.NAD, network string) {
	c.log.Info("network no more", "network", network, "nad", nad.ID())
	c.states.set(nad, nil, false)
}

// end deletes a network that no permitted NAD describes any more. Then other namespaces may use its name. Until then, the
// states of their NADs name the owner.
func (c *Controller) endNetwork(ctx context.Context, i item, s *ovnnet.Stored, members, leaving []*member) error {
	err := c.deleteNetwork(ctx, i, s, leaving)
	inUse, held := errors.AsType[*ovnnet.InUse](err)
	if err != nil && !held {
		return err
	}
	for _, m := range members {
		if held && m.network != nil {
			m.err = fmt.Errorf("%w; it is held until its last port is gone, %w", mayNotJoin(m, cmp.Or(s.Owner, "(unknown)")), inUse)
		}
		if m.err != nil {
			c.report(m)
		} else {
			c.queue.Add(i)
		}
	}
	if held {
		c.stillUsed(i.id, cmp.Or(s.Owner, tenantOf(i.id, nil)), inUse)
	}
	return nil
}

// remove takes a network away, and then lets its NADs go. Only the owner's NAD takes the ports with it: pods of others may
// be on a shared network.
func (c *Controller) deleteNetwork(ctx context.Context, i item, s *ovnnet.Stored, leaving []*member) error {
	id := i.id
	force := slices.ContainsFunc(leaving, func(m *member) bool {
		return m.nad.ForceDelete && (!ovnnet.IsShared(id) || m.nad.Namespace == s.Owner)
	})
	err := c.networks.Delete(ctx, id, force)
	inUse, held := errors.AsType[*ovnnet.InUse](err)
	if len(s.NADs) > 0 || !held {
		c.routerChanged(i, s.Router()) // a network that is being deleted gives no consent
	}
	if err != nil && !held {
		return err
	}
	for _, m := range leaving {
		if held && c.mayDescribe(s, id, &m.nad) {
			c.states.set(&m.nad, &netmodel.NetworkState{Reason: "being deleted, " + inUse.Error()}, true)
			c.metrics.verdict(m.nad.ID(), nil)
		} else {
			c.releaseNAD(&m.nad, id)
		}
	}
	if !held {
		delete(c.inUse, id)
		delete(c.refused, id)
		delete(c.guests, id)
	}
	return err
}
