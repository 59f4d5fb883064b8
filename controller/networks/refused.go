package networks

import (
	"github.com/ovn-multinet/ovn-multinet/controller/engine"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovnnet"
)

// The obstacles of networks.
const (
	obstacleRefused = "refused" // rows in NB are in the way of the network's configuration
	obstacleInUse   = "in use"  // the network is being deleted and still has ports
)

// refuse queues another attempt at a refused network. A change on the network's router may end the refusal sooner, see
// retryOnRouter. tenant is the owner of the network, whichever namespace's NAD requested this pass, so that there is
// only one series of attempts.
func (k *Kind) refuse(id, tenant string, network *netmodel.Network) {
	k.refused[id] = network.RouterName()
	k.Engine.TryLater(item(id, tenant), engine.Obstacle{
		Name: obstacleRefused, Text: network.Revision(), First: engine.RefusedEvery,
	})
}

// retryOnRouter queues the refused networks of a router. The attempt at a network is not earlier than
// engine.RefusedEvery after its last attempt.
func (k *Kind) retryOnRouter(router string) {
	for id, its := range k.refused {
		if router != "" && its == router {
			k.Engine.TrySoon(item(id, ""), obstacleRefused, engine.RefusedEvery)
		}
	}
}

// notRefused forgets that a network was refused.
func (k *Kind) notRefused(id string) {
	delete(k.refused, id)
	k.Engine.Tried(item(id, ""), obstacleRefused)
}

// stillUsed queues another pass over a network that is being deleted and still has ports. The pass comes soon while
// ports are deleted, and later if none is. As for refuse, tenant is the owner of the network.
func (k *Kind) stillUsed(id, tenant string, inUse *ovnnet.InUse) {
	text := inUse.Error()
	if k.Engine.TryLater(item(id, tenant), engine.Obstacle{Name: obstacleInUse, Text: text, First: inUseEvery}) {
		k.Log.Info("network is being deleted", "network", id, "reason", text)
	}
}
