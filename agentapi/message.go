package agentapi

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"time"

	"github.com/ovn-multinet/ovn-multinet/conf"
)

// Version is the version of the protocol. Each side understands its own version and the previous one. Every message
// has a version.
const Version = 1

// The operations that a plugin requests from its agent.
const (
	OpPlan       = "plan"    // PlanRequest → Plan: writes the ports in NB
	OpBind       = "bind"    // BindRequest → nothing: adds the OVS ports, waits for the flows, writes the status
	OpRelease    = "release" // Release → Released: deletes the OVS ports, releases the ports
	OpCheck      = "check"   // CheckRequest → nothing: compares ports and OVS ports with the plan
	OpStatus     = "status"  // StatusRequest → nothing: reports whether an ADD could be served now
	OpFailedDELs = "left"    // FailedDELsRequest → FailedDELs: lists failed DELs for an operator
	OpGC         = "gc"      // GCRequest → GCResult: lists stale sandboxes for an operator, or deletes what they have
	OpForget     = "forget"  // ForgetRequest → FailedDEL, with All → FailedDELs: has delegates forgotten
	OpAlive      = "alive"   // nothing → nothing: the agent answers at once, whatever NB and Open vSwitch do
	// For pods that run: the program that attaches asks for work, and the plugin what to change of a sandbox.
	OpNextChange = "next-change" // NextChangeRequest → NextChange: waits for a sandbox whose networks are to change
	OpChange     = "change"      // ChangeRequest → Change: compares a sandbox with its pod's annotation
)

// Sandbox identifies the sandbox of a CNI call. Every message has all fields, so that an agent that was restarted
// between two messages can serve the second one.
type Sandbox struct {
	ContainerID string `json:"containerID"`
	Interface   string `json:"interface"` // the primary interface, CNI_IFNAME
	Conflist    string `json:"conflist"`  // the name of the conflist
	Namespace   string `json:"namespace"`
	Pod         string `json:"pod"`
	UID         string `json:"uid,omitempty"` // empty if the runtime does not pass it
}

// ID is the name of the sandbox in file names. A container ID contains no "@" (CNI specification, section 2).
func (s *Sandbox) ID() string { return s.ContainerID + "@" + s.Interface }

// PlanRequest asks for a plan.
type PlanRequest struct {
	Sandbox
	// Annotations are the pod's annotations for us, as they were when the sandbox was created. nil: the runtime does not
	// pass them, so the agent reads them.
	Annotations map[string]string `json:"annotations"`
	// AllowedDelegates are the plugins that the node's conflist allows us to run. nil: an older plugin sent the
	// request.
	AllowedDelegates []string `json:"allowedDelegates"`
	// Sharing: the plugin understands plans whose delegates share a conflist. Older plugins do not.
	Sharing bool `json:"sharing,omitempty"`
	// Chaining: the plugin understands plans with chained delegates. Older plugins do not.
	Chaining bool `json:"chaining,omitempty"`
	// AllowedIPAM are the IPAM plugins that the conflist allows those plugins to run. nil: an older plugin sent the
	// request; no IPAM plugin is allowed.
	AllowedIPAM []string `json:"allowedIPAM"`
	// Draining: ovn-multinet is being uninstalled from the node.
	Draining bool `json:"draining,omitempty"`
	// Probing: the plugin opens sockets for the interfaces with a Probe. Older plugins do not.
	Probing bool `json:"probing,omitempty"`
	// Present is the outline of what a running pod has: the plan is for the rest of its annotation. nil: the pod starts.
	Present *Plan `json:"present,omitempty"`
}

// Draining is the error for a pod with networks on a node from which ovn-multinet is being uninstalled. The plugin
// returns it if it knows the annotations. Otherwise the agent returns it.
func Draining() error {
	return conf.Errorf(conf.CodeTryAgain, "let the pod run on another node, or remove its annotation",
		"ovn-multinet is being uninstalled from this node, which gives no networks any more")
}

