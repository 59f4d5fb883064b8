package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ovn-multinet/ovn-multinet/agent/probe"
	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/nad"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovnport"
	"github.com/ovn-multinet/ovn-multinet/source"
)

// conflictTimeout bounds the write of a conflict into NB.
const conflictTimeout = 10 * time.Second

// probeOf says whether the addresses of an interface are searched for. On an overlay network NB decides who has an
// address, and no other host is there.
func probeOf(n *netmodel.Network, addresses []netip.Prefix) *agentapi.Probe {
	if n.Topology != netmodel.Localnet || len(addresses) == 0 {
		return nil
	}
	return &agentapi.Probe{Wait: n.ConflictWait.Milliseconds()}
}

// errNoWait refuses a network whose ADDs wait for other hosts, if the plugin is too old to open the sockets.
func errNoWait(at *nad.Attachment) error {
	return conf.Errorf(conf.CodeTryAgain, otherVersions,
		"interface %s: network %s: addressConflictWait: the plugin of this node does not serve it",
		at.Interface, at.Network.ID())
}

// addressProbes are the searches for other hosts that use the addresses of one pod.
type addressProbes struct {
	agent *Agent
	pod   *netmodel.Pod
	owner ovnport.Owner
	list  []addressProbe
}

// addressProbe is the search on one interface.
type addressProbe struct {
	iface  *agentapi.Interface
	socket *os.File
}

func (p *addressProbe) waits() bool { return p.iface.Probe.Wait > 0 }

// newAddressProbes takes over the sockets that the plugin sent. An ADD that has to wait is refused without them.
func (a *Agent) newAddressProbes(
	r *agentapi.BindRequest, pod *netmodel.Pod, owner ovnport.Owner, sockets []*os.File,
) (*addressProbes, error) {
	all := &addressProbes{agent: a, pod: pod, owner: owner}
	for i := range r.Plan.Interfaces {
		if iface := &r.Plan.Interfaces[i]; iface.Probe != nil {
			all.list = append(all.list, addressProbe{iface: iface})
		}
	}
	if len(sockets) == len(all.list) {
		for i, s := range sockets {
			all.list[i].socket = s
		}
		return all, nil
	}
	a.closeSockets(sockets)
	for _, p := range all.list {
		if p.waits() {
			return nil, conf.Errorf(conf.CodeTryAgain, "the plugin's log says why; the ADD succeeds when it sends them",
				"interface %s: network %s: addressConflictWait: the plugin sent %d sockets to search for other hosts, not %d",
				p.iface.Name, p.iface.Network, len(sockets), len(all.list))
		}
	}
	all.list = nil
	return all, nil
}

// closeSockets closes sockets without a wait for the kernel.
func (a *Agent) closeSockets(sockets []*os.File) {
	if len(sockets) > 0 && !a.background.start(func(context.Context) { agentapi.CloseSockets(sockets) }) {
		agentapi.CloseSockets(sockets)
	}
}

// close closes the sockets of the searches that were not begun.
func (a *addressProbes) close() {
	var sockets []*os.File
	for _, p := range a.list {
		sockets = append(sockets, p.socket)
	}
	a.list = nil
	a.agent.closeSockets(sockets)
}

// await searches on the networks whose ADDs wait. The first conflict is an error.
func (a *addressProbes) await(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, p := range a.list {
		if !p.waits() {
			continue
		}
		g.Go(func() (err error) {
			defer a.agent.catch(&err)
			if err := a.awaitPhysical(ctx, p); err != nil {
				return fmt.Errorf("interface %s: network %s: %w", p.iface.Name, p.iface.Network, err)
			}
			found, err := a.search(ctx, p, probe.Within(time.Duration(p.iface.Probe.Wait)*time.Millisecond))
			if len(found) > 0 {
				return conf.Errorf(conf.CodeInUse, "give that host another address, or put the address into excludeSubnets of the "+
					"network; without the network's addressConflictWait the pod starts with a Warning",
					"interface %s: network %s: %s", p.iface.Name, p.iface.Network, sentence(found))
			}
			if err != nil {
				return conf.Errorf(conf.CodeTryAgain, "the search must end before the pod may start, by the network's "+
					"addressConflictWait", "interface %s: network %s: search for other hosts with its addresses: %w",
					p.iface.Name, p.iface.Network, err)
			}
			return nil
		})
	}
	return g.Wait()
}

