package agent

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/nad"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovnport"
)

// profiles knows the security profiles that the operator allows, and the row keys of their port groups. The transaction
// of a port asserts both. So they are read when a pod has the first profile, after a refusal, and before a pod is
// refused.
type profiles struct {
	nb *ovnport.NB

	mu     sync.Mutex
	grants map[string]string            // by profile; nil: not read
	groups map[string]ovnport.PortGroup // by the group's name
}

func newProfiles(nb *ovnport.NB) *profiles {
	return &profiles{nb: nb, groups: map[string]ovnport.PortGroup{}}
}

// clear has everything read again.
func (p *profiles) clear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.grants = nil
	clear(p.groups)
}

// of returns the profiles of a port of a pod, and the groups of the virtual addresses that the pod may have.
func (p *profiles) of(ctx context.Context, at *nad.Attachment, pod *netmodel.Pod) ([]ovnport.Profile, error) {
	if len(at.Network.VirtualAddresses) > 0 && pod.ManyLabels {
		return nil, tooManyLabels(pod)
	}
	all, err := p.granted(ctx, at.Profiles(), pod.Namespace)
	return append(all, ovnport.VirtualGroups(at.Network, pod)...), err
}

// granted returns the profiles of these names for a namespace. Before it refuses one, it reads again what it knew.
func (p *profiles) granted(ctx context.Context, names []string, namespace string) ([]ovnport.Profile, error) {
	if len(names) == 0 {
		return nil, nil
	}
	p.mu.Lock()
	known := p.grants
	p.mu.Unlock()
	if known != nil {
		if all, err := p.find(ctx, known, names, namespace); err == nil {
			return all, nil
		}
		p.clear()
	}
	known, err := p.nb.Profiles(ctx)
	if err != nil {
		return nil, fmt.Errorf("security profiles: %w", err)
	}
	p.mu.Lock()
	p.grants = known
	p.mu.Unlock()
	return p.find(ctx, known, names, namespace)
}

// find finds the profiles of these names among those that the operator allows.
func (p *profiles) find(
	ctx context.Context, grants map[string]string, names []string, namespace string,
) (all []ovnport.Profile, err error) {
	for _, name := range names {
		profile, err := netmodel.DecodeSecurityProfile(name, grants[name])
		if err != nil || !profile.Allows(namespace) {
			return nil, conf.Errorf(conf.CodeNotAllowed, fmt.Sprintf("correct the name, or ask the operator for an "+
				"object SecurityProfile with the spec {profile: %s, namespaces: [%s]}", name, namespace),
				"security profile %s is not allowed for namespace %s", name, namespace)
		}
		group, err := p.group(ctx, profile.PortGroup)
		if errors.Is(err, errNoPortGroup) {
			err = conf.Errorf(conf.CodeTryAgain, "ask the operator to create the port group, with ovn-nbctl pg-add",
				"security profile %s for namespace %s: %w", name, namespace, err)
		}
		if err != nil {
			return nil, err
		}
		all = append(all, ovnport.Profile{Name: name, Grant: grants[name], Group: group})
	}
	return all, nil
}

// errNoPortGroup says that NB has no port group that a profile may use.
var errNoPortGroup = errors.New("it does not exist in OVN's Northbound database")

// group returns a port group of the operator.
func (p *profiles) group(ctx context.Context, name string) (ovnport.PortGroup, error) {
	p.mu.Lock()
	known, ok := p.groups[name]
	p.mu.Unlock()
	if ok {
		return known, nil
	}
	uuid, ours, err := p.nb.FindPortGroup(ctx, name)
	switch {
	case err != nil:
		return ovnport.PortGroup{}, fmt.Errorf("port group %s: %w", name, err)
	case uuid == "":
		return ovnport.PortGroup{}, fmt.Errorf("port group %s: %w", name, errNoPortGroup)
	case ours:
		return ovnport.PortGroup{}, conf.Errorf(conf.CodeNotAllowed, "ask the operator to choose another port group",
			"port group %s belongs to network policies", name)
	}
	found := ovnport.PortGroup{UUID: uuid, Name: name}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.groups[name] = found
	return found, nil
}

// again returns the profiles of a port that is inserted again. A running pod keeps its port groups, whatever the
// operator allows now. After a restore of NB the groups may have other row keys.
func (p *profiles) again(ctx context.Context, groups []agentapi.PortGroup) ([]ovnport.Profile, error) {
	var all []ovnport.Profile
	for _, had := range groups {
		if ovndb.IsVirtualGroup(had.Name) { // its row key never changes, and the network decides what it stands for
			all = append(all, ovnport.Profile{Group: ovnport.PortGroup(had)})
			continue
		}
		group, err := p.group(ctx, had.Name)
		if err != nil {
			return nil, err
		}
		all = append(all, ovnport.Profile{Group: group})
	}
	return all, nil
}

func groupsOf(p *agentapi.Port) (groups []ovnport.PortGroup) {
	for _, g := range p.Groups {
		groups = append(groups, ovnport.PortGroup(g))
	}
	return groups
}
