package nad

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/delegate/delegateconf"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
)

// Attachment is one further network of a pod: the request, and the network that its NAD describes. Network is set for
// an OVN network. Delegate is set for a network of other plugins, and for an OVN network with plugins behind ours.
type Attachment struct {
	Request
	Network  *netmodel.Network
	Delegate *Delegate
	// Resource is the resource whose device the attachment takes; "": none.
	Resource string
	// Refusal is the controller's reason against the network, for the error if the network does not exist.
	Refusal string
	// Routes are the network's routes, on the pod's first interface on the network: the kernel accepts a route once.
	Routes []conf.Route
}

// Rules are what an operator decides about attachments.
type Rules struct {
	// Isolated allows pods only the NADs of their own namespace and of the namespaces in Global.
	Isolated bool
	Global   []string
	// Allowed are the plugins that the pod's node allows; nil: the caller does not check them.
	Allowed []string
	// AllowedIPAM are the allowed plugins for addresses; nil: the caller does not check them.
	AllowedIPAM []string
	// Compatible passes ips and mac in CNI_ARGS if no plugin declares the capability.
	Compatible bool
}

// GetNAD returns a NAD, or netmodel.ErrNotFound.
type GetNAD = func(ctx context.Context, namespace, name string) (*netmodel.NAD, error)

// Resolve reads the NADs of the requests of a pod in the namespace, each once, and checks every request against its
// network. get returns netmodel.ErrNotFound for a NAD that does not exist.
func Resolve(ctx context.Context, namespace string, requests []Request, rules Rules, get GetNAD) ([]Attachment, error) {
	definitions := map[string]*definition{}
	attachments := make([]Attachment, 0, len(requests))
	for _, s := range requests {
		if err := rules.allow(namespace, &s); err != nil {
			return nil, fmt.Errorf("interface %s: %w", s.Interface, err)
		}
		def := definitions[s.String()]
		if def == nil {
			var err error
			if def, err = read(ctx, s, get); err != nil {
				return nil, fmt.Errorf("interface %s: %w", s.Interface, err)
			}
			definitions[s.String()] = def
		}
		a := Attachment{Request: s, Network: def.network, Refusal: def.refusal}
		if err := a.complete(def, &rules); err != nil {
			return nil, err
		}
		attachments = append(attachments, a)
		if err := CheckConfigsSize(attachments); err != nil {
			return nil, err
		}
	}
	if err := checkTogether(attachments); err != nil {
		return nil, err
	}
	return attachments, assignRoutes(attachments)
}

// ApplyNodeSubnets replaces each layer3 network by the view of the pod's node, and checks the request against that
// view. The function view returns it.
func ApplyNodeSubnets(attachments []Attachment, view func(*Attachment) (*netmodel.Network, error)) error {
	views := map[*netmodel.Network]*netmodel.Network{}
	for i := range attachments {
		a := &attachments[i]
		whole := a.Network
		if whole == nil || whole.Topology != netmodel.Layer3 {
			continue
		}
		if views[whole] == nil {
			v, err := view(a)
			if err != nil {
				return fmt.Errorf("interface %s: %w", a.Interface, err)
			}
			views[whole] = v
		}
		a.Network = views[whole]
		if err := a.check(); err != nil {
			return conf.Errorf(conf.CodeInvalidConfig, correctPod, "interface %s: %w", a.Interface, err)
		}
	}
	if len(views) == 0 {
		return nil
	}
	return assignRoutes(attachments)
}

// allow refuses a NAD of a namespace that the pod may not use.
func (r *Rules) allow(namespace string, s *Request) error {
	if !r.Isolated || s.Namespace == namespace || slices.Contains(r.Global, s.Namespace) {
		return nil
	}
	return conf.Errorf(conf.CodeNotAllowed,
		"use a network of the pod's own namespace, or ask the operator to list namespace "+s.Namespace+
			" in the chart's value agent.globalNamespaces (the agent's --global-namespaces)",
		"network %s is not for pods of namespace %s", s, namespace)
}

