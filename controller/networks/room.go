package networks

import (
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovnnet"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbrows"
)

// checkRoom refuses a configuration for which the namespace has no room in OVN. What NB has stays.
func (k *Kind) checkRoom(namespace string, network *netmodel.Network, stored *ovnnet.Stored) error {
	if stored.Config != nil && stored.Config.Revision() == network.Revision() {
		return nil
	}
	if why := k.Engine.Check(namespace, item(network.ID(), namespace), network.Cost()); why != nil {
		return nbrows.Refusedf("%v", why)
	}
	return nil
}

// useRoom notes what an accepted network needs. If its namespace comes near to a limit, the network's NADs have an
// Event.
func (k *Kind) useRoom(namespace string, network *netmodel.Network, members []*member) {
	warning := k.Engine.Use(namespace, item(network.ID(), ""), network.Cost())
	for _, m := range members {
		if warning != "" && m.nad.Namespace == namespace {
			k.Source.NetworkEvent(&m.nad, true, "NearLimit", warning)
		}
	}
}
