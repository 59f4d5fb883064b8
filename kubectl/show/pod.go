package show

import (
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/nad"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/outside"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/policies"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/services"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/view"
)

// Pod is what a pod has on its networks.
type Pod struct {
	Name       string         `json:"name"` // "<namespace>/<name>"
	Node       string         `json:"node,omitempty"`
	Interfaces []PodInterface `json:"interfaces"`
	// Problems are what does not work, and where the pod's annotation and NB differ.
	Problems []string `json:"problems"`
}

// PodInterface is an interface of a pod.
type PodInterface struct {
	Interface string       `json:"interface"`
	Network   string       `json:"network"` // as NB calls it; of another plugin, as the annotation does
	Addresses []netip.Addr `json:"addresses"`
	MAC       string       `json:"mac,omitempty"`
	MTU       int          `json:"mtu,omitempty"` // absent: the plugin did not say it
	// Port is the name of the port in NB; "": the interface is another plugin's.
	Port string `json:"port,omitempty"`
	Up   bool   `json:"up,omitempty"` // ovn-controller has bound the port
	// Policies are those that select the port, each with its directions; Services those with the port as a backend.
	Policies []string         `json:"policies,omitempty"`
	Services []string         `json:"services,omitempty"`
	Outside  []OutsideAddress `json:"outsideAddresses,omitempty"`

	key     string // the row key of the port
	primary bool
}

// PodSources is what is known of a pod.
type PodSources struct {
	// Status is the annotation network-status and the node of the pod; nil: nobody could read the pod. Gone says that the
	// pod does not exist.
	Status *PodStatus
	Gone   bool
	// Networks are those of NB; nil: NB was not read.
	Networks []view.Network
	Outside  []*outside.Entry
}

// PodOf returns what a pod has on its networks.
func PodOf(namespace, name string, s *PodSources) (*Pod, error) {
	p := &Pod{Name: namespace + "/" + name, Interfaces: []PodInterface{}, Problems: []string{}}
	if s.Status != nil {
		p.Node = s.Status.Node
	}
	for i := range s.Networks {
		n := &s.Networks[i]
		for j := range n.Ports {
			if port := &n.Ports[j]; port.Namespace == namespace && port.Pod == name {
				p.addPort(n, port, s)
			}
		}
	}
	known := p.addStatus(s)
	switch {
	case s.Gone && len(p.Interfaces) == 0:
		return nil, fmt.Errorf("pod %s is not found", p.Name)
	case s.Gone:
		p.problem("", "the pod is gone, and NB still has its ports: kubectl multinet gc deletes what is stale")
	case len(p.Interfaces) == 0:
		return nil, fmt.Errorf("pod %s has no interface on a network that is known here: its Events say why a network is "+
			"missing: kubectl describe pod -n %s %s", p.Name, namespace, name)
	case known:
		p.compare(s)
		p.compareRequests(s.Status)
	}
	slices.SortStableFunc(p.Interfaces, func(a, b PodInterface) int {
		switch {
		case a.primary != b.primary && a.primary:
			return -1
		case a.primary != b.primary:
			return 1
		}
		return strings.Compare(a.Interface, b.Interface)
	})
	return p, nil
}

// problem notes what is wrong with an interface; "": with the pod.
func (p *Pod) problem(ifName, format string, args ...any) {
	if ifName != "" {
		format = ifName + ": " + format
	}
	p.Problems = append(p.Problems, conf.OneLine(fmt.Sprintf(format, args...), conf.MaxReason))
}

func (p *Pod) addPort(n *view.Network, port *view.Port, s *PodSources) {
	i := PodInterface{
		Interface: port.Interface, Network: n.ID, Addresses: append([]netip.Addr{}, port.Addresses...),
		MAC: port.MAC.String(), Port: port.Name, Up: port.Up, key: port.Key,
	}
	if !port.Up {
		p.problem(port.Interface, "ovn-controller of node %s has not bound the port: kubectl multinet status", port.Node)
	}
	if p.Node != "" && port.Node != p.Node {
		p.problem(port.Interface, "NB has the port on node %s, and the pod is on node %s", port.Node, p.Node)
	}
	for _, c := range port.Conflicts {
		p.problem(port.Interface, "the host with the MAC %s uses the address %s, too", c.MAC, c.Addr)
	}
	if p.Node == "" {
		p.Node = port.Node
	}
	for _, e := range s.Outside {
		if e.User == (outside.User{Namespace: port.Namespace, Pod: port.Pod, Interface: port.Interface}) &&
			e.Router == n.Config.RouterName() {
			for _, a := range e.Addresses {
				i.Outside = append(i.Outside, OutsideAddress{a.Addr, string(e.Kind), a.Pool})
			}
		}
	}
	p.Interfaces = append(p.Interfaces, i)
}