// complete checks the request against the network.
func (a *Attachment) complete(of *definition, rules *Rules) error {
	def := of.nad
	err := a.setResource(def)
	if err != nil {
		return fmt.Errorf("interface %s: %w", a.Interface, err)
	}
	if a.Network != nil {
		return a.completeOVN(of, rules)
	}
	if a.CNIArgs[profilesKey] != nil {
		return conf.Errorf(conf.CodeInvalidConfig, correctPod, "interface %s: cni-args: %s on network %s: "+
			"only ports of OVN networks have security profiles", a.Interface, profilesKey, &a.Request)
	}
	a.Delegate, err = of.delegate(&a.Request, rules.Compatible)
	if _, asked := errors.AsType[*notCapable](err); asked {
		return conf.Errorf(conf.CodeInvalidConfig,
			correctPod+", or declare it in the NetworkAttachmentDefinition if its plugin can do that",
			"interface %s: network %s: %w", a.Interface, &a.Request, err)
	}
	if err != nil {
		return fmt.Errorf("interface %s: %w", a.Interface, invalid(def, &a.Request, err))
	}
	return a.checkAllowed(rules)
}

// completeOVN checks the request against an OVN network, and the plugins behind ours in the network's list.
func (a *Attachment) completeOVN(of *definition, rules *Rules) (err error) {
	if a.Network.Chained != "" {
		if a.Delegate, err = of.chained(&a.Request); err != nil {
			return fmt.Errorf("interface %s: %w", a.Interface, invalid(of.nad, &a.Request, err))
		}
		if err := a.checkAllowed(rules); err != nil {
			return err
		}
	}
	if err := a.check(); err != nil {
		return conf.Errorf(conf.CodeInvalidConfig, correctPod, "interface %s: %w", a.Interface, err)
	}
	return nil
}

// checkAllowed refuses plugins that the pod's node does not allow.
func (a *Attachment) checkAllowed(rules *Rules) (err error) {
	for _, p := range a.Delegate.programs {
		if rules.Allowed != nil {
			err = delegateconf.CheckAllowed(p.Type, rules.Allowed)
		}
		if err == nil && rules.AllowedIPAM != nil {
			err = delegateconf.CheckAllowedIPAM(p.IPAM, rules.AllowedIPAM)
		}
		if err != nil {
			return fmt.Errorf("interface %s: network %s: %w", a.Interface, &a.Request, err)
		}
	}
	return nil
}

