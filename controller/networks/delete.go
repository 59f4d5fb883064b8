package networks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ovn-multinet/ovn-multinet/controller/engine"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovnnet"
)

// releaseNAD queues the removal of our state and finalizer from a NAD.
func (k *Kind) releaseNAD(nad *netmodel.NAD, network string) {
	k.Log.Info("NAD describes the network no longer", "network", network, "nad", nad.ID())
	k.States.set(nad, nil, false)
}

// endNetwork deletes a network that no NAD holds any more. After the deletion, other namespaces may use the network's
// name. Until then, the states of their NADs name the owner.
func (k *Kind) endNetwork(
	ctx context.Context, i engine.Item, s *ovnnet.Stored, members, leaving []*member,
) error {
	err := k.deleteNetwork(ctx, i, s, leaving)
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
			k.report(ctx, m)
		} else {
			k.Engine.Add(i)
		}
	}
	if used {
		k.stillUsed(i.Key, cmp.Or(s.Owner, tenantOf(i.Key, nil)), inUse)
	}
	return nil
}

// deleteNetwork deletes a network's rows, and then releases its NADs. While the network has ports, the error is an
// *ovnnet.InUse, and the NADs that describe the network keep their finalizer. A NAD with ForceDelete deletes the
// network with its ports. On a shared network only a NAD of the owner can do this, because pods of other namespaces may
// be on it.
func (k *Kind) deleteNetwork(ctx context.Context, i engine.Item, s *ovnnet.Stored, leaving []*member) error {
	id := i.Key
	force := slices.ContainsFunc(leaving, func(m *member) bool {
		return m.nad.ForceDelete && (!ovnnet.IsShared(id) || m.nad.Namespace == s.Owner)
	})
	err := k.Networks.Delete(ctx, id, force)
	inUse, used := errors.AsType[*ovnnet.InUse](err)
	if len(s.NADs) > 0 || !used {
		k.routerChanged(i, s.Router()) // its consent to guests ends when its deletion begins
	}
	if err != nil && !used {
		return err
	}
	for _, m := range leaving {
		if used && k.mayDescribe(s, id, &m.nad) {
			k.States.set(&m.nad, &netmodel.NetworkState{Reason: netmodel.BeingDeleted + inUse.Error()}, true)
			k.refusals.SetCode(m.nad.ID(), nil)
		} else {
			k.releaseNAD(&m.nad, id)
		}
	}
	if !used {
		delete(k.refused, id)
		k.Engine.Tried(item(id, ""))
		k.Engine.Free(item(id, ""))
		delete(k.guests, id)
		k.Paths.Note(id, nil)
	}
	return err
}