// statusOf parses the annotation network-status, by interface. Tenants can write it.
func statusOf(s *PodStatus) (entries []nad.NetworkStatus) {
	if s == nil || json.Unmarshal([]byte(s.Text), &entries) != nil {
		return nil
	}
	return entries
}

// addStatus adds what the annotation alone knows. known reports whether the pod has the annotation.
func (p *Pod) addStatus(s *PodSources) (known bool) {
	entries := statusOf(s.Status)
	for _, e := range entries {
		if at := p.find(e.Interface); at != nil {
			at.MTU = e.MTU
			continue
		}
		i := PodInterface{
			Interface: e.Interface, Network: e.Name, Addresses: addressesOf(e), MAC: e.MAC, MTU: e.MTU, primary: e.Default,
		}
		if n, port := s.sharedPort(e); port != nil {
			i.Network, i.Port, i.Up, i.key = n.ID, port.Name, port.Up, port.Key
		}
		p.Interfaces = append(p.Interfaces, i)
	}
	return entries != nil
}

// sharedPort returns the port of a virtual machine that another one of its pods has now, if the annotation has its MAC.
func (s *PodSources) sharedPort(e nad.NetworkStatus) (*view.Network, *view.Port) {
	for i := range s.Networks {
		n := &s.Networks[i]
		if e.Default || !slices.Contains(n.Accepted, e.Name) {
			continue
		}
		for j := range n.Ports {
			if p := &n.Ports[j]; p.IPAMClaim != "" && p.MAC.String() == e.MAC {
				return n, p
			}
		}
	}
	return nil, nil
}

func addressesOf(e nad.NetworkStatus) []netip.Addr {
	list := []netip.Addr{}
	for _, text := range e.IPs {
		if a, err := netip.ParseAddr(text); err == nil {
			list = append(list, a)
		}
	}
	return list
}

func (p *Pod) find(ifName string) *PodInterface {
	for i := range p.Interfaces {
		if p.Interfaces[i].Interface == ifName {
			return &p.Interfaces[i]
		}
	}
	return nil
}

// compare notes where the annotation and NB differ.
func (p *Pod) compare(s *PodSources) {
	entries := statusOf(s.Status)
	for i := range p.Interfaces {
		at := &p.Interfaces[i]
		e := slices.IndexFunc(entries, func(e nad.NetworkStatus) bool { return e.Interface == at.Interface })
		switch {
		case at.Port == "" && !at.primary && s.onOVN(at.Network):
			p.problem(at.Interface, "NB has no port on network %s: the agent of the node restores it within a minute",
				at.Network)
		case at.Port == "" || at.primary:
		case e < 0:
			p.problem(at.Interface, "the annotation %s does not have it", nad.StatusAnnotation)
		default:
			if has := addressesOf(entries[e]); !sameAddresses(has, at.Addresses) || entries[e].MAC != at.MAC {
				p.problem(at.Interface, "the annotation %s has %s %s, and NB has %s %s", nad.StatusAnnotation, entries[e].MAC,
					words(has), at.MAC, words(at.Addresses))
			}
		}
	}
}

// compareRequests notes where the pod's networks differ from those that its annotation names: it was edited while the
// pod ran.
func (p *Pod) compareRequests(s *PodStatus) {
	if s.Requested == nil {
		return
	}
	primary, has := "", []nad.Present(nil)
	for _, e := range statusOf(s) {
		if e.Default {
			primary = e.Interface
		} else {
			has = append(has, nad.Present{Interface: e.Interface, Network: e.Name})
		}
	}
	requests, err := nad.ParseRequestsOf(s.Requested, s.Namespace, primary, has)
	change := &nad.Change{}
	if err == nil {
		change, err = nad.Compare(requests, has)
	}
	if err != nil {
		p.problem("", "the pod keeps the networks that it has: %v", err)
		return
	}
	const why = "the pod's Events say why"
	for _, name := range change.Add {
		p.problem(name, "the annotation %s names it, and the pod does not have it: %s", conf.NetworksAnnotation, why)
	}
	for _, name := range change.Remove {
		p.problem(name, "the annotation %s does not name it any more, and the pod has it: %s", conf.NetworksAnnotation, why)
	}
}