// awaitPhysical waits until the node has the port to the physical network, so that the three questions do not all come
// before it. Only networks with the ID of their NAD have ADDs that wait.
func (a *addressProbes) awaitPhysical(ctx context.Context, p addressProbe) error {
	ctx, cancel := context.WithTimeout(ctx, flowsTimeout)
	defer cancel()
	return a.agent.ovs.AwaitPhysical(ctx, p.iface.Network)
}

// start begins the other searches, which no ADD waits for. Their results are an Event and a note in NB.
func (a *addressProbes) start() {
	var rest []addressProbe
	for _, p := range a.list {
		if p.waits() || !a.agent.background.start(func(ctx context.Context) { a.run(ctx, p) }) {
			rest = append(rest, p)
		}
	}
	a.list = rest
}

// run is one search in the background.
func (a *addressProbes) run(ctx context.Context, p addressProbe) {
	defer p.socket.Close()
	var err error
	defer a.agent.catch(&err)
	found, err := a.search(ctx, p, probe.Unhurried)
	if len(found) == 0 { // also if the pod has ended meanwhile, with its interface
		return
	}
	a.agent.source.Event(a.pod, source.Warning, "AddressConflict", fmt.Sprintf("interface %s on network %s: %s; give "+
		"that host another address, or put the address into excludeSubnets of the network and recreate the pod",
		p.iface.Name, p.iface.Network, sentence(found)))
	var note []ovnport.Conflict
	for _, c := range found {
		note = append(note, ovnport.Conflict(c))
	}
	late, cancel := context.WithTimeout(ctx, conflictTimeout)
	defer cancel()
	writeErr := a.agent.nb.NoteConflicts(late, a.owner.Sandbox, p.iface.Port.UUID, note)
	if _, gone := errors.AsType[*ovndb.Refused](writeErr); writeErr != nil && !gone {
		a.agent.log.Warn("kubectl multinet does not show the address conflict of a pod's port",
			"pod", a.owner.Namespace+"/"+a.owner.Pod, "interface", p.iface.Name, "err", writeErr)
	}
}

// search searches on one interface.
func (a *addressProbes) search(
	ctx context.Context, p addressProbe, s probe.Schedule,
) (found []probe.Conflict, err error) {
	mac, err := net.ParseMAC(p.iface.MAC)
	if err != nil {
		return nil, err
	}
	var addrs []netip.Addr
	for _, address := range p.iface.Addresses {
		addrs = append(addrs, address.Addr())
	}
	found, err = probe.Run(ctx, p.socket, mac, addrs, s)
	result := searchedFree
	switch {
	case len(found) > 0:
		result = searchedConflict
	case err != nil:
		result = searchedFailed
	}
	for _, c := range found {
		a.agent.used.add(p.iface.Network, c.Addr)
	}
	a.agent.metrics.searches.WithLabelValues(result).Inc()
	a.agent.log.Debug("searched for other hosts that use the addresses", "pod", a.owner.Namespace+"/"+a.owner.Pod,
		"containerID", a.owner.Sandbox, "interface", p.iface.Name, "result", result, "err", err)
	return found, err
}

// The results of a search, in the metric.
const (
	searchedFree     = "free"
	searchedConflict = "conflict"
	searchedFailed   = "failed"
)

// sentence says which hosts use the addresses.
func sentence(found []probe.Conflict) string {
	var words []string
	for _, c := range found {
		words = append(words, fmt.Sprintf("address %s is used by another host, with MAC %s", c.Addr, c.MAC))
	}
	return strings.Join(words, ", ")
}
