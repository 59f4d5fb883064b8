package agent

import (
	"context"
	"errors"
	"net/netip"
	"slices"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/nad"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovnport"
)

// setIPAMClaim gives a request the IPAMClaim that the attachment names. The addresses that the IPAMClaim asks for, or
// had before NB was restored from a backup, are for an IPAMClaim that has none in NB.
func (p *planning) setIPAMClaim(ctx context.Context, request *ovnport.Request, at *nad.Attachment) error {
	if at.IPAMClaim == "" {
		return nil
	}
	claim, err := p.readIPAMClaim(ctx, at.IPAMClaim)
	if err != nil {
		return err
	}
	def, err := p.nads.get(ctx, at.Namespace, at.Name)
	if err != nil {
		return err
	}
	refuse := func(format string, args ...any) error {
		return conf.Errorf(conf.CodeInvalidConfig, "name an IPAMClaim of this interface, or delete this one and make it anew",
			"IPAMClaim "+claim.ID()+" "+format, args...)
	}
	switch name := def.ConfigName(); {
	case claim.Problem != "":
		return refuse("cannot be used: %s", claim.Problem)
	case claim.Network != "" && name != "" && claim.Network != name:
		return refuse("is for network %.64q, not for network %s with the name %.64q", claim.Network, at, name)
	case claim.Interface != "" && claim.Interface != at.Interface:
		return refuse("is for interface %.64q, not for interface %s", claim.Interface, at.Interface)
	}
	request.IPAMClaim, request.IPs = claim.ID(), nil
	for _, ip := range claim.Requested {
		if err := mayHave(at.Network, ip.Addr()); err != nil {
			return refuse("requests an address that it cannot have: %w", err)
		}
		if ip = inSubnet(at.Network, ip); slices.Contains(request.IPs, ip) {
			return refuse("requests address %s twice", ip.Addr())
		}
		request.IPs = append(request.IPs, ip)
	}
	if len(request.IPs) > 0 {
		return nil
	}
	for _, text := range claim.Status.IPs {
		ip, err := netip.ParsePrefix(text)
		if err != nil || mayHave(at.Network, ip.Addr()) != nil {
			continue
		}
		if ip = inSubnet(at.Network, ip); !slices.Contains(request.IPs, ip) {
			request.IPs = append(request.IPs, ip)
		}
	}
	return nil
}

// mayHave says why a pod cannot have an address of a network. Without subnets it may have any.
func mayHave(n *netmodel.Network, a netip.Addr) error {
	if len(n.Subnets) == 0 {
		return nil
	}
	return n.CheckFixed(a)
}

// inSubnet returns an address with the prefix length of its subnet.
func inSubnet(n *netmodel.Network, ip netip.Prefix) netip.Prefix {
	if i := n.SubnetOf(ip.Addr()); i >= 0 {
		return netip.PrefixFrom(ip.Addr(), n.Subnets[i].Bits())
	}
	return ip
}

// readIPAMClaim reads an IPAMClaim of the pod's namespace.
func (p *planning) readIPAMClaim(ctx context.Context, name string) (*netmodel.IPAMClaim, error) {
	claim, err := p.agent.source.LiveIPAMClaim(ctx, p.owner.Namespace, name)
	switch {
	case errors.Is(err, netmodel.ErrNotFound):
		return nil, conf.Errorf(conf.CodeTryAgain, "create it in the pod's namespace: KubeVirt's IPAM controller does that",
			"IPAMClaim %s/%s is not found", p.owner.Namespace, name)
	case err != nil:
		return nil, conf.Errorf(conf.CodeTryAgain, "is the source of IPAMClaims reachable from this node?", "%w", err)
	case claim.Deleting:
		return nil, conf.Errorf(conf.CodeTryAgain, "wait until it is gone, and create it anew",
			"IPAMClaim %s is being deleted", claim.ID())
	}
	return claim, nil
}