// onOVN reports whether a NAD is of a network that NB has.
func (s *PodSources) onOVN(name string) bool {
	return slices.ContainsFunc(s.Networks, func(n view.Network) bool { return slices.Contains(n.Accepted, name) })
}

func sameAddresses(a, b []netip.Addr) bool {
	a, b = slices.Clone(a), slices.Clone(b)
	slices.SortFunc(a, netip.Addr.Compare)
	slices.SortFunc(b, netip.Addr.Compare)
	return slices.Equal(a, b)
}

// Scopes lists the policies that may select the pod's ports.
func (p *Pod) Scopes() (all []policies.Scope) {
	namespace, _, _ := strings.Cut(p.Name, "/")
	for i := range p.Interfaces {
		if at := &p.Interfaces[i]; at.Port != "" {
			all = append(all, policies.Scope{Network: at.Network}, policies.Scope{Network: at.Network, Namespace: namespace})
		}
	}
	return all
}

// SetPolicies sets the policies that select the ports. views has the pod's scopes.
func (p *Pod) SetPolicies(views []*policies.View) {
	for i := range p.Interfaces {
		at := &p.Interfaces[i]
		for _, v := range views {
			if v.Network != at.Network || at.Port == "" {
				continue
			}
			for _, one := range v.Set.Policies {
				if slices.Contains(v.Members[one.Subject], at.key) {
					line := Policy{}
					line.describe(one.Namespace, one.Name, one)
					at.Policies = append(at.Policies, kindOf(one.Namespace)+" "+strings.TrimPrefix(one.ID(), "/")+" ("+
						strings.Join(line.Directions, ", ")+")")
				}
			}
		}
	}
}

// SetServices sets the Services that have the ports as backends.
func (p *Pod) SetServices(views []*services.View) {
	for i := range p.Interfaces {
		at := &p.Interfaces[i]
		for _, v := range views {
			if v.Network == at.Network && at.Port != "" && at.isBackendOf(v) {
				at.Services = append(at.Services, v.Key.Service+" ("+words(v.Addresses)+")")
			}
		}
	}
}

func (i *PodInterface) isBackendOf(v *services.View) bool {
	has := func(b netip.AddrPort) bool { return slices.Contains(i.Addresses, b.Addr()) }
	return slices.ContainsFunc(v.Vips, func(vip services.Vip) bool { return slices.ContainsFunc(vip.Backends, has) })
}

// PodPage writes a pod.
func PodPage(w io.Writer, p *Pod) error {
	t := table(w)
	printf(t, "Pod:\t%s\n", p.Name)
	printf(t, "Node:\t%s\n", p.Node)
	if err := t.Flush(); err != nil {
		return err
	}
	printf(t, "\nINTERFACE\tNETWORK\tADDRESSES\tMAC\tMTU\tPORT\n")
	for i := range p.Interfaces {
		at := &p.Interfaces[i]
		mtu, port := "-", "-"
		if at.MTU > 0 {
			mtu = fmt.Sprint(at.MTU)
		}
		if at.Port != "" {
			port = map[bool]string{true: "up", false: "down"}[at.Up]
		}
		printf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", at.Interface, at.Network, words(at.Addresses), orDash(at.MAC), mtu, port)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for i := range p.Interfaces {
		p.Interfaces[i].more(t)
	}
	for i, text := range p.Problems {
		if i == 0 {
			printf(t, "\nProblems:\n")
		}
		printf(t, "  %s\n", text)
	}
	return t.Flush()
}

// more writes what an interface has beside its addresses.
func (i *PodInterface) more(w io.Writer) {
	var outs []string
	for _, o := range i.Outside {
		outs = append(outs, fmt.Sprintf("%s (%s, pool %s)", o.Address, o.Kind, o.Pool))
	}
	lines := []struct {
		name string
		has  []string
	}{{"Policies", i.Policies}, {"Services", i.Services}, {"Outside", outs}}
	for _, l := range lines {
		for k, text := range l.has {
			name := ""
			if k == 0 {
				name = l.name + " of " + i.Interface + ":"
			}
			printf(w, "%s\t%s\n", name, text)
		}
	}
}
