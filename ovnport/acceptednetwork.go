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

// networkPatience is how long an ADD waits for the controller to make a new network.
const networkPatience = 5 * time.Second

// NotAccepted says that the accepted configuration of a network is not that of the NAD: the NAD was changed, and the
// controller has not seen the change yet or has refused it. Nothing was written. Config is the accepted configuration,
// a spec.config.
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
	_, ids, err := n.acceptedIDs(ctx, network)
	if err != nil || ids[ovndb.AcceptedPrefix+nad] == "" {
		return "", err
	}
	return ids[ovndb.ConfigKey], nil
}

// acceptedIDs reads what the controller has accepted for a network, and whether the network has its switch.
func (n *NB) acceptedIDs(ctx context.Context, network string) (hasSwitch bool, ids map[string]string, err error) {
	results, err := n.db.Transact(ctx, []ovsdb.Operation{
		ovndb.Select(nb.LogicalSwitchTable, ovndb.SwitchKey(network), "_uuid"),
		ovndb.Select(nb.CoppTable, ovndb.AcceptedKey(network), "external_ids"),
	})
	if err != nil {
		return false, nil, err
	}
	rows, err := ovndb.Rows[nb.Copp](n.db, results[1])
	if err != nil || len(rows) == 0 {
		return len(results[0].Rows) > 0, nil, err
	}
	return len(results[0].Rows) > 0, rows[0].ExternalIDs, nil
}

// accepted asserts that the network takes ports of this NAD with this configuration, that its switch exists and, of a
// node switch, that it has this node subnet. Without the assertion that the switch exists, the mutation of a switch
// that is gone "succeeds", and the database deletes the row of the port.
func accepted(n *netmodel.Network) []ovsdb.Operation {
	sw := ovndb.Present(nb.LogicalSwitchTable, ovndb.SwitchKey(n.SwitchName()))
	if n.Node != "" {
		sw = ovndb.Holds(sw.Table, ovndb.SwitchKey(n.SwitchName()), "external_ids", ovndb.NodeSubnetsKey, n.NodeSubnetsText())
	}
	return []ovsdb.Operation{sw, ovndb.Holds(
		nb.CoppTable, ovndb.AcceptedKey(n.ID()), "external_ids", ovndb.AcceptedPrefix+n.NAD(), n.Revision())}
}

// AwaitNetwork waits until the controller has made a network from its NAD. The error is a *NotAccepted when the
// accepted configuration differs from the NAD.
func (n *NB) AwaitNetwork(ctx context.Context, request *Request) error {
	wait := networkWait{nb: n}
	err := wait.await(ctx, request)
	if err == nil && wait.done { // the network may still be missing
		err = wait.await(ctx, request)
	}
	return err
}

// networkWait waits for new networks, once.
type networkWait struct {
	nb   *NB
	done bool
}

// await finds out why a network does not take the port. It waits once for a network that does not exist yet.
func (w *networkWait) await(ctx context.Context, request *Request) error {
	n := request.Network
	if n.Node != "" {
		return &NodeSubnetChanged{Network: n.ID(), Node: n.Node}
	}
	hasSwitch, ids, err := w.nb.acceptedIDs(ctx, n.ID())
	if err != nil {
		return err
	}
	switch revision := ids[ovndb.AcceptedPrefix+n.NAD()]; {
	case revision == "":
	case revision != n.Revision():
		return &NotAccepted{NAD: n.NAD(), Config: ids[ovndb.ConfigKey]}
	case hasSwitch:
		return nil // it was accepted since the refusal
	}
	if w.done {
		return networkMissing(request, hasSwitch)
	}
	w.done = true
	guards := accepted(n)
	ms := int(networkPatience.Milliseconds())
	for i := range guards {
		guards[i].Timeout = &ms
	}
	_, err = w.nb.db.Transact(ctx, guards)
	if ctx.Err() != nil {
		return networkMissing(request, hasSwitch)
	}
	if _, refused := errors.AsType[*ovndb.Refused](err); refused {
		return nil // the next attempt reads the network again and returns the error
	}
	return err
}

func networkMissing(request *Request, hasSwitch bool) error {
	n := request.Network
	if request.Refusal != "" {
		return conf.Errorf(conf.CodeTryAgain, "correct the NetworkAttachmentDefinition",
			"network %s: refused: %s", n.NAD(), request.Refusal)
	}
	if hasSwitch {
		return conf.Errorf(conf.CodeTryAgain,
			"the NetworkAttachmentDefinition's annotation "+netmodel.NetworkStateAnnotation+" says why",
			"network %s takes no ports of NetworkAttachmentDefinition %s", n.ID(), n.NAD())
	}
	return conf.Errorf(conf.CodeTryAgain,
		"ovn-multinet-controller makes it from the NetworkAttachmentDefinition: is it running, what does its log say?",
		"network %s has no logical switch yet", n.ID())
}
