package ipamclaims

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/ovn-multinet/ovn-multinet/controller/engine"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/ipamclaims"
)

// An agent gives an IPAMClaim its addresses, with the first pod, and this controller is told afterwards. So it says in
// advance, in NB, whether the next IPAMClaim of a namespace may have some.

const kindLimits = "ipamclaim-limits"

// addressShare is the part of the addresses of another namespace's network that the IPAMClaims of a namespace may have:
// one of so many.
const addressShare = 4

// count notes what an IPAMClaim has in NB.
func (k *Kind) count(id string, has *ipamclaims.Has) {
	namespace := engine.NamespaceOf(id)
	warning := k.Engine.Use(namespace, Item(id), netmodel.IPAMClaimCost(id, has.Network, len(has.IPs)))
	if warning != "" {
		k.Log.Warn("a namespace with IPAMClaims is near to a limit", "namespace", namespace, "limit", warning)
	}
	if known, ok := k.networks[id]; ok && known == has.Network {
		return
	}
	k.written.Add(namespace, id)
	k.networks[id] = has.Network
	k.Engine.Add(engine.OfNamespace(kindLimits, namespace))
}

// uncount notes that an IPAMClaim has nothing in NB any more.
func (k *Kind) uncount(id string) {
	namespace := engine.NamespaceOf(id)
	k.Engine.Free(Item(id))
	k.written.Remove(namespace, id)
	delete(k.networks, id)
	k.Engine.Add(engine.OfNamespace(kindLimits, namespace))
}

// NetworkChanged queues the limits of namespaces on a network: it may have got more addresses. An IPAMClaim keeps what
// it has.
func (k *Kind) NetworkChanged(network string) {
	for namespace, networks := range k.limited {
		if networks[network] {
			k.Engine.Add(engine.OfNamespace(kindLimits, namespace))
		}
	}
}

// reconcileLimits has NB say whether the next IPAMClaim of a namespace may have addresses.
func (k *Kind) reconcileLimits(ctx context.Context, i engine.Item) error {
	if err := k.list(ctx); err != nil {
		return err
	}
	namespace, counts, why := i.Key, map[string]uint64{}, map[string]string{}
	for id := range k.written[namespace] {
		counts[k.networks[id]]++
	}
	if err := k.Engine.Check(namespace, i, netmodel.NextIPAMClaim); err != nil {
		why[""] = err.Error()
	}
	for network, count := range counts {
		reason, err := k.beyondShare(ctx, namespace, network, count)
		if err != nil {
			return err
		}
		if reason != "" {
			why[network] = reason
		}
	}
	_, err := k.Engine.Charged(namespace, func() error {
		return k.Rows.SetLimits(ctx, namespace, slices.Collect(maps.Keys(k.limited[namespace])), why)
	})
	if err != nil {
		return err
	}
	delete(k.limited, namespace)
	for network := range why {
		k.limited.Add(namespace, network)
	}
	return nil
}

// beyondShare says why the IPAMClaims of a namespace get no more addresses of a network of another namespace; "": they
// do.
func (k *Kind) beyondShare(ctx context.Context, namespace, network string, count uint64) (string, error) {
	if engine.NamespaceOf(network) == namespace {
		return "", nil
	}
	stored, err := k.Network(ctx, network)
	if err != nil || stored.Config == nil || stored.Owner == namespace {
		return "", err
	}
	for i := range stored.Config.Subnets {
		pool := stored.Config.Pool(i)
		if share := max(1, pool.Size()/addressShare); count >= share {
			return fmt.Sprintf("the IPAMClaims of namespace %s have %d addresses of network %s, and a namespace may have %d "+
				"of another one's network with the subnet %s; use a network of your own for more", namespace, count, network,
				share, pool.Subnet), nil
		}
	}
	return "", nil
}
