package networks

import (
	"cmp"
	"context"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/controller/engine"
	"github.com/ovn-multinet/ovn-multinet/controller/nads"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
)

// reconcileNAD reads from the NAD which network it describes. It queues that network and, if the NAD described another
// network before, also that one.
func (k *Kind) reconcileNAD(ctx context.Context, i engine.Item) error {
	id := i.Key
	nad, err := k.NADs.Read(ctx, id)
	if err != nil {
		return err
	}
	was, is, created := k.NADs.Network(id), "", int64(0)
	wasBeyond := k.NADs.Beyond(id)
	if nad == nil {
		delete(k.seen.of, id)
		k.States.forget(id)
	} else {
		if news, wait := k.seen.changed(nad); !news {
			if wait > 0 {
				k.Engine.AddAfter(NADItem(id), wait)
			}
			return nil
		}
		if is, err = nad.NetworkID(); is == "" {
			err = cmp.Or(nad.Unusable(), err)
		}
		kind, _ := nad.Kind()
		created = nad.Created
		switch {
		case err != nil && nad.Deleting:
			// The NAD is deleted: only the network that it described before matters.
			if is = was; is == "" {
				k.releaseNAD(nad, "")
			}
		case err != nil && (was != "" || nad.HasFinalizer || conf.IsOVN(kind) || nad.Unusable() != nil):
			// The NAD does not say which network it describes. The network that it described before stays as it is.
			k.States.set(nad, &netmodel.NetworkState{Reason: err.Error()}, nad.HasFinalizer)
			k.refusals.SetCode(id, err)
			return nil
		case is == "" && (nad.HasFinalizer || nad.State != ""):
			k.releaseNAD(nad, was)
		}
	}
	if was != is || k.Dependents.Misses(id) {
		k.Dependents.NADMoved(id)
	}
	out := k.NADs.Set(id, is, created)
	if was != "" && !wasBeyond && (was != is || k.NADs.Beyond(id)) {
		k.Engine.Add(item(was, engine.NamespaceOf(id)))
	}
	if out != "" && out != id { // the other NAD did not change, but needs a new state: do not skip its pass
		delete(k.seen.of, out)
		k.Engine.Add(NADItem(out))
	}
	switch {
	case is == "":
		k.refusals.SetCode(id, nil)
	case !k.NADs.Beyond(id):
		k.Engine.Add(item(is, engine.NamespaceOf(id)))
	case nad.Deleting: // passes over the network do not read this NAD, so none of them releases it
		k.NADs.Set(id, "", 0)
		k.releaseNAD(nad, is)
	default:
		k.report(ctx, &member{nad: *nad, err: nads.TooMany(id, is)})
	}
	return nil
}
