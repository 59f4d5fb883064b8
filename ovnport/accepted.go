package ovnport

import (
	"context"
	"errors"
	"time"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
)

// networkWait is how long an ADD waits for a network that was made just now.
const networkWait = 5 * time.Second

// NotAccepted says that the accepted configuration of a network is not that of the NAD: the NAD was changed, and the
// controller has not seen the change yet or has refused it. Nothing was written. Config is the accepted configuration, a
// spec.config.
type NotAccepted struct {
	NAD    string
	Config string
}

func (e *NotAccepted) Error() string {
	return "network " + e.NAD + " is another one than its NetworkAttachmentDefinition says"
}

// NodeSubnetChanged says that the node switch of a layer3 network has another node subnet, or is gone. Nothing was
// written.
type NodeSubnetChanged struct{ Network, Node string }

func (e *NodeSubnetChanged) Error() string {
	return "network " + e.Network + " is not on node " + e.Node + " as it was"
}

// Accepted returns the accepted configuration of a network, a spec.config; "" when the network takes no ports of the
// NAD.
func (n *NB) Accepted(ctx context.Context, network, nad string) (string, error) {
	_, marks, err := n.marks(ctx, ovndb.SwitchKey(network))
	if err != nil || marks[ovndb.AcceptedPrefix+nad] == "" {
		return "", err
	}
	return marks[ovndb.ConfigKey], nil
}

// marks are the external_ids of a switch, if that is there.
func (n *NB) marks(ctx context.Context, key string) (there bool, marks map[string]string, err error) {
	switches, err := ovndb.ReadByKey[nb.LogicalSwitch](ctx, n.db, nb.LogicalSwitchTable, []string{key}, "external_ids")
	if err != nil || len(switches) == 0 {
		return false, nil, err
	}
	return true, switches[0].ExternalIDs, nil
}

// accepted asserts that the network's switch is there (a mutation of one that is gone "succeeds", and the port's row is
// collected), and that it takes ports of this NAD with this configuration; of a node's part of a layer3 network also that
// it has these blocks.
func accepted(n *netmodel.Network) ovsdb.Operation {
	marks := map[string]string{ovndb.AcceptedPrefix + n.NAD(): n.Revision()}
	if n.Node != "" {
		marks[ovndb.BlocksKey] = n.NodeSubnetsText()
	}
	op := ovndb.Present(nb.LogicalSwitchTable, ovndb.SwitchKey(n.SwitchName()))
	op.Where = append(op.Where, ovsdb.NewCondition("external_ids", ovsdb.ConditionIncludes, ovndb.Map(marks)))
	return op
}

// AwaitNetwork waits for a network that the controller is about to make from a NAD. The error is a *NotAccepted when the network
// is another one than the NAD says.
func (n *NB) AwaitNetwork(ctx context.Context, w *Request) error {
	e := &ensure{NB: n}
	err := e.awaitAccepted(ctx, w)
	if err == nil && e.waited { // what has come of it
		err = e.awaitAccepted(ctx, w)
	}
	return err
}

// awaitAccepted finds out why a network does not take the port, and waits once for one that the controller is about
// to make.
func (e *ensure) awaitAccepted(ctx context.Context, w *Request) error {
	n := w.Network
	if n.Node != "" {
		return &NodeSubnetChanged{Network: n.ID(), Node: n.Node}
	}
	there, marks, err := e.marks(ctx, ovndb.SwitchKey(n.ID()))
	if err != nil {
		return err
	}
	switch marks[ovndb.AcceptedPrefix+n.NAD()] {
	case "":
	case n.Revision():
		return nil // since just now
	default:
		return &NotAccepted{NAD: n.NAD(), Config: marks[ovndb.ConfigKey]}
	}
	if e.waited {
		return notThere(w, there)
	}
	e.waited = true
	wait := accepted(n)
	ms := int(networkWait.Milliseconds())
	wait.Timeout = &ms
	_, err = e.db.Transact(ctx, []ovsdb.Operation{wait})
	if ctx.Err() != nil {
		return notThere(w, there)
	}
	if _, refused := errors.AsType[*ovndb.Refused](err); refused {
		return nil // the next attempt looks again, and says so
	}
	return err
}

func notThere(w *Request, there bool) error {
	n := w.Network
	if w.Refusal != "" {
		return conf.Errorf(conf.CodeTryAgain, "correct the NetworkAttachmentDefinition", "network %s: refused: %s", n.NAD(), w.Refusal)
	}
	if there {
		return conf.Errorf(conf.CodeTryAgain, "the NetworkAttachmentDefinition's annotation "+netmodel.NetworkStateAnnotation+" says why",
			"network %s takes no ports of NetworkAttachmentDefinition %s", n.ID(), n.NAD())
	}
	return conf.Errorf(conf.CodeTryAgain, "ovn-multinet-controller makes it from the NetworkAttachmentDefinition: is it running, what does its log say?",
		"network %s has no logical switch yet", n.ID())
}