// Plan is what the plugin has to create for one pod.
type Plan struct {
	Interfaces []Interface `json:"interfaces"`
	// Delegates are the attachments that other CNI plugins make. They run in this order, after the interfaces exist.
	Delegates []Delegate `json:"delegates,omitempty"`
	// Default moves the pod's default routes; nil: they stay on the primary interface.
	Default *Default `json:"default,omitempty"`
	// Routes are added when all interfaces exist.
	Routes []Route `json:"routes,omitempty"`
	// ChecksumOff: the integration bridge has a userspace datapath, which does not complete the checksums of packets.
	ChecksumOff bool `json:"checksumOff,omitempty"`
	// apart is set by Apart.
	apart bool
}

// Interface is one interface on an OVN network, with its port.
type Interface struct {
	Name      string         `json:"name"`
	Network   string         `json:"network"`
	MAC       string         `json:"mac"`
	MTU       int            `json:"mtu"`
	Addresses []netip.Prefix `json:"addresses,omitempty"`
	Routes    []conf.Route   `json:"routes,omitempty"`
	// Table is the routing table for what the pod sends from the addresses of the interface; 0: the main table.
	// TableRoutes are its routes, beside those to the subnets of the addresses.
	Table       int          `json:"table,omitempty"`
	TableRoutes []conf.Route `json:"tableRoutes,omitempty"`
	// SharedRoutes are routes of an earlier interface on the network that also have a next hop by this one, at equal
	// cost. An older plugin ignores them.
	SharedRoutes []conf.Route `json:"sharedRoutes,omitempty"`
	// Probe: the agent asks whether another host uses the addresses of the interface; nil: it does not.
	Probe *Probe `json:"probe,omitempty"`
	// Gateways are the gateways of the addresses in the CNI result, for chained plugins.
	Gateways []netip.Addr `json:"gateways,omitempty"`
	Port     Port         `json:"port"`
	Position int          `json:"position"` // the index of the attachment in the pod's annotation
	// Digest is that of the pod's request, without its names: see nad.Request.Digest. Older programs wrote none.
	Digest string `json:"digest,omitempty"`
}

// Probe is the search for hosts on a physical network that use the addresses of a pod's interface.
type Probe struct {
	// Wait is how long the ADD waits for their answers, in milliseconds; 0: it does not wait.
	Wait int64 `json:"wait,omitempty"`
}

// Delegate is one attachment that other CNI plugins make, or that they complete.
type Delegate struct {
	Name    string `json:"name"` // the name of the interface
	Network string `json:"network"`
	// Chained: the interface is one of the plan's Interfaces, and the plugins get its CNI result as their prevResult.
	Chained bool `json:"chained,omitempty"`
	// Conflist is the configuration list.
	Conflist json.RawMessage `json:"conflist"`
	// Shares is the index of an earlier delegate with the same Conflist. Only the encoded form has it.
	Shares *int `json:"shares,omitempty"`
	// Capabilities go into runtimeConfig, Args into CNI_ARGS.
	Capabilities map[string]json.RawMessage `json:"capabilities,omitempty"`
	Args         [][2]string                `json:"args,omitempty"`
	// Device is the pod's device for this attachment; nil: there is none.
	Device *Device `json:"device,omitempty"`
	// Position is the index of the attachment in the pod's annotation, Digest that of the pod's request.
	Position int    `json:"position"`
	Digest   string `json:"digest,omitempty"`
	// Warning is a warning for the pod's owner.
	Warning string `json:"warning,omitempty"`
}

// Device is a device of a device plugin. The delegate's configuration already has its ID.
type Device struct {
	Resource string `json:"resource"`
	ID       string `json:"id"`
	// Info is the device information that the device plugin wrote; nil: there is none.
	Info json.RawMessage `json:"info,omitempty"`
}

// Default says which attachment gets the pod's default routes instead of the primary network.
type Default struct {
	Interface string `json:"interface"`
	// Gateways has at most one gateway of each family. If it is empty, the gateways are those of the default routes that
	// the attachment's own plugins make.
	Gateways []netip.Addr `json:"gateways,omitempty"`
	// Keep are destinations that stay reachable by the primary network's gateway.
	Keep []netip.Prefix `json:"keep,omitempty"`
}

