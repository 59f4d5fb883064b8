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
	"time"

	"github.com/ovn-multinet/ovn-multinet/conf"
)

// Version is the protocol's. Each side understands its own and the one before, and says which it speaks in every
// message.
const Version = 1

// The operations that a plugin asks its agent for.
const (
	OpPlan       = "plan"    // PlanRequest → Plan: ports are written, nothing is wired
	OpBind       = "bind"    // BindRequest → nothing: host ends are plugged, flows are there, status is written
	OpRelease    = "release" // Release → Released: ports and plugs are taken away
	OpCheck      = "check"   // CheckRequest → nothing: ports and plugs are as planned
	OpStatus     = "status"  // StatusRequest → nothing: the node can take ports now
	OpFailedDELs = "left"    // FailedDELsRequest → FailedDELs: an operator asks which delegates would not go
	OpGC         = "gc"      // GCRequest → GCResult: an operator asks what is left of containers that are gone, or has it taken away
	OpForget     = "forget"  // ForgetRequest → FailedDEL: an operator gives those of a container up; of all, → FailedDELs
)

// Sandbox says for whom a plugin was called. Every message carries it whole, so that an agent that was restarted
// in between can serve it.
type Sandbox struct {
	ContainerID string `json:"containerID"`
	Interface   string `json:"interface"` // the primary one, CNI_IFNAME
	Conflist    string `json:"conflist"`  // its name
	Namespace   string `json:"namespace"`
	Pod         string `json:"pod"`
	UID         string `json:"uid,omitempty"` // empty with runtimes that do not tell
}

// ID names the sandbox's attachment in files: a container ID has no "@" (CNI specification, section 2).
func (s *Sandbox) ID() string { return s.ContainerID + "@" + s.Interface }

// PlanRequest asks for a plan.
type PlanRequest struct {
	Sandbox
	// Annotations are the pod's that concern us, as they were when the sandbox was made. nil: the runtime does not
	// hand them, the agent is to look.
	Annotations map[string]string `json:"annotations"`
	// AllowedDelegates are the plugins that the node's conflist lets us run. nil: the plugin, an older one, does
	// not say.
	AllowedDelegates []string `json:"allowedDelegates"`
	// Sharing: the plugin reads plans whose delegates share a conflist. Older plugins do not say so.
	Sharing bool `json:"sharing,omitempty"`
	// AllowedIPAM are the plugins that it lets those run for addresses. nil: the plugin, an older one, knows one
	// list for both, and no plugin may be run for addresses.
	AllowedIPAM []string `json:"allowedIPAM"`
	// Draining: the node gives no networks any more.
	Draining bool `json:"draining,omitempty"`
}

// Draining is the answer to a pod with networks on a node that gives none any more: the plugin's if it knows the
// annotations, the agent's if not.
func Draining() error {
	return conf.Errorf(conf.CodeTryAgain, "let the pod run on another node, or remove its annotation",
		"ovn-multinet is being uninstalled from this node, which gives no networks any more")
}

// Plan is what to wire for one pod.
type Plan struct {
	Interfaces []Interface `json:"interfaces"`
	// Delegates are attachments that other CNI plugins make, after the interfaces and in this order.
	Delegates []Delegate `json:"delegates,omitempty"`
	// Default moves the pod's default routes; nil: they stay.
	Default *Default `json:"default,omitempty"`
	// Routes are put in when all interfaces are there.
	Routes []Route `json:"routes,omitempty"`
	// ChecksumOff: the integration bridge is a userspace datapath, to which a pod must not leave its checksums.
	ChecksumOff bool `json:"checksumOff,omitempty"`
	// apart: see Apart.
	apart bool
}

// Interface is one interface on an OVN network, and the port behind it.
type Interface struct {
	Name      string         `json:"name"`
	Network   string         `json:"network"`
	MAC       string         `json:"mac"`
	MTU       int            `json:"mtu"`
	Addresses []netip.Prefix `json:"addresses,omitempty"`
	Routes    []conf.Route   `json:"routes,omitempty"`
	Port      Port           `json:"port"`
	Position  int            `json:"position"` // in the pod's annotation
}

// Delegate is one attachment that other CNI plugins make.
type Delegate struct {
	Name    string `json:"name"` // of the interface
	Network string `json:"network"`
	// Conflist is the configuration, a list, as the plugins get it.
	Conflist json.RawMessage `json:"conflist"`
	// Shares is the place of an earlier delegate that has the same Conflist. It is set in the form on the wire alone.
	Shares *int `json:"shares,omitempty"`
	// Capabilities go into runtimeConfig, Args into CNI_ARGS.
	Capabilities map[string]json.RawMessage `json:"capabilities,omitempty"`
	Args         [][2]string                `json:"args,omitempty"`
	// Device is the one that the pod was given for it, nil: none.
	Device *Device `json:"device,omitempty"`
	// Position is the attachment's in the pod's annotation.
	Position int `json:"position"`
	// Warning is what the pod's owner is to hear of it.
	Warning string `json:"warning,omitempty"`
}

// Device is one of a device plugin's. Its ID is in the delegate's configuration already.
type Device struct {
	Resource string `json:"resource"`
	ID       string `json:"id"`
	// Info is what the device plugin says of it (Device Information Specification), nil: nothing.
	Info json.RawMessage `json:"info,omitempty"`
}

// Default is which attachment has the pod's default routes instead of the primary network.
type Default struct {
	Interface string `json:"interface"`
	// Gateways are one of a family. None: those that the attachment's own plugins make.
	Gateways []netip.Addr `json:"gateways,omitempty"`
	// Keep are networks that stay reachable by the primary network's gateway.
	Keep []netip.Prefix `json:"keep,omitempty"`
}

