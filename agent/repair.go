package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nodesubnet"
	"github.com/ovn-multinet/ovn-multinet/ovnport"
	"github.com/ovn-multinet/ovn-multinet/source"
)

// repairer restores what the databases have lost of sandboxes that run: port rows of NB, after a backup was restored
// there or rows were deleted by hand, and OVS ports, after br-int was made anew. The plugin's journal says what each
// sandbox had.
type repairer struct {
	*node
	// reported is why ports cannot be restored, as the Events of their pods say: by container ID, by port name.
	reported map[string]map[string]string
	// due is when the rows of a sandbox are compared with NB again, by container ID.
	due map[string]time.Time
	// all has the next pass compare the rows of all sandboxes.
	all atomic.Bool
}

func newRepairer(n *node) *repairer {
	return &repairer{node: n, reported: map[string]map[string]string{}, due: map[string]time.Time{}}
}

// comparePeriod is the shortest time after which a pass compares the rows of a sandbox with NB again without a reason.
// A lost claim gives no other reason. The longest time is twice as long: a random part spreads the sandboxes of all
// nodes over the passes.
const comparePeriod = 20 * time.Minute

// mustCompare reports whether the pass compares the rows of a sandbox with NB: when it sees the sandbox first, when
// flows are missing, because ovn-controller removes the flows of a port whose row is gone, when rows were lost in the
// last pass, and otherwise once in a comparePeriod.
func (r *repairer) mustCompare(m *sandboxState) bool {
	next, known := r.due[m.ContainerID]
	if !known || len(r.reported[m.ContainerID]) > 0 || time.Now().After(next) {
		return true
	}
	had := 0
	if e := m.entries[0]; e.Plan != nil {
		had = len(e.Settled().Interfaces)
	}
	notInstalled := func(p ovnport.OwnedOVSPort) bool { return !p.Installed }
	return len(m.ports) != had || len(m.ovsPorts) != had || slices.ContainsFunc(m.ovsPorts, notInstalled)
}

// pass restores what is missing of the sandboxes that the reconcile pass found alive. pending says that a network is
// not accepted yet, or that a database refused because rows had changed: another pass soon finds out more.
func (r *repairer) pass(ctx context.Context, all []*sandboxState) (pending bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, repairTimeout)
	defer cancel()
	alive := map[string]bool{}
	if r.all.Swap(false) {
		clear(r.due)
	}
	var errs []error
	for _, m := range all {
		if m.why != "" || len(m.links) == 0 || len(m.entries) != 1 {
			continue
		}
		alive[m.ContainerID] = true
		if !r.mustCompare(m) {
			continue
		}
		soon, err := r.repair(ctx, m)
		pending = pending || soon
		if err != nil {
			errs = append(errs, fmt.Errorf("sandbox %.12s: %w", m.ContainerID, err))
		}
		delete(r.due, m.ContainerID)
		if err == nil && !soon {
			r.due[m.ContainerID] = time.Now().Add(comparePeriod + rand.N(comparePeriod))
		}
	}
	maps.DeleteFunc(r.due, func(container string, _ time.Time) bool { return !alive[container] })
	maps.DeleteFunc(r.reported, func(container string, _ map[string]string) bool { return !alive[container] })
	lost := 0
	for _, ports := range r.reported {
		lost += len(ports)
	}
	r.metrics.lost.Set(float64(lost))
	return pending, errors.Join(errs...)
}

// repairTimeout bounds one pass: hundreds of ports, one transaction each.
const repairTimeout = 2 * releaseTimeout

