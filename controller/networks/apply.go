package networks

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/controller/engine"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovnnet"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbrows"
)

// applyNADs elects the network's configuration among its NADs and ensures its rows, or deletes the network if no NAD
// holds it any more. Then it reports the states of the NADs. stored is what NB stores of the network.
func (k *Kind) applyNADs(ctx context.Context, i engine.Item, stored *ovnnet.Stored) error {
	id := i.Key
	stored.SettleOwner(k.mayJoinOther)
	members, leaving, err := k.membersOf(ctx, id, stored)
	if err != nil {
		return err
	}
	// An invalid NAD holds the network only if the network accepts that NAD.
	described := slices.ContainsFunc(members, func(m *member) bool {
		return k.mayDescribe(stored, id, &m.nad) && (m.network != nil || slices.Contains(stored.NADs, m.nad.ID()))
	})
	if !described {
		return k.endNetwork(ctx, i, stored, members, leaving)
	}
	k.Engine.Tried(item(id, ""), obstacleInUse)
	for _, m := range leaving { // other NADs hold the network
		k.releaseNAD(&m.nad, id)
	}
	current := stored.Config
	if network := elect(members, stored.Owner, current, stored.NADs, k.mayJoinOther); network != nil {
		// If the accepted configuration stays, a NAD that was accepted and is now invalid or different keeps its revision
		// on the switch: its pods still get the accepted configuration.
		kept := func(m *member) bool {
			return current != nil && current.Revision() == network.Revision() &&
				!m.barred && slices.Contains(stored.NADs, m.nad.ID())
		}
		if err := k.ensure(ctx, i, network, stored, members, kept); err != nil {
			return err
		}
	}
	for _, m := range members {
		k.report(ctx, m)
	}
	return nil
}

// mayJoinOther reports whether the NADs of a namespace may join networks of other namespaces.
func (c *Config) mayJoinOther(namespace string) bool {
	return slices.Contains(c.JoiningNamespaces, namespace)
}

// mayDescribe reports whether a NAD has a say in a network: the network exists as long as such a NAD does. If a shared
// network exists in NB, only the NADs of its owner and of joining namespaces have a say.
func (k *Kind) mayDescribe(s *ovnnet.Stored, id string, nad *netmodel.NAD) bool {
	return !ovnnet.IsShared(id) || !s.Exists ||
		s.Owner != "" && (nad.Namespace == s.Owner || k.mayJoinOther(nad.Namespace))
}

// membersOf reads the NADs of a network, with their configurations and grants. leaving are the NADs that are being
// deleted, members are all others. A NAD without a grant counts as invalid.
func (k *Kind) membersOf(ctx context.Context, id string, s *ovnnet.Stored) (
	members, leaving []*member, err error) {
	nads, err := k.nadsOf(ctx, id, s.NADs)
	if err != nil {
		return nil, nil, err
	}
	for _, nad := range nads {
		m := &member{nad: *nad}
		if nad.Deleting {
			leaving = append(leaving, m)
			continue
		}
		if is, err := nad.NetworkID(); err == nil && is != id {
			continue // the NAD was edited just now and describes another network: its own pass follows
		}
		if m.network, m.err = nad.Network(); m.network != nil {
			if m.err = k.Physical().Check(nad.Namespace, m.network); m.err != nil {
				m.network = nil
			}
		}
		members = append(members, m)
	}
	return members, leaving, nil
}

// ensure writes the network's rows, with the revisions of the NADs that are accepted or kept. If NB's content forbids
// the configuration, ensure notes this refusal in the members and queues another attempt. stored is what NB stores of
// the network.
func (k *Kind) ensure(ctx context.Context, i engine.Item, network *netmodel.Network, stored *ovnnet.Stored,
	members []*member, kept func(*member) bool) error {
	owner := stored.Owner
	var nads []string
	for _, m := range members {
		if m.err == nil || kept(m) {
			nads = append(nads, m.nad.ID())
		}
	}
	if owner == "" && len(nads) > 0 {
		owner, _, _ = strings.Cut(nads[0], "/")
	}
	k.NoteUsers(i.Key, nads)
	tenant := cmp.Or(owner, tenantOf(i.Key, nads))
	changed, err := false, k.checkRoom(tenant, network, stored)
	if err == nil {
		k.Paths.Note(i.Key, network)
		changed, err = k.Networks.EnsureOwned(ctx, network, owner, nads, func() error {
			return k.Dependents.BeforeNetwork(ctx, network, owner, stored.Exists)
		})
	}
	if err == nil {
		k.useRoom(tenant, network, members)
	}
	if changed {
		k.Log.Info("network is in sync", "network", network.ID())
	}
	refused, ok := errors.AsType[*nbrows.Refused](err)
	if changed || err != nil && !ok { // after any other error the transaction may be committed
		k.noteGuest(i.Key, network, true)
		k.routerChanged(i, stored.Router()) // its subnets may no longer be in the way of others there
		k.routerChanged(i, network.RouterName())
	}
	if !ok {
		if err == nil {
			k.notRefused(i.Key)
		}
		return err
	}
	k.Paths.Note(i.Key, stored.Config)
	k.refuse(i.Key, cmp.Or(owner, tenantOf(i.Key, nil)), network)
	if stored.Config != nil { // it stays
		k.useRoom(tenant, stored.Config, nil)
	}
	for _, m := range members {
		if m.err == nil {
			m.err = refused
		}
	}
	return nil
}

// report queues the state of a NAD: accepted, with what does not work on the network, or refused with the reason.
func (k *Kind) report(ctx context.Context, m *member) {
	state := &netmodel.NetworkState{Ready: m.err == nil}
	if m.err != nil {
		_, state.Reason, _ = conf.Describe(m.err)
	} else if m.network != nil {
		warnings := []string{m.network.Warning(k.reserved.list(ctx)), k.Paths.Warning(m.network)}
		state.Reason = strings.Join(slices.DeleteFunc(warnings, func(w string) bool { return w == "" }), "; ")
	}
	k.States.set(&m.nad, state, true)
	k.refusals.SetCode(m.nad.ID(), m.err)
}

// nadsOf reads the NADs of a network. It also reads the accepted NADs of which the source has not reported anything
// yet.
func (k *Kind) nadsOf(ctx context.Context, network string, accepted []string) ([]*netmodel.NAD, error) {
	ids := k.NADs.Of(network)
	for _, id := range accepted {
		if k.NADs.Network(id) == "" {
			ids = append(ids, id)
		}
	}
	var nads []*netmodel.NAD
	for _, id := range ids {
		nad, err := k.NADs.Read(ctx, id)
		if err != nil {
			return nil, err
		}
		if nad != nil {
			nads = append(nads, nad)
		}
	}
	return nads, nil
}

// NoteUsers notes that a network accepts NADs.
func (k *Kind) NoteUsers(network string, nads []string) {
	k.Dependents.NetworkHasUsers(network, k.NADs.NoteUsers(network, nads))
}