// Route is a route that a pod asks for.
type Route struct {
	conf.Route
	Interface string `json:"interface"`
}

// Port is the key of a port's row and those of its claims.
type Port struct {
	Name   string   `json:"name"`
	UUID   string   `json:"uuid"`
	Claims []string `json:"claims,omitempty"`
}

// BindRequest asks for the plan's host ends to be plugged.
type BindRequest struct {
	Sandbox
	Plan    Plan            `json:"plan"`    // an Outline
	Primary json.RawMessage `json:"primary"` // the primary network's CNI result, for the network-status
	// Results are the delegates' CNI results, in their order.
	Results []json.RawMessage `json:"results,omitempty"`
	// Devices are what their plugins say of their devices (Device Information Specification), null: nothing.
	Devices []json.RawMessage `json:"devices,omitempty"`
}

// Release says what a sandbox had. It is a message, and it is the file in release/ that outlives a missing agent:
// nothing in it can be executed.
type Release struct {
	Version int `json:"version"`
	Sandbox
	// Planned tells whether Ports is all there is. If not, the ADD ended before it heard of its ports, and they are
	// looked for by their owner.
	Planned bool   `json:"planned"`
	Ports   []Port `json:"ports,omitempty"`
	// Dropped are delegates that the plugin gave up without a DEL that succeeded, with the reason. The agent logs them.
	// They are in the message alone, not in the file.
	Abandoned []string `json:"dropped,omitempty"`
}

// ReleaseDir is the folder below the state folder that holds these files.
const ReleaseDir = "release"

// Released is the answer: whether all is gone now, or will be once the databases answer again.
type Released struct {
	Done bool `json:"done"`
}

// CheckRequest asks whether everything is as planned.
type CheckRequest struct {
	Sandbox
	Plan Plan `json:"plan"`
}

// FailedDELsRequest asks which attachments have delegates that would not go. It is for no sandbox.
type FailedDELsRequest struct{ Sandbox }

// FailedDELs is the answer.
type FailedDELs struct {
	Attachments []FailedDEL `json:"attachments"`
}

// FailedDEL is an attachment with delegates whose DEL failed. They are tried again, and hold their devices until then.
type FailedDEL struct {
	Sandbox
	Delegates      []FailedDelegate `json:"delegates"`
	FailedAttempts int              `json:"complaints"`
	LastError      string           `json:"complaint"`
	Since          time.Time        `json:"since"` // of the last attempt
	Forgotten      bool             `json:"forgotten,omitempty"`
}

// FailedDelegate is one of them.
type FailedDelegate struct {
	Interface string `json:"interface"`
	Network   string `json:"network"`
	Device    string `json:"device,omitempty"`
}

// GCRequest asks what is left of containers that are gone. It is for no sandbox.
type GCRequest struct {
	Sandbox
	DryRun bool `json:"dryRun"`
}

// GCResult is the answer.
type GCResult struct {
	Sandboxes []StaleSandbox `json:"containers"`
}

// StaleSandbox is what is left of a container that is gone.
type StaleSandbox struct {
	Sandbox
	Why string `json:"why"`
	// Ports are in NB, HostVeths in Open vSwitch, Delegates, "interface on network", in the plugin's journal, which
	// Journal tells of.
	Ports     []string `json:"ports,omitempty"`
	HostVeths []string `json:"hostEnds,omitempty"`
	Journal   bool     `json:"journal,omitempty"`
	Delegates []string `json:"delegates,omitempty"`
	// Taken: ports and host ends are gone now. Without, they go when they are seen again.
	Collected bool `json:"taken,omitempty"`
}

// Garbage is a container that is gone for good. Its entry in the plugin's journal is there, with what it had of
// other plugins, or its host ends are.
type Garbage struct {
	Sandbox
	HostVeths []string `json:"hostEnds,omitempty"`
}

// ForgetRequest gives the delegates of a container up. Its ID may be the beginning of one, its interface empty.
// With All it gives up those of every container, or of every container of the namespace if there is one; the answer
// is a FailedDELs.
type ForgetRequest struct {
	Sandbox
	All bool `json:"all,omitempty"`
}

// StatusRequest asks whether an ADD could be served now; its sandbox has a conflist alone.
type StatusRequest struct{ Sandbox }

// Check tells whether a plan is one that a plugin may carry out: the agent is not trusted with names that reach
// the kernel. primary is the interface that the pod has already.
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
	for _, d := range p.Delegates {
		if err := take(d.Name); err != nil {
			return err
		}
	}
	delete(seen, "lo")
	return p.checkRoutes(seen)
}

// checkRoutes sees that routes are well formed and go to interfaces of the plan.
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
	return r.Dst.IsValid() && r.GW.IsValid() && r.Dst.Addr().BitLen() == r.GW.BitLen() && !r.Dst.Addr().Is4In6() && !r.GW.Is4In6() && r.GW.Zone() == ""
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
	for _, r := range n.Routes {
		if !validRoute(r) {
			return errors.New("a route is not valid")
		}
	}
	return nil
}

// HostVethPrefix begins the name of every host end.
const HostVethPrefix = "mn"

// HostVeth is the name of the host end of a pod's interface: a hash, for the kernel has 15 characters.
func HostVeth(containerID, ifName string) string {
	sum := sha256.Sum256([]byte(containerID + "/" + ifName))
	return HostVethPrefix + hex.EncodeToString(sum[:6])
}

// ReadyMarker is the file beside the agent's socket that the agent makes when it is ready for the first time since
// boot: the folder is on a tmpfs.
func ReadyMarker(socket string) string { return filepath.Join(filepath.Dir(socket), "ready") }