// repair restores what one sandbox has lost. What the Event of a port says stays valid until repair learns
// something new about this port.
func (r *repairer) repair(ctx context.Context, m *sandboxState) (pending bool, err error) {
	unlock, err := r.sandboxes.take(ctx, m.ContainerID)
	if err != nil {
		return false, err
	}
	defer unlock()
	// A DEL that began meanwhile holds the plugin's lock of the entry, or has a pending release.
	if r.busy(m.ContainerID) || r.releasing(m.ContainerID) {
		return false, nil
	}
	interfaces, err := r.interfaces(&m.entries[0].Sandbox)
	if err != nil || len(interfaces) == 0 {
		return false, err
	}
	pod, err := r.source.Pod(ctx, m.Namespace, m.Pod, m.UID)
	if err != nil || !pod.Is(m.UID) {
		return false, err
	}
	settings, err := r.ovs.Settings(ctx)
	if err != nil {
		return false, err
	}
	o := ovnport.Owner{
		Namespace: m.Namespace, Pod: m.Pod, UID: cmp.Or(m.UID, pod.UID), Sandbox: m.ContainerID,
		Node: r.conf.NodeName, Chassis: settings.Chassis,
	}
	var errs []error
	incomplete, err := r.nb.Incomplete(ctx, m.ContainerID, portsOf(interfaces))
	if err != nil {
		return false, err
	}
	before, reported := r.reported[m.ContainerID], map[string]string{}
	r.reported[m.ContainerID] = reported
	for i := range interfaces {
		n := &interfaces[i]
		if !incomplete[n.Port.Name] {
			continue
		}
		why, known := before[n.Port.Name]
		if known {
			reported[n.Port.Name] = why
		}
		err := r.restore(ctx, o, n, interfaces)
		_, taken := errors.AsType[*ovnport.InUse](err)
		_, raced := errors.AsType[*ovndb.Refused](err)
		if raced {
			r.profiles.clear() // the operator may have made a port group again
		}
		switch {
		case err == nil:
			delete(incomplete, n.Port.Name)
			delete(reported, n.Port.Name)
		case errors.Is(err, errNotAccepted), errors.Is(err, nodesubnet.ErrNotAccepted), raced:
			pending = true
		case errors.Is(err, ovnport.ErrSuperseded):
			delete(reported, n.Port.Name)
		case taken, errors.Is(err, ovnport.ErrNetworkChanged), errors.Is(err, errNoPortGroup):
			reported[n.Port.Name] = err.Error()
			if why != err.Error() {
				r.tell(o, n, err)
			}
		default:
			errs = append(errs, fmt.Errorf("interface %s: %w", n.Name, err))
		}
	}
	whole := slices.DeleteFunc(interfaces, func(i agentapi.Interface) bool { return incomplete[i.Port.Name] })
	errs = append(errs, r.addOVSPorts(ctx, o, m.ovsPorts, whole))
	return pending, errors.Join(errs...)
}

// interfaces are those that a sandbox has now, by its entry of the journal and the kernel's links. It needs the
// sandbox's lock: the list of the reconcile pass may be older than a DEL that has run to its end since. If a
// delegate's DEL failed, the entry is still there.
func (r *repairer) interfaces(s *agentapi.Sandbox) (has []agentapi.Interface, err error) {
	e, err := r.journal.Summary(s)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil || e.Plan == nil || e.FailedAttempts > 0 {
		return nil, err
	}
	for _, i := range e.Settled().Interfaces {
		there, err := linkThere(agentapi.HostVeth(s.ContainerID, i.Name))
		if err != nil {
			return nil, err
		}
		if there && i.Port.UUID != "" {
			has = append(has, i)
		}
	}
	return has, nil
}

// errNotAccepted says that NB does not have a network of the port now: the controller is about to make it again, or
// refuses it.
var errNotAccepted = errors.New("the network is not accepted now")

