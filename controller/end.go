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

// releaseNAD queues the removal of our state and finalizer from a NAD.
func (c *Controller) releaseNAD(nad *netmodel.NAD, network string) {
	c.log.Info("NAD describes the network no longer", "network", network, "nad", nad.ID())
	c.states.set(nad, nil, false)
}

// endNetwork deletes a network that no NAD holds any more. After the deletion, other namespaces may use the network's
// name. Until then, the states of their NADs name the owner.
func (c *Controller) endNetwork(ctx context.Context, i item, s *ovnnet.Stored, members, leaving []*member) error {
	err := c.deleteNetwork(ctx, i, s, leaving)
	inUse, used := errors.AsType[*ovnnet.InUse](err)
	if err != nil && !used {
		return err
	}
	for _, m := range members {
		if used && m.network != nil {
			m.err = fmt.Errorf("%w; the network stays until its last port is gone, %w",
				mayNotJoin(m, cmp.Or(s.Owner, "(unknown)")), inUse)
		}
		if m.err != nil {
			c.report(m)
		} else {
			c.queue.Add(i)
		}
	}
	if used {
		c.stillUsed(i.id, cmp.Or(s.Owner, tenantOf(i.id, nil)), inUse)
	}
	return nil
}

// deleteNetwork deletes a network's rows, and then releases its NADs. While the network has ports, the error is an
// *ovnnet.InUse, and the NADs that describe the network keep their finalizer. A NAD with ForceDelete deletes the
// network with its ports. On a shared network only a NAD of the owner can do this, because pods of other namespaces may
// be on it.
func (c *Controller) deleteNetwork(ctx context.Context, i item, s *ovnnet.Stored, leaving []*member) error {
	id := i.id
	force := slices.ContainsFunc(leaving, func(m *member) bool {
		return m.nad.ForceDelete && (!ovnnet.IsShared(id) || m.nad.Namespace == s.Owner)
	})
	err := c.networks.Delete(ctx, id, force)
	inUse, used := errors.AsType[*ovnnet.InUse](err)
	if len(s.NADs) > 0 || !used {
		c.routerChanged(i, s.Router()) // its consent to guests ends when its deletion begins
	}
	if err != nil && !used {
		return err
	}
	for _, m := range leaving {
		if used && c.mayDescribe(s, id, &m.nad) {
			c.states.set(&m.nad, &netmodel.NetworkState{Reason: "being deleted, " + inUse.Error()}, true)
			c.metrics.verdict(m.nad.ID(), nil)
		} else {
			c.releaseNAD(&m.nad, id)
		}
	}
	if !used {
		delete(c.inUse, id)
		delete(c.refused, id)
		delete(c.guests, id)
	}
	return err
}
