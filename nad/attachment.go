package nad

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/ovn-multinet/ovn-multinet/conf"
)

// Attachment is one network of a pod: what the pod asked for, and the network as its NAD describes it.
type Attachment struct {
	Selection
	Network *conf.Network
	// Refusal is what the controller says against the network, for the error of one that is not there.
	Refusal string
	// Routes are the network's, on the first of the pod's interfaces on it: the kernel takes a route once.
	Routes []conf.Route
}

// Resolve reads the NADs of the selections, each once, and checks every selection against its network. get
// answers conf.ErrNotFound for a NAD that does not exist.
func Resolve(ctx context.Context, selections []Selection, get func(ctx context.Context, namespace, name string) (*conf.NAD, error)) ([]Attachment, error) {
	networks := map[string]*known{}
	attachments := make([]Attachment, 0, len(selections))
	for _, s := range selections {
		network := networks[s.String()]
		if network == nil {
			var err error
			if network, err = read(ctx, s, get); err != nil {
				return nil, fmt.Errorf("interface %s: %w", s.Interface, err)
			}
			networks[s.String()] = network
		}
		a := Attachment{Selection: s, Network: network.Network, Refusal: network.refusal}
		if err := a.check(); err != nil {
			return nil, conf.Errorf(conf.CodeInvalidConfig, "correct the pod's annotation "+conf.NetworksAnnotation,
				"interface %s: %w", s.Interface, err)
		}
		attachments = append(attachments, a)
	}
	if err := checkTogether(attachments); err != nil {
		return nil, err
	}
	return attachments, assignRoutes(attachments)
}

// assignRoutes gives each network's routes to the first interface on it. Two networks that route one destination
// are refused: which of them counts would be chance.
func assignRoutes(attachments []Attachment) error {
	by := map[netip.Prefix]*Attachment{}
	done := map[*conf.Network]bool{}
	for i := range attachments {
		a := &attachments[i]
		if done[a.Network] {
			continue
		}
		done[a.Network] = true
		for _, r := range a.Network.Routes {
			if other := by[r.Dst]; other != nil && other.Network != a.Network {
				return conf.Errorf(conf.CodeInvalidConfig, "take the route out of one of the two networks",
					"networks %s and %s both route %s", other.Network.ID(), a.Network.ID(), r.Dst)
			}
			by[r.Dst] = a
		}
		a.Routes = a.Network.Routes
	}
	return nil
}

// known is a network that was read, and what the controller says against it.
type known struct {
	*conf.Network
	refusal string
}

func read(ctx context.Context, s Selection, get func(context.Context, string, string) (*conf.NAD, error)) (*known, error) {
	def, err := get(ctx, s.Namespace, s.Name)
	if errors.Is(err, conf.ErrNotFound) {
		return nil, conf.Errorf(conf.CodeNetworkNotFound, "create the NetworkAttachmentDefinition, or correct the pod's annotation "+conf.NetworksAnnotation,
			"network %s is not found", &s)
	}
	if err != nil {
		return nil, fmt.Errorf("network %s: %w", &s, err)
	}
	if def.Deleting {
		return nil, conf.Errorf(conf.CodeNetworkNotFound, "choose another network, or create this one again when it is gone", "network %s is being deleted", &s)
	}
	kind, err := conf.NetworkKind([]byte(def.Config))
	if err != nil {
		return nil, conf.Errorf(conf.CodeInvalidConfig, "correct spec.config of the NetworkAttachmentDefinition", "network %s: spec.config: %w", &s, err)
	}
	if !conf.IsOVN(kind) {
		return nil, conf.Errorf(conf.CodeInvalidConfig, "use a network of type "+conf.NetworkType,
			"network %s: type %q is not served yet, only %q", &s, clip(kind), conf.NetworkType)
	}
	network, err := conf.ParseNetwork(def.Namespace, def.Name, []byte(def.Config))
	if err != nil {
		return nil, err
	}
	known := &known{Network: network}
	if state, ok := def.NetworkState(); ok {
		known.refusal = state.Reason
	}
	return known, nil
}

// check holds the pod's wishes against the network.
func (a *Attachment) check() error {
	a.IPs = slices.Clone(a.IPs) // the selection's stay as they were asked for
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
		subnet := a.Network.Subnets[a.Network.SubnetOf(ip.Addr())]
		if ip.Bits() >= 0 && ip.Bits() != subnet.Bits() {
			return fmt.Errorf("ips: %s has not the prefix length of its subnet %s", ip, subnet)
		}
		a.IPs[i] = netip.PrefixFrom(ip.Addr(), subnet.Bits())
	}
	return nil
}

// checkTogether refuses one address or MAC asked for twice by the same pod on one network.
func checkTogether(attachments []Attachment) error {
	for i := range attachments {
		for j := range i {
			a, b := &attachments[j], &attachments[i]
			if a.Network.ID() != b.Network.ID() {
				continue
			}
			if what := common(a, b); what != "" {
				return conf.Errorf(conf.CodeInvalidConfig, "correct the pod's annotation "+conf.NetworksAnnotation,
					"interfaces %s and %s both ask for %s on network %s", a.Interface, b.Interface, what, a.Network.ID())
			}
		}
	}
	return nil
}

func common(a, b *Attachment) string {
	if a.MAC != nil && bytes.Equal(a.MAC, b.MAC) {
		return "MAC " + a.MAC.String()
	}
	for _, p := range a.IPs {
		for _, q := range b.IPs {
			if p.Addr() == q.Addr() {
				return "address " + p.Addr().String()
			}
		}
	}
	return ""
}