// restore inserts the rows of one port again.
func (r *repairer) restore(
	ctx context.Context, o ovnport.Owner, n *agentapi.Interface, all []agentapi.Interface,
) error {
	network, err := r.network(ctx, n, all)
	if err != nil {
		return err
	}
	mac, err := net.ParseMAC(n.MAC)
	if err != nil {
		return err
	}
	membership, err := r.restoredPolicy(ctx, o, network.ID())
	if err != nil {
		return err
	}
	profiles, err := r.profiles.again(ctx, n.Port.Groups)
	if err != nil {
		return err
	}
	request := ovnport.Request{Interface: n.Name, Network: network, IPs: n.Addresses, MAC: mac, Policy: membership,
		Profiles: profiles, IPAMClaim: ovnport.IPAMClaimOf(n.Port.Name)}
	had := ovnport.Port{UUID: n.Port.UUID, Name: n.Port.Name, Claims: n.Port.Claims}
	err = r.nb.Restore(ctx, o, request, had, func(ctx context.Context, older ovnport.Owner) error {
		return r.mayTakeOver(ctx, &o, &older)
	})
	if err != nil {
		return err
	}
	r.metrics.restored.WithLabelValues("nb").Inc()
	r.log.Warn("a port of a running pod was missing in OVN's Northbound database and was inserted again",
		"pod", o.Namespace+"/"+o.Pod, "interface", n.Name, "network", n.Network, "containerID", o.Sandbox)
	r.source.Event(podOfOwner(o), source.Normal, "PortRestored", fmt.Sprintf("interface %s: "+
		"its port was missing in OVN's Northbound database and was inserted again, with the same addresses", n.Name))
	return nil
}

// restoredPolicy returns the groups of a port that is inserted again, as NB has them now.
func (r *repairer) restoredPolicy(ctx context.Context, o ovnport.Owner, network string) (ovnport.Policy, error) {
	if err := r.policies.read(ctx, network, o.Namespace); err != nil {
		return ovnport.Policy{}, err
	}
	if r.policies.of(network, o.Namespace) == nil {
		return ovnport.Policy{}, nil
	}
	pod, err := r.source.Pod(ctx, o.Namespace, o.Pod, o.UID)
	if err != nil {
		return ovnport.Policy{}, err
	}
	membership, _, err := r.policyOf(ctx, network, pod) // the pod runs: its port does not wait for a group
	return membership, err
}

// mayTakeOver lets a sandbox have its row back from an older owner: from a sandbox of the same pod that this node has
// no more, and from another pod of the name if the API server says that the sandbox's pod is the live one. The copy
// of the pods would not do: on a node that has lost the API server, the copy has a pod that was made again on another
// node since.
func (r *repairer) mayTakeOver(ctx context.Context, o, older *ovnport.Owner) error {
	if older.UID == o.UID && (older.Node != o.Node || r.journal.HasContainer(older.Sandbox)) {
		return ovnport.ErrSuperseded
	}
	if err := r.node.mayTakeOver(ctx, o, older); err != nil {
		return fmt.Errorf("%w: %w", ovnport.ErrSuperseded, err)
	}
	return nil
}

// network returns the accepted network of an interface, as this node has it. If NB lost this node's subnets of a
// layer3 network, the node gets those again that contain the pod's addresses.
func (r *repairer) network(
	ctx context.Context, n *agentapi.Interface, all []agentapi.Interface,
) (*netmodel.Network, error) {
	network, err := r.acceptedNetwork(ctx, n.Network)
	if err != nil || network.Topology != netmodel.Layer3 {
		return network, err
	}
	var has []netip.Addr
	for _, other := range all {
		for _, p := range other.Addresses {
			if other.Network == n.Network {
				has = append(has, p.Addr())
			}
		}
	}
	r.subnets.forget(network.ID())
	return r.subnets.get(ctx, network, has...)
}

// acceptedNetwork returns the network of a NAD, "namespace/name", as NB has accepted it.
func (r *repairer) acceptedNetwork(ctx context.Context, nad string) (*netmodel.Network, error) {
	namespace, name, _ := strings.Cut(nad, "/")
	def, err := r.source.NAD(ctx, namespace, name)
	if errors.Is(err, netmodel.ErrNotFound) {
		return nil, fmt.Errorf("network %s: %w", nad, errNotAccepted)
	}
	if err != nil {
		return nil, err
	}
	id, err := def.NetworkID()
	if err != nil || id == "" {
		id = nad // somebody spoilt the NAD since
	}
	config, err := r.nb.Accepted(ctx, id, nad)
	if err != nil {
		return nil, err
	}
	if config == "" {
		return nil, fmt.Errorf("network %s: %w", nad, errNotAccepted)
	}
	return netmodel.ParseAccepted(namespace, name, []byte(config))
}