// resourceName matches the name of an extended resource (Kubernetes' qualified names: a DNS subdomain and a name).
var resourceName = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{0,252}/[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

// setResource sets the resource from the NAD, and checks the device that the pod requests against it.
func (a *Attachment) setResource(def *netmodel.NAD) error {
	switch {
	case def.Resource == "" && a.DeviceID == "":
	case def.Resource == "":
		return conf.Errorf(conf.CodeInvalidConfig,
			correctPod+", or name the resource in the NetworkAttachmentDefinition's annotation "+netmodel.ResourceNameAnnotation,
			"deviceID on network %s: it is a network of no resource, so no device of it is the pod's", &a.Request)
	case a.Network != nil:
		return conf.Errorf(conf.CodeInvalidConfig,
			"remove the annotation from the NetworkAttachmentDefinition, or make the network one of another plugin",
			"network %s: annotation %s: an OVN port takes no device", &a.Request, netmodel.ResourceNameAnnotation)
	case !resourceName.MatchString(def.Resource):
		return conf.Errorf(conf.CodeInvalidConfig, "correct the NetworkAttachmentDefinition's annotation",
			"network %s: annotation %s: %q is no resource like example.com/name",
			&a.Request, netmodel.ResourceNameAnnotation, clip(def.Resource))
	}
	a.Resource = def.Resource
	return nil
}

// invalid returns the error for an invalid configuration of a network, with the place of the configuration.
func invalid(def *netmodel.NAD, s *Request, err error) error {
	where, correct := "spec.config", correctNAD
	if def.File != "" {
		where, correct = def.File, "correct that file on the node"
	}
	return conf.Errorf(conf.CodeInvalidConfig, correct, "network %s: %s: %w", s, where, err)
}

// Hints for errors in texts of users.
const (
	correctPod = "correct the pod's annotation " + conf.NetworksAnnotation
	correctNAD = "correct spec.config of the NetworkAttachmentDefinition"
)

// assignRoutes assigns the routes of each network to the pod's first interface on the network. It refuses two networks
// with a route to the same destination, because the order of the networks would decide which route the pod uses.
func assignRoutes(attachments []Attachment) error {
	by := map[netip.Prefix]*Attachment{}
	done := map[string]bool{} // several NADs may describe one network
	for i := range attachments {
		a := &attachments[i]
		if a.Network == nil || done[a.Network.ID()] {
			continue
		}
		done[a.Network.ID()] = true
		for _, r := range a.Network.Routes {
			if other := by[r.Dst]; other != nil && other.Network.ID() != a.Network.ID() {
				return conf.Errorf(conf.CodeInvalidConfig, "take the route out of one of the two networks",
					"networks %s and %s both route %s", other.Network.ID(), a.Network.ID(), r.Dst)
			}
			by[r.Dst] = a
		}
		a.Routes = a.Network.Routes
	}
	return nil
}

// definition is a NAD that Resolve has read.
type definition struct {
	nad     *netmodel.NAD
	network *netmodel.Network // nil: a network of other plugins
	refusal string            // the controller's reason against the network
	plain   *Delegate         // of the first attachment that adds nothing to the configuration
}

// delegate returns the delegate of an attachment. All attachments that add nothing to the configuration share its text.
func (d *definition) delegate(s *Request, compatible bool) (*Delegate, error) {
	if len(s.CNIArgs) > 0 {
		return delegateOf(d.nad, s, compatible)
	}
	if d.plain != nil {
		return d.plain.again(s, compatible)
	}
	made, err := delegateOf(d.nad, s, compatible)
	if err == nil {
		d.plain = made
	}
	return made, err
}

// chained returns the plugins behind ours for an attachment. All attachments share the text.
func (d *definition) chained(s *Request) (*Delegate, error) {
	if d.plain != nil {
		return d.plain.again(s, false)
	}
	made, err := chainedOf(d.nad, d.network, s)
	if err == nil {
		d.plain = made
	}
	return made, err
}

func read(ctx context.Context, s Request, get GetNAD) (*definition, error) {
	def, err := get(ctx, s.Namespace, s.Name)
	if errors.Is(err, netmodel.ErrNotFound) {
		return nil, conf.Errorf(conf.CodeNetworkNotFound, "create the NetworkAttachmentDefinition, or "+correctPod,
			"network %s is not found", &s)
	}
	if err != nil {
		return nil, fmt.Errorf("network %s: %w", &s, err)
	}
	if def.Deleting {
		return nil, deleting(def, &s)
	}
	kind, err := def.Kind()
	if err != nil {
		return nil, invalid(def, &s, err)
	}
	if !conf.IsOVN(kind) {
		return &definition{nad: def}, nil
	}
	network, err := def.Network()
	if err != nil {
		return nil, err
	}
	known := &definition{nad: def, network: network}
	if state, ok := def.NetworkState(); ok && !state.Ready {
		known.refusal = state.Reason
	}
	return known, nil
}

// deleting is the error of a NAD that waits for its finalizers. The API server has no way back from there: "kubectl
// apply" of the same manifest changes nothing, and the NAD disappears with the last port that the controller names.
func deleting(def *netmodel.NAD, s *Request) error {
	by := ""
	if state, ok := def.NetworkState(); ok {
		if users, is := strings.CutPrefix(state.Reason, netmodel.BeingDeleted); is {
			by = ", " + users
		}
	}
	return conf.Errorf(conf.CodeNetworkNotFound,
		"when it is gone (kubectl multinet network list says who still uses it), apply its NetworkAttachmentDefinition "+
			"again: applied before that, it is gone all the same", "network %s is being deleted%s", s, by)
}

// check checks the request against an OVN network.
func (a *Attachment) check() error {
	for _, w := range []struct {
		key   string
		asked bool
		why   string
	}{
		{"portMappings", a.PortMappings != nil, "the host has no address on an OVN network to map a port of"},
		{"bandwidth", a.Bandwidth != nil && !a.chains("bandwidth"), "it is not served on OVN networks"},
		{"infiniband-guid", a.GUID != nil, "an OVN port is Ethernet"},
		{"ipam-claim-reference", a.IPAMClaim != "" && !a.Network.PersistentIPs,
			"the network lets no address outlive its pod; its key allowPersistentIPs does"},
		{"cni-args", a.otherArgs(), "an OVN port knows " + profilesKey + " alone"},
	} {
		if w.asked {
			return fmt.Errorf("%s on network %s: %s", w.key, a.Network.ID(), w.why)
		}
	}
	a.IPs = slices.Clone(a.IPs) // do not change the request
	for i, ip := range a.IPs {
		if len(a.Network.Subnets) == 0 {
			if ip.Bits() < 0 {
				return fmt.Errorf("ips: %s needs its prefix length, network %s has no subnets", ip.Addr(), a.Network.ID())
			}
			continue
		}
		if err := a.Network.CheckFixed(ip.Addr()); err != nil {
			return err
		}
		if a.Network.Topology == netmodel.Layer3 && a.Network.Node == "" {
			continue // the node subnet is not known yet
		}
		subnet := a.Network.Subnets[a.Network.SubnetOf(ip.Addr())]
		if ip.Bits() >= 0 && ip.Bits() != subnet.Bits() {
			return fmt.Errorf("ips: %s has not the prefix length of its subnet %s", ip, subnet)
		}
		a.IPs[i] = netip.PrefixFrom(ip.Addr(), subnet.Bits())
	}
	return nil
}

// chains reports whether a plugin behind ours declares a capability.
func (a *Attachment) chains(capability string) bool {
	return a.Delegate != nil && a.Delegate.offered[capability]
}

// otherArgs reports whether the request has cni-args without the key that OVN networks know, or with another one.
func (a *Attachment) otherArgs() bool {
	return a.CNIArgs != nil && (len(a.CNIArgs) != 1 || a.CNIArgs[profilesKey] == nil)
}

// Profiles are the names of the port's security profiles: those of the network and those that the pod requests.
func (a *Attachment) Profiles() []string {
	names := slices.Concat(a.Network.SecurityProfiles, a.SecurityProfiles)
	slices.Sort(names)
	return slices.Compact(names)
}

// checkTogether refuses an address or MAC that a pod requests twice on one network, and an IPAMClaim that it names
// twice.
func checkTogether(attachments []Attachment) error {
	by := map[string]*Attachment{}
	for i := range attachments {
		a := &attachments[i]
		if a.Network == nil {
			continue
		}
		for _, what := range a.fixed() {
			if other := by[what]; other != nil {
				return conf.Errorf(conf.CodeInvalidConfig, "correct the pod's annotation "+conf.NetworksAnnotation,
					"interfaces %s and %s both ask for %s", other.Interface, a.Interface, what)
			}
			by[what] = a
		}
	}
	return nil
}

// fixed lists the addresses, the MAC and the IPAMClaim that the pod requests. Only one of its interfaces can have them.
func (a *Attachment) fixed() []string {
	var list []string
	network := " on network " + a.Network.ID()
	if a.MAC != nil {
		list = append(list, "MAC "+a.MAC.String()+network)
	}
	for _, p := range a.IPs {
		list = append(list, "address "+p.Addr().String()+network)
	}
	if a.IPAMClaim != "" {
		list = append(list, "IPAMClaim "+a.IPAMClaim)
	}
	return list
}
