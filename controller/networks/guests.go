package networks

import (
	"context"

	"github.com/ovn-multinet/ovn-multinet/controller/engine"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovnnet"
)

// noteGuest notes whether a network is a guest on a router of another namespace. accepted is the accepted
// configuration, which is nil also if it cannot be read.
func (k *Kind) noteGuest(id string, accepted *netmodel.Network, exists bool) {
	k.Dependents.NetworkAccepted(id, accepted, exists)
	k.Paths.Note(id, accepted)
	delete(k.guests, id)
	if accepted != nil && accepted.IsGuest() {
		k.guests[id] = accepted.Router
	}
}

// detachForbidden detaches a network from its router if the network may not be there any more, and updates stored.
func (k *Kind) detachForbidden(ctx context.Context, i engine.Item, stored *ovnnet.Stored) error {
	network := stored.Config
	if network == nil || network.Router == "" {
		return nil
	}
	reason, err := k.Networks.DetachForbidden(ctx, network, stored.NADs)
	if err != nil || reason == nil {
		return err
	}
	k.Log.Warn("network is detached from its router", "network", i.Key, "router", network.Router, "reason", reason)
	stored.Config = network.WithoutRouter()
	k.noteGuest(i.Key, stored.Config, true)
	k.routerChanged(i, network.Router)
	return nil
}

// routerChanged queues the networks that a change of network i on the router may concern. These are the refused
// networks of that router. If network i is in the router's own namespace, they are also the guests on the router,
// because the change may withdraw the consent to them. The pass over a guest has the tenant of this change, so that a
// guest cannot delay the pass by spending its own budget.
func (k *Kind) routerChanged(i engine.Item, router string) {
	k.retryOnRouter(router)
	if router == "" || netmodel.RouterNamespace(router) != engine.NamespaceOf(i.Key) {
		return
	}
	for guest, of := range k.guests {
		if of == router {
			network := item(guest, i.Tenant)
			delete(k.waits, network)
			k.Engine.Add(network)
		}
	}
}