// tell says that a port is lost, and why.
func (r *repairer) tell(o ovnport.Owner, n *agentapi.Interface, why error) {
	if errors.Is(why, errNoPortGroup) { // the port may still exist, without the ACLs of the group
		r.log.Error("a port of a running pod has lost a port group of its security profiles",
			"pod", o.Namespace+"/"+o.Pod, "interface", n.Name, "network", n.Network, "containerID", o.Sandbox, "err", why)
		r.source.Event(podOfOwner(o), source.Warning, "ProfileLost", fmt.Sprintf("interface %s on network %s: "+
			"its security profiles need a %v; ask the operator to create it again", n.Name, n.Network, why))
		return
	}
	r.log.Error("a port of a running pod is missing in OVN's Northbound database and cannot be inserted again",
		"pod", o.Namespace+"/"+o.Pod, "interface", n.Name, "network", n.Network, "containerID", o.Sandbox, "err", why)
	r.source.Event(podOfOwner(o), source.Warning, "PortLost", fmt.Sprintf(
		"interface %s is cut off from network %s: its port is missing in OVN's Northbound database, and %v; "+
			"delete the pod, so that it is made again",
		n.Name, n.Network, why))
}

// addOVSPorts adds the OVS ports that Open vSwitch has lost, of interfaces whose rows NB has. An ADD may have added
// those that are not in the list since, so Open vSwitch is asked again for them.
func (r *repairer) addOVSPorts(
	ctx context.Context, o ovnport.Owner, there []ovnport.OwnedOVSPort, interfaces []agentapi.Interface,
) error {
	var missing []ovnport.OVSPort
	for i := range interfaces {
		ovsPort := ovsPortOf(o.Sandbox, &interfaces[i])
		if !slices.ContainsFunc(there, func(p ovnport.OwnedOVSPort) bool { return p.HostVeth == ovsPort.HostVeth }) {
			missing = append(missing, ovsPort)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	restored, err := r.ovs.Restore(ctx, o, missing, r.supersedes(&o))
	if err != nil || restored == 0 {
		return err
	}
	r.metrics.restored.WithLabelValues("ovs").Add(float64(restored))
	r.log.Warn("OVS ports of a running pod were missing and were added again",
		"pod", o.Namespace+"/"+o.Pod, "ports", restored, "containerID", o.Sandbox)
	return nil
}

func ovsPortOf(containerID string, i *agentapi.Interface) ovnport.OVSPort {
	return ovnport.OVSPort{
		HostVeth: agentapi.HostVeth(containerID, i.Name), PortUUID: i.Port.UUID, PortName: i.Port.Name, MAC: i.MAC,
	}
}

func portsOf(interfaces []agentapi.Interface) []ovnport.Port {
	ports := make([]ovnport.Port, 0, len(interfaces))
	for i := range interfaces {
		ports = append(ports, portOf(&interfaces[i]))
	}
	return ports
}

func portOf(i *agentapi.Interface) ovnport.Port {
	mac, _ := net.ParseMAC(i.MAC)
	return ovnport.Port{
		UUID: i.Port.UUID, Name: i.Port.Name, Interface: i.Name, MAC: mac, Addresses: i.Addresses,
		Claims: i.Port.Claims, Switch: i.Port.Switch, Groups: groupsOf(&i.Port),
	}
}

func podOfOwner(o ovnport.Owner) *netmodel.Pod {
	return &netmodel.Pod{Namespace: o.Namespace, Name: o.Pod, UID: o.UID}
}
