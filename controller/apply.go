package controller

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovnnet"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbrows"
)

// applyNADs elects the network's configuration among its NADs and ensures its rows, or deletes the network if no NAD
// holds it any more. Then it reports the states of the NADs. standing is what NB stores of the network.
func (c *Controller) applyNADs(ctx context.Context, i item, standing *ovnnet.Stored) error {
	id := i.id
	standing.SettleOwner(c.mayJoinOther)
	members, leaving, err := c.membersOf(ctx, id, standing)
	if err != nil {
		return err
	}
	// An invalid NAD holds the network only if the network accepts that NAD.
	described := slices.ContainsFunc(members, func(m *member) bool {
		return c.mayDescribe(standing, id, &m.nad) && (m.network != nil || slices.Contains(standing.NADs, m.nad.ID()))
	})
	if !described {
		return c.endNetwork(ctx, i, standing, members, leaving)
	}
	delete(c.inUse, id)
	for _, m := range leaving { // other NADs hold the network
		c.releaseNAD(&m.nad, id)
	}
	current := standing.Config
	if network := elect(members, standing.Owner, current, standing.NADs, c.mayJoinOther); network != nil {
		// If the accepted configuration stays, a NAD that was accepted and is now invalid or different keeps its revision
		// on the switch: its pods still get the accepted configuration.
		kept := func(m *member) bool {
			return current != nil && current.Revision() == network.Revision() &&
				!m.barred && slices.Contains(standing.NADs, m.nad.ID())
		}
		if err := c.ensure(ctx, i, network, standing, members, kept); err != nil {
			return err
		}
	}
	for _, m := range members {
		c.report(m)
	}
	return nil
}

// mayJoinOther tells whether the NADs of a namespace may join networks of other namespaces.
func (c *Controller) mayJoinOther(namespace string) bool {
	return slices.Contains(c.mayJoin, namespace)
}

// mayDescribe tells whether a NAD has a say in a network: the network exists as long as such a NAD does. If a shared
// network exists in NB, only the NADs of its owner and of joining namespaces have a say.
func (c *Controller) mayDescribe(s *ovnnet.Stored, id string, nad *netmodel.NAD) bool {
	return !ovnnet.IsShared(id) || !s.Exists ||
		s.Owner != "" && (nad.Namespace == s.Owner || c.mayJoinOther(nad.Namespace))
}

// membersOf reads the NADs of a network, with their configurations and grants. leaving are the NADs that are being
// deleted, members are all others. A NAD without a grant counts as invalid.
func (c *Controller) membersOf(ctx context.Context, id string, s *ovnnet.Stored) (
	members, leaving []*member, err error) {
	nads, err := c.nadsOf(ctx, id, s.NADs)
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
			if m.err = c.physical.Check(nad.Namespace, m.network); m.err != nil {
				m.network = nil
			}
		}
		members = append(members, m)
	}
	return members, leaving, nil
}

// ensure writes the network's rows, with the revisions of the NADs that are accepted or kept. If NB's content forbids
// the configuration, ensure notes this refusal in the members and queues another attempt. standing is what NB stores of
// the network.
func (c *Controller) ensure(ctx context.Context, i item, network *netmodel.Network, standing *ovnnet.Stored,
	members []*member, kept func(*member) bool) error {
	owner := standing.Owner
	var nads []string
	for _, m := range members {
		if m.err == nil || kept(m) {
			nads = append(nads, m.nad.ID())
		}
	}
	if !standing.Exists {
		if err := c.policiesFirst(ctx, i.id); err != nil {
			return err
		}
	}
	if owner == "" && len(nads) > 0 {
		owner, _, _ = strings.Cut(nads[0], "/")
	}
	changed, err := c.networks.EnsureOwned(ctx, network, owner, nads)
	if changed {
		c.log.Info("network is in step", "network", network.ID())
	}
	refused, ok := errors.AsType[*nbrows.Refused](err)
	if changed || err != nil && !ok { // after any other error the transaction may be committed
		c.noteGuest(i.id, network)
		c.routerChanged(i, standing.Router()) // its subnets may no longer be in the way of others there
		c.routerChanged(i, network.RouterName())
	}
	if !ok {
		if err == nil {
			delete(c.refused, i.id)
		}
		return err
	}
	c.refuse(i.id, cmp.Or(owner, tenantOf(i.id, nil)), network)
	for _, m := range members {
		if m.err == nil {
			m.err = refused
		}
	}
	return nil
}

// report queues the state of a NAD: accepted, or refused with the reason.
func (c *Controller) report(m *member) {
	state := &netmodel.NetworkState{Ready: m.err == nil}
	if m.err != nil {
		_, state.Reason, _ = conf.Describe(m.err)
	}
	c.states.set(&m.nad, state, true)
	c.metrics.verdict(m.nad.ID(), m.err)
}
