package ovnport

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
)

// keyEpoch is the key of a random value, the epoch, in external_ids of a node's port list.
//
// A transaction whose answer was lost may be committed later: a leader that was paused has it in its socket, and passes
// it to the next leader when it goes on. Without an epoch it would insert ports again that were released meanwhile, or
// name the target of a migration that has failed. So such a transaction asserts the epoch, and after a lost answer the
// node sets another epoch before it writes or releases ports.
const keyEpoch = "ovn-multinet/epoch"

// epochs are the epochs of nodes, as far as this process knows them.
type epochs struct {
	turn  chan struct{} // full while a goroutine uses known
	known map[string]epoch
}

type epoch struct {
	value string // "": unknown
	lost  int64  // how many answers had been lost when the epoch was set or read
}

func newEpochs() epochs { return epochs{turn: make(chan struct{}, 1), known: map[string]epoch{}} }

func (e *epochs) lock(ctx context.Context) error {
	select {
	case e.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return unreachable(fmt.Errorf("NB database: %w", ctx.Err()))
	}
}

func (e *epochs) unlock() { <-e.turn }

// epochOf returns the epoch that a transaction asserts which inserts ports of the node. A node without a port list gets
// one.
func (n *NB) epochOf(ctx context.Context, node string) (string, error) {
	if err := n.epochs.lock(ctx); err != nil {
		return "", err
	}
	defer n.epochs.unlock()
	is, lost := n.epochs.known[node], n.group.lost.Load()
	if is.value != "" && is.lost == lost {
		return is.value, nil
	}
	for ctx.Err() == nil {
		value, err := n.findEpoch(ctx, node, is.lost != lost)
		if err == nil && value == "" {
			value, err = n.makePortList(ctx, node)
		}
		if err != nil {
			return "", err
		}
		if value != "" {
			n.epochs.known[node] = epoch{value, lost}
			return value, nil
		}
	}
	return "", unreachable(fmt.Errorf("NB database: %w", ctx.Err()))
}

// findEpoch reads the node's epoch, or sets another one; "": the node has no port list.
func (n *NB) findEpoch(ctx context.Context, node string, another bool) (string, error) {
	if !another {
		list, err := n.readPortListRow(ctx, node, n.db.Transact)
		if err != nil || list == nil || epochIn(list) != "" {
			return epochIn(list), err
		}
	}
	return n.setEpoch(ctx, node) // an older version made the list without an epoch, or answers were lost
}

// shutOut sets another epoch if an answer was lost since the last one was set.
func (n *NB) shutOut(ctx context.Context, node string) error {
	if err := n.epochs.lock(ctx); err != nil {
		return err
	}
	is, used := n.epochs.known[node]
	n.epochs.unlock()
	if !used || is.lost == n.group.lost.Load() {
		return nil
	}
	_, err := n.epochOf(ctx, node)
	return err
}

// renewEpoch sets another epoch. The answers that an earlier process of this node waited for are lost.
func (n *NB) renewEpoch(ctx context.Context, node string) error {
	if err := n.epochs.lock(ctx); err != nil {
		return err
	}
	n.epochs.known[node] = epoch{lost: -1}
	n.epochs.unlock()
	_, err := n.epochOf(ctx, node)
	return err
}

// forgetEpoch has the node's epoch read again: it is not value any more.
func (n *NB) forgetEpoch(ctx context.Context, node, value string) error {
	if err := n.epochs.lock(ctx); err != nil {
		return err
	}
	defer n.epochs.unlock()
	if is := n.epochs.known[node]; is.value == value {
		n.epochs.known[node] = epoch{lost: is.lost}
	}
	return nil
}

func epochIn(list *nb.Copp) string {
	if list == nil {
		return ""
	}
	return list.ExternalIDs[keyEpoch]
}

// setEpoch gives the node another epoch; "": it has no port list.
func (n *NB) setEpoch(ctx context.Context, node string) (string, error) {
	value := rand.Text()
	results, err := n.db.Transact(ctx, []ovsdb.Operation{
		ovndb.SetPair(nb.CoppTable, ovndb.PortListKey(node), "external_ids", keyEpoch, value),
	})
	if err != nil || results[0].Count == 0 {
		return "", err
	}
	return value, nil
}

// hasEpoch asserts that the node has a port list with this epoch.
func hasEpoch(node, value string) ovsdb.Operation {
	return ovndb.Holds(nb.CoppTable, ovndb.PortListKey(node), "external_ids", keyEpoch, value)
}

// noteLost counts a lost answer. Not each of these transactions could do harm later, but a loss is rare.
func (g *groupCommit) noteLost(err error) {
	if errors.Is(err, ovndb.ErrUnknownOutcome) {
		g.lost.Add(1)
	}
}