// Route is a route that the pod's annotation requests.
type Route struct {
	conf.Route
	Interface string `json:"interface"`
}

func (r Route) String() string { return r.Route.String() + " dev " + r.Interface }

// Port names the row of a port, the rows of its claims and the row of its logical switch. Older versions did not name
// the switch.
type Port struct {
	Name   string   `json:"name"`
	UUID   string   `json:"uuid"`
	Claims []string `json:"claims,omitempty"`
	Switch string   `json:"switch,omitempty"`
	// Groups are the operator's port groups that the port is a member of by its security profiles.
	Groups []PortGroup `json:"groups,omitempty"`
}

// PortGroup is the row of a port group in NB. If the operator makes the group again, it has another key.
type PortGroup struct {
	UUID string `json:"uuid"`
	Name string `json:"name"`
}

// BindRequest asks the agent to add the OVS ports of a plan. With the message come packet sockets, one on each of the
// plan's interfaces with a Probe, in this order: the agent may not open any. An older plugin, or one that cannot, sends
// none.
type BindRequest struct {
	Sandbox
	Plan    Plan            `json:"plan"`    // the plan's Outline
	Primary json.RawMessage `json:"primary"` // the primary network's CNI result, for the network-status
	// Results are the CNI results of the delegates, in the order of the delegates.
	Results []json.RawMessage `json:"results,omitempty"`
	// Devices are the device information of each delegate; null: the delegate has none.
	Devices []json.RawMessage `json:"devices,omitempty"`
	// Running: the pod runs already, and Plan has only its new interfaces. The agent writes the network-status when the
	// journal has them.
	Running bool `json:"running,omitempty"`
}

// Release names the ports of a sandbox that the agent has to release. It is a message, and also the content of a file
// in release/, for an agent that does not answer now. It contains nothing that could be executed.
type Release struct {
	Version int `json:"version"`
	Sandbox
	// Planned reports whether Ports has all ports. If it does not, the ADD ended before it received its plan, and the
	// agent finds the ports by their owner.
	Planned bool   `json:"planned"`
	Ports   []Port `json:"ports,omitempty"`
	// Interfaces are the only ones whose ports and OVS ports are released, because the pod keeps the others; empty: all.
	// Only the message has them; the file does not.
	Interfaces []string `json:"interfaces,omitempty"`
	// Abandoned are the delegates that the plugin abandoned without a successful DEL, each with the reason. The agent
	// logs them. Only the message has them; the file does not.
	Abandoned []string `json:"dropped,omitempty"`
}

// ReleaseDir is the folder of the files of pending releases, below the state folder.
const ReleaseDir = "release"

// Released is the answer to a Release. Done reports whether everything is released now. If not, the agent releases the
// rest when the databases answer again.
type Released struct {
	Done bool `json:"done"`
}

// CheckRequest asks whether the ports and OVS ports are as the plan says.
type CheckRequest struct {
	Sandbox
	Plan Plan `json:"plan"`
	// Fault is what the plugin has found, as Fault describes it. The agent then compares nothing: it tells the pod's
	// owner. Older agents ignore the fault.
	Fault string `json:"fault,omitempty"`
	// Repaired is what the plugin has made again. The agent then compares nothing, and tells the pod's owner.
	Repaired string `json:"repaired,omitempty"`
}

// Fault describes the error of a CHECK for the pod's owner.
func Fault(err error) string {
	_, message, details := conf.Describe(err)
	if details != "" {
		message += "; " + details
	}
	return message
}

// FailedDELsRequest asks for the failed DELs of the node. It names no sandbox.
type FailedDELsRequest struct{ Sandbox }

// FailedDELs are the failed DELs of the node.
type FailedDELs struct {
	Attachments []FailedDEL `json:"attachments"`
}

