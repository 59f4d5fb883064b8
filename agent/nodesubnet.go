package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"sync"
	"time"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/nad"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbrows"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nodesubnet"
	"github.com/ovn-multinet/ovn-multinet/ovnport"
)

// nodeSubnets knows this node's subnets of layer3 networks. It reads the subnets of a network once: each port's
// transaction asserts that they are still this node's.
type nodeSubnets struct {
	nbSubnets *nodesubnet.Subnets
	nb        *ovnport.NB
	node      string
	log       *slog.Logger
	reading   *locks // by network

	mu    sync.Mutex
	known map[string]string // by network, as netmodel.Network.NodeSubnetsText
}

func newNodeSubnets(nbSubnets *nodesubnet.Subnets, nb *ovnport.NB, node string, log *slog.Logger) *nodeSubnets {
	return &nodeSubnets{
		nbSubnets: nbSubnets, nb: nb, node: node, log: log, reading: newLocks(), known: map[string]string{},
	}
}

// view returns the network as the pods of this node have it, or nil if the node's subnets are not known.
func (s *nodeSubnets) view(n *netmodel.Network) *netmodel.Network {
	s.mu.Lock()
	defer s.mu.Unlock()
	subnets := n.ParseNodeSubnets(s.known[n.ID()])
	if subnets == nil {
		return nil
	}
	return n.ForNode(s.node, subnets)
}

func (s *nodeSubnets) forget(network string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.known, network)
}

func (s *nodeSubnets) remember(view *netmodel.Network) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known[view.ID()] = view.NodeSubnetsText()
}

// keep forgets the node's subnets of all other networks, so that memory grows with the networks in use and not with
// all networks that ever were. The node subnets of a forgotten network are read again when a pod needs them.
func (s *nodeSubnets) keep(used map[string]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.known, func(network, _ string) bool { return !used[network] })
}

// networkOnNode returns an attachment's layer3 network as the pods of this node have it. For the first pod of the
// network, the node may get its subnets.
func (s *nodeSubnets) networkOnNode(ctx context.Context, at *nad.Attachment) (*netmodel.Network, error) {
	n := at.Network
	for {
		view, err := s.get(ctx, n)
		if err == nil {
			return view, nil
		}
		if errors.Is(err, nodesubnet.ErrNotAccepted) {
			// Pods of a network that is not accepted yet wait together: the lock of the network is free meanwhile.
			request := &ovnport.Request{Interface: at.Interface, Network: n, Refusal: at.Refusal}
			if err = s.nb.AwaitNetwork(ctx, request); err == nil {
				continue
			}
		}
		if !errors.Is(err, ovndb.ErrUnknownOutcome) {
			return nil, noNodeSubnet(n, err)
		}
		// The next attempt finds what was committed.
		select {
		case <-ctx.Done():
			return nil, noNodeSubnet(n, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// get reads the node's subnets of a network, or allocates them. Pods that ask meanwhile wait and get the same answer.
// has are addresses that the node's pods already have.
func (s *nodeSubnets) get(ctx context.Context, n *netmodel.Network, has ...netip.Addr) (*netmodel.Network, error) {
	if view := s.view(n); view != nil {
		return view, nil
	}
	unlock, err := s.reading.take(ctx, n.ID())
	if err != nil {
		return nil, fmt.Errorf("another pod still reads it: %w", ctx.Err())
	}
	defer unlock()
	if view := s.view(n); view != nil {
		return view, nil
	}
	view, err := s.nbSubnets.Ensure(ctx, n, s.node, has...)
	if err != nil {
		return nil, err
	}
	s.remember(view)
	s.log.Info("this node's subnets of a network", "network", n.ID(), "subnets", view.NodeSubnetsText())
	return view, nil
}

// noNodeSubnet gives an error its code, if it has none.
func noNodeSubnet(n *netmodel.Network, err error) error {
	err = ovnport.ExplainNotOwner(err)
	_, coded := errors.AsType[*conf.Error](err)
	_, notAccepted := errors.AsType[*ovnport.NotAccepted](err)
	if coded || notAccepted {
		return err
	}
	todo := "is OVN's Northbound database up and reachable from this node?"
	if _, refused := errors.AsType[*nbrows.Refused](err); refused {
		todo = "ask the operator; the ADD succeeds when the cause is corrected"
	}
	return conf.Errorf(conf.CodeTryAgain, todo, "network %s: no subnet of it for this node: %w", n.ID(), err)
}
