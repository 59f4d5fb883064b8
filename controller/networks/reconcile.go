package networks

import (
	"context"
	"errors"

	"github.com/ovn-multinet/ovn-multinet/controller/engine"
	"github.com/ovn-multinet/ovn-multinet/ovnnet"
)

// reconcileNetwork first withdraws what the network may no longer have, and then applies its NADs. Only the second step
// waits for the budget of the tenant. While a network waits, edits of its NADs do not make the controller read the
// network again. Every event that may withdraw something from the network must delete its entry in waits.
func (k *Kind) reconcileNetwork(ctx context.Context, i engine.Item) error {
	if wait := k.Engine.Wait(i.Tenant); wait > 0 && k.waits[i] {
		k.Engine.AddAfter(i, wait)
		return nil
	}
	var stored *ovnnet.Stored
	changed, err := k.Engine.Counted(func() (err error) {
		stored, err = k.withdrawForbidden(ctx, i)
		return err
	})
	if err == nil {
		err = k.Dependents.EnsureNetwork(ctx, i.Key, changed)
	}
	if err != nil {
		return err
	}
	if wait := k.Engine.Wait(i.Tenant); wait > 0 {
		k.waits[i] = true
		k.Engine.AddAfter(i, wait)
		return nil
	}
	delete(k.waits, i)
	if changed, err = k.Engine.Charged(i.Tenant, func() error { return k.applyNADs(ctx, i, stored) }); changed {
		err = errors.Join(err, k.Dependents.EnsureNetwork(ctx, i.Key, true))
	}
	return err
}

// withdrawForbidden reads the network from NB. It withdraws the NADs that have no grant, and detaches the network from
// a router that it may not use. stored is what NB stores after that.
func (k *Kind) withdrawForbidden(ctx context.Context, i engine.Item) (stored *ovnnet.Stored, err error) {
	if stored, err = k.Networks.Stored(ctx, i.Key); err != nil {
		return nil, err
	}
	if err := k.withdrawUngranted(ctx, i.Key, stored); err != nil {
		return nil, err
	}
	k.noteGuest(i.Key, stored.Config, stored.Exists)
	return stored, k.detachForbidden(ctx, i, stored)
}