// FailedDEL is a journal entry with delegates whose DEL failed. Later calls of the plugin try these DELs again. Until
// a DEL succeeds, the device of its delegate stays allocated.
type FailedDEL struct {
	Sandbox
	Delegates      []FailedDelegate `json:"delegates"`
	FailedAttempts int              `json:"complaints"`
	LastError      string           `json:"complaint"`
	Since          time.Time        `json:"since"` // the time of the last attempt
	Forgotten      bool             `json:"forgotten,omitempty"`
}

// FailedDelegate is a delegate of a FailedDEL.
type FailedDelegate struct {
	Interface string `json:"interface"`
	Network   string `json:"network"`
	Device    string `json:"device,omitempty"`
}

// GCRequest asks for the stale sandboxes of the node. Without DryRun, the agent also deletes what they have. The
// request names no sandbox.
type GCRequest struct {
	Sandbox
	DryRun bool `json:"dryRun"`
}

// GCResult are the stale sandboxes of the node.
type GCResult struct {
	Sandboxes []StaleSandbox `json:"containers"`
}

// StaleSandbox is a stale sandbox and what the node still has of it.
type StaleSandbox struct {
	Sandbox
	Why string `json:"why"`
	// Ports are in NB, HostVeths are in Open vSwitch. Journal reports whether the journal has an entry. Delegates are
	// the delegates of the entry, as "interface on network".
	Ports     []string `json:"ports,omitempty"`
	HostVeths []string `json:"hostEnds,omitempty"`
	Journal   bool     `json:"journal,omitempty"`
	Delegates []string `json:"delegates,omitempty"`
	// Collected: the ports and OVS ports are deleted. If not, a later reconcile pass deletes them.
	Collected bool `json:"taken,omitempty"`
}

// Garbage is what the plugin has to delete for a stale sandbox: the journal entry with its delegates, or, if the
// journal has lost the entry, the host-side veths.
type Garbage struct {
	Sandbox
	HostVeths []string `json:"hostEnds,omitempty"`
}

// ForgetRequest tells the plugin to forget the delegates of a sandbox with a failed DEL. The container ID may be
// shortened to its first characters, and the interface may be empty. With All, the request is for every such sandbox,
// or, if it names a namespace, for every such sandbox of this namespace. The answer to All is FailedDELs.
type ForgetRequest struct {
	Sandbox
	All bool `json:"all,omitempty"`
}

// StatusRequest asks whether an ADD could be served now. Its Sandbox has only a conflist.
type StatusRequest struct{ Sandbox }

// Check reports whether the plugin may carry out a plan. The plugin does not trust the agent with names that reach the
// kernel. primary is the pod's primary interface, which exists already.
func (p *Plan) Check(primary string) error {
	seen := map[string]bool{primary: true, "lo": true}
	take := func(name string) error {
		if err := conf.CheckInterfaceName(name); err != nil {
			return fmt.Errorf("plan: %w", err)
		}
		if seen[name] {
			return fmt.Errorf("plan: interface %q is taken", name)
		}
		seen[name] = true
		return nil
	}
	for i := range p.Interfaces {
		n := &p.Interfaces[i]
		if err := take(n.Name); err != nil {
			return err
		}
		if err := n.check(); err != nil {
			return fmt.Errorf("plan: interface %q: %w", n.Name, err)
		}
	}
	chained := map[string]bool{}
	for _, d := range p.Delegates {
		if d.Chained {
			if p.Interface(d.Name) == nil || chained[d.Name] {
				return fmt.Errorf("plan: interface %q is not one for chained plugins", d.Name)
			}
			chained[d.Name] = true
			continue
		}
		if err := take(d.Name); err != nil {
			return err
		}
	}
	delete(seen, "lo")
	return p.checkRoutes(seen)
}

// Interface returns the interface of this name on an OVN network; nil: there is none.
func (p *Plan) Interface(name string) *Interface {
	if i := slices.IndexFunc(p.Interfaces, func(i Interface) bool { return i.Name == name }); i >= 0 {
		return &p.Interfaces[i]
	}
	return nil
}

