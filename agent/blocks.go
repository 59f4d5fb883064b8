package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"sync"
	"time"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/nad"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovnnet"
	"github.com/ovn-multinet/ovn-multinet/ovnport"
)

// blocks knows this node's blocks of layer3 networks. They are asked for once: each port's transaction asserts that they
// are still this node's.
type blocks struct {
	networks *ovnnet.Networks
	node     string
	asking   locks // by network

	mu    sync.Mutex
	known map[string]string // by network, as netmodel.Network.NodeSubnetsText
}

func newBlocks(networks *ovnnet.Networks, node string) *blocks {
	return &blocks{networks: networks, node: node, asking: locks{held: map[string]*entry{}}, known: map[string]string{}}
}

// view returns the network as the pods of this node have it, if that is known.
func (b *blocks) view(n *netmodel.Network) *netmodel.Network {
	b.mu.Lock()
	defer b.mu.Unlock()
	blocks := n.ParseNodeSubnets(b.known[n.ID()])
	if blocks == nil {
		return nil
	}
	return n.ForNode(b.node, blocks)
}

func (b *blocks) forget(network string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.known, network)
}

func (b *blocks) remember(view *netmodel.Network) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.known[view.ID()] = view.NodeSubnetsText()
}

// keep forgets the blocks of all networks but these: what the node knows grows with the networks in use, not with those
// that ever were. A network that is forgotten is asked for again.
func (b *blocks) keep(used map[string]bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	maps.DeleteFunc(b.known, func(network, _ string) bool { return !used[network] })
}

// onNode returns an attachment's layer3 network as the pods of this node have it; the first time the node may get its
// blocks for it.
func (a *Agent) onNode(ctx context.Context, at *nad.Attachment) (*netmodel.Network, error) {
	n := at.Network
	for {
		view, err := a.askOnce(ctx, n)
		if err == nil {
			return view, nil
		}
		if errors.Is(err, ovnnet.ErrNotAccepted) {
			// Others may ask meanwhile: pods of a network that does not come wait together.
			if err = a.nb.AwaitNetwork(ctx, &ovnport.Request{Interface: at.Interface, Network: n, Refusal: at.Refusal}); err == nil {
				continue
			}
		}
		if !errors.Is(err, ovndb.ErrUnknownOutcome) {
			return nil, notShared(n, err)
		}
		// What was committed, the next look finds.
		select {
		case <-ctx.Done():
			return nil, notShared(n, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// askOnce has one pod ask; those that come meanwhile get what it was given. has are addresses that the node's pods have already.
func (a *Agent) askOnce(ctx context.Context, n *netmodel.Network, has ...netip.Addr) (*netmodel.Network, error) {
	if view := a.blocks.view(n); view != nil {
		return view, nil
	}
	unlock, err := a.blocks.asking.take(ctx, n.ID())
	if err != nil {
		return nil, fmt.Errorf("another pod asks for it still: %w", ctx.Err())
	}
	defer unlock()
	if view := a.blocks.view(n); view != nil {
		return view, nil
	}
	view, err := a.blocks.networks.Share(ctx, n, a.conf.NodeName, has...)
	if err != nil {
		return nil, err
	}
	a.blocks.remember(view)
	a.log.Info("this node's part of a network", "network", n.ID(), "blocks", view.NodeSubnetsText())
	return view, nil
}

// notShared gives an error its code, if it has none.
func notShared(n *netmodel.Network, err error) error {
	err = ovnport.ExplainNotOwner(err)
	_, coded := errors.AsType[*conf.Error](err)
	_, other := errors.AsType[*ovnport.NotAccepted](err)
	if coded || other {
		return err
	}
	todo := "is OVN's Northbound database up and reachable from this node?"
	if _, refused := errors.AsType[*ovnnet.Refused](err); refused {
		todo = "ask the operator; a retry finds out whether it is mended"
	}
	return conf.Errorf(conf.CodeTryAgain, todo, "network %s: this node's part of it: %w", n.ID(), err)
}