// HasChained reports whether chained plugins run on an interface.
func (p *Plan) HasChained(name string) bool {
	return slices.ContainsFunc(p.Delegates, func(d Delegate) bool { return d.Chained && d.Name == name })
}

// Attachments is the number of the pod's attachments.
func (p *Plan) Attachments() int {
	n := len(p.Interfaces)
	for i := range p.Delegates {
		if !p.Delegates[i].Chained {
			n++
		}
	}
	return n
}

// checkRoutes checks that the routes are well formed and use interfaces of the plan.
func (p *Plan) checkRoutes(interfaces map[string]bool) error {
	for _, r := range p.Routes {
		if !interfaces[r.Interface] || !validRoute(r.Route) {
			return fmt.Errorf("plan: the route to %s by %q is not valid", r.Dst, r.Interface)
		}
	}
	if p.Default == nil {
		return nil
	}
	if !interfaces[p.Default.Interface] {
		return fmt.Errorf("plan: the default routes go to interface %q, which is not there", p.Default.Interface)
	}
	for _, g := range p.Default.Gateways {
		if !g.IsValid() || g.Is4In6() || g.Zone() != "" {
			return errors.New("plan: a default gateway is not valid")
		}
	}
	for _, k := range p.Default.Keep {
		if !k.IsValid() || k.Addr().Is4In6() {
			return errors.New("plan: a network to keep on the primary interface is not valid")
		}
	}
	return nil
}

func validRoute(r conf.Route) bool {
	if r.Scope == conf.ScopeLink {
		return r.Dst.IsValid() && !r.Dst.Addr().Is4In6() && !r.GW.IsValid()
	}
	return r.Scope == 0 && r.Dst.IsValid() && r.GW.IsValid() && r.Dst.Addr().BitLen() == r.GW.BitLen() &&
		!r.Dst.Addr().Is4In6() && !r.GW.Is4In6() && r.GW.Zone() == ""
}

func (n *Interface) check() error {
	if mac, err := net.ParseMAC(n.MAC); err != nil || len(mac) != 6 || mac[0]&1 != 0 {
		return fmt.Errorf("MAC %q is not a unicast one of 6 bytes", n.MAC)
	}
	if n.MTU < 68 || n.MTU > 65535 {
		return fmt.Errorf("MTU %d is none", n.MTU)
	}
	for _, a := range n.Addresses {
		if !a.IsValid() || a.Addr().Is4In6() {
			return errors.New("an address is not valid")
		}
	}
	for _, g := range n.Gateways {
		if !g.IsValid() || g.Is4In6() || g.Zone() != "" {
			return errors.New("a gateway is not valid")
		}
	}
	for _, r := range slices.Concat(n.Routes, n.TableRoutes, n.SharedRoutes) {
		if !validRoute(r) {
			return errors.New("a route is not valid")
		}
	}
	if n.Table != 0 && (n.Table < FirstTable || n.Table > FirstTable+maxPosition) {
		return fmt.Errorf("table %d is none of ours", n.Table)
	}
	return nil
}

// FirstTable is the routing table of the first attachment in the pod's annotation. The next ones follow; there are at
// most maxPosition. The plugin sbr counts from 100.
const (
	FirstTable  = 7600
	maxPosition = 64
)

// HostVethPrefix is the beginning of the name of every host-side veth.
const HostVethPrefix = "mn"

// HostVeth is the name of the host-side veth of a pod's interface. It is a hash, because the kernel allows only 15
// characters.
func HostVeth(containerID, ifName string) string {
	sum := sha256.Sum256([]byte(containerID + "/" + ifName))
	return HostVethPrefix + hex.EncodeToString(sum[:6])
}

// ReadyMarker is the file that the agent creates next to its socket when it is ready for the first time since boot.
// The folder is on a tmpfs, so the file does not survive a boot.
func ReadyMarker(socket string) string { return filepath.Join(filepath.Dir(socket), "ready") }
