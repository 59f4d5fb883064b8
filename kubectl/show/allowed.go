package show

import (
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/netmodel/policy"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/policies"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/services"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/view"
)

// Question asks whether the policies allow a connection.
type Question struct {
	From, To End
	Protocol string
	Port     uint16

	networks []view.Network
}

// End is one end of a connection: an interface of a pod, or an address outside.
type End struct {
	Pod       string `json:"pod,omitempty"` // "<namespace>/<name>"
	Interface string `json:"interface,omitempty"`
	Network   string `json:"network,omitempty"`
	Address   string `json:"address,omitempty"` // of an end that is no pod

	port      *view.Port
	config    *netmodel.Network
	way       string // netmodel.Network.ReachedBy of the network
	accepted  []string
	addresses []netip.Addr
}

// String names the end in an error.
func (e *End) String() string {
	if e.port == nil {
		return e.Address
	}
	return e.Pod + ":" + e.Interface + " (" + e.Network + ")"
}

// name names the end in a sentence.
func (e *End) name() string {
	if e.port == nil {
		return e.Address
	}
	return e.Pod
}

// notConnected says that nothing connects two ends.
type notConnected struct{ why string }

func (e *notConnected) Error() string { return e.why }

// Ask reads a question: from and to are addresses, or pods "[<namespace>/]<name>[:<interface or network>]"; what is a
// protocol with a port, such as tcp/80.
func Ask(networks []view.Network, namespace, from, to, what string) (*Question, error) {
	q := &Question{networks: networks}
	if err := q.parse(what); err != nil {
		return nil, err
	}
	froms, err := ends(networks, namespace, from)
	if err != nil {
		return nil, err
	}
	tos, err := ends(networks, namespace, to)
	if err != nil {
		return nil, err
	}
	var near, routed [][2]End
	for _, f := range froms {
		for _, t := range tos {
			switch {
			case f.port == nil && t.port == nil:
				return nil, fmt.Errorf("neither %s nor %s is a pod: name the pod whose policies matter", from, to)
			case f.port != nil && t.port != nil && f.port.Key == t.port.Key:
			case f.port == nil || t.port == nil || f.Network == t.Network:
				near = append(near, [2]End{f, t})
			case f.way != "" && f.way == t.way:
				routed = append(routed, [2]End{f, t})
			}
		}
	}
	pairs := near
	if len(near) == 0 {
		pairs = routed
	}
	switch {
	case len(pairs) == 0:
		return nil, &notConnected{fmt.Sprintf("no network, router or VLAN connects %s with %s: %s; %s",
			from, to, list(froms), list(tos))}
	case len(pairs) > 1:
		return nil, fmt.Errorf("several interfaces connect %s with %s, name one of each pod: %s; %s",
			from, to, list(froms), list(tos))
	}
	q.From, q.To = pairs[0][0], pairs[0][1]
	q.From.resolve(networks, &q.To)
	q.To.resolve(networks, &q.From)
	return q, nil
}

func (q *Question) parse(what string) error {
	protocol, port, _ := strings.Cut(strings.ToLower(what), "/")
	if protocol != "tcp" && protocol != "udp" && protocol != "sctp" {
		return fmt.Errorf("%q: the protocol is not tcp, udp or sctp: write tcp/80 for example", what)
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil || number == 0 {
		return fmt.Errorf("%q: the port is not a number from 1 to 65535: write %s/80 for example", what, protocol)
	}
	q.Protocol, q.Port = protocol, uint16(number)
	return nil
}

func list(ends []End) string {
	names := make([]string, len(ends))
	for i := range ends {
		names[i] = ends[i].String()
	}
	return strings.Join(names, ", ")
}

// ends returns the interfaces that a word can mean, or the address that it is.
func ends(networks []view.Network, namespace, word string) ([]End, error) {
	if a, err := netip.ParseAddr(word); err == nil {
		a = a.Unmap()
		return []End{{Address: a.String(), addresses: []netip.Addr{a}}}, nil
	}
	pod, ifName, _ := strings.Cut(word, ":")
	if !strings.Contains(pod, "/") {
		pod = namespace + "/" + pod
	}
	var all, named []End
	for i := range networks {
		n := &networks[i]
		for j := range n.Ports {
			p := &n.Ports[j]
			if p.Namespace+"/"+p.Pod != pod {
				continue
			}
			e := endOf(n, p)
			all = append(all, e)
			if ifName == "" || e.is(ifName) {
				named = append(named, e)
			}
		}
	}
	switch {
	case len(all) == 0:
		return nil, &notConnected{"pod " + pod + " has no interface on an OVN network: " +
			"kubectl multinet network show NAME lists the pods of a network"}
	case len(named) == 0:
		return nil, fmt.Errorf("pod %s has no interface or network %q: it has %s", pod, ifName, list(all))
	}
	return named, nil
}

// endOf returns the end that is a port of a pod.
func endOf(n *view.Network, p *view.Port) End {
	return End{
		Pod: p.Namespace + "/" + p.Pod, Interface: p.Interface, Network: n.ID,
		port: p, config: n.Config, accepted: n.Accepted, addresses: p.Addresses, way: n.Config.ReachedBy(),
	}
}

// resolve makes an end that is an address the pod that has the address, on the network of the other end or on one
// that reaches it.
func (e *End) resolve(networks []view.Network, other *End) {
	if e.port != nil {
		return
	}
	for i := range networks {
		n := &networks[i]
		for j := range n.Ports {
			found := endOf(n, &n.Ports[j])
			if found.port.Namespace != "" && slices.Contains(found.addresses, e.addresses[0]) &&
				(n.ID == other.Network || found.way != "" && found.way == other.way) {
				found.addresses = e.addresses
				*e = found
				return
			}
		}
	}
}

// RefuseVirtual returns an error if an end is a virtual address of a network that the other end reaches: policies never
// see it. claimed are the virtual addresses by network.
func (q *Question) RefuseVirtual(claimed map[string][]services.Claimed) error {
	for _, ends := range [][2]*End{{&q.From, &q.To}, {&q.To, &q.From}} {
		e, other := ends[0], ends[1]
		for i := range q.networks {
			n := endOf(&q.networks[i], &view.Port{})
			if n.Network != other.Network && (n.way == "" || n.way != other.way) {
				continue
			}
			for _, c := range claimed[n.Network] {
				if e.port == nil && c.Address == e.addresses[0] {
					return fmt.Errorf("%s is a virtual address of Service %s, and policies see the pods behind it: name one of "+
						"them and its port, as kubectl multinet service show %[2]s lists them", e.Address, c.Service)
				}
			}
		}
	}
	return nil
}

// is reports whether a word is the name of the interface, of the network, or of a NAD of the network.
func (e *End) is(word string) bool {
	whole := word
	if !strings.Contains(word, "/") {
		whole = e.port.Namespace + "/" + word
	}
	return word == e.Interface || word == e.Network || slices.Contains(e.accepted, whole)
}

// Scopes lists the policies that decide: those of the namespaces of both pods, and ClusterNetworkPolicies.
func (q *Question) Scopes() []policies.Scope {
	var all []policies.Scope
	for _, e := range []*End{&q.From, &q.To} {
		if e.port == nil {
			continue
		}
		for _, namespace := range []string{"", e.port.Namespace} {
			s := policies.Scope{Network: e.Network, Namespace: namespace}
			if !slices.Contains(all, s) {
				all = append(all, s)
			}
		}
	}
	return all
}

// Answer says whether the policies allow a connection, for each pair of addresses.
type Answer struct {
	From        End          `json:"from"`
	To          End          `json:"to"`
	Protocol    string       `json:"protocol"`
	Port        uint16       `json:"port"`
	Allowed     bool         `json:"allowed"` // each of the connections
	Connections []Connection `json:"connections"`
}

// Connection is the verdict on one pair of addresses. An end that is no pod has no verdict.
type Connection struct {
	From    netip.Addr `json:"from"`
	To      netip.Addr `json:"to"`
	Allowed bool       `json:"allowed"`
	Egress  *Side      `json:"egress,omitempty"`  // at the sender
	Ingress *Side      `json:"ingress,omitempty"` // at the receiver
}

// Side is the verdict at one end.
type Side struct {
	Allowed  bool     `json:"allowed"`
	Policies []string `json:"policies"`       // that decide, each with its kind; empty: no policy decides
	Rule     string   `json:"rule,omitempty"` // such as "ingress 0"; absent: what no rule allows
	Why      string   `json:"why"`
}

// Decide answers the question. views has the question's scopes.
func (q *Question) Decide(views []*policies.View) (*Answer, error) {
	a := &Answer{
		From: q.From, To: q.To, Protocol: q.Protocol, Port: q.Port, Allowed: true, Connections: []Connection{},
	}
	ports := portsByKey(q.networks)
	sets := map[policies.Scope]*policy.Placed{}
	for _, v := range views {
		if v.Differs {
			return nil, fmt.Errorf("policies of network %s: rows in NB are not those of the accepted policies: "+
				"is ovn-multinet-controller running?", v.Network)
		}
		sets[v.Scope] = place(v, ports)
	}
	of := func(e *End) []*policy.Placed {
		return []*policy.Placed{
			sets[policies.Scope{Network: e.Network}],
			sets[policies.Scope{Network: e.Network, Namespace: e.port.Namespace}],
		}
	}
	for _, src := range q.From.addresses {
		for _, dst := range q.To.addresses {
			if src.Is4() != dst.Is4() {
				continue
			}
			c := Connection{From: src, To: dst, Allowed: true}
			packet := &policy.Packet{Src: src, Dst: dst, Protocol: q.Protocol, Port: q.Port}
			if e := &q.From; e.port != nil {
				c.Egress = sideOf(policy.Decide(of(e), e.port.Key, false, packet), "egress of "+e.Pod)
				c.Allowed = c.Egress.Allowed
			}
			if e := &q.To; e.port != nil {
				c.Ingress = sideOf(policy.Decide(of(e), e.port.Key, true, packet), "ingress of "+e.Pod)
				c.Allowed = c.Allowed && c.Ingress.Allowed
			}
			a.Allowed = a.Allowed && c.Allowed
			a.Connections = append(a.Connections, c)
		}
	}
	if len(a.Connections) == 0 {
		return nil, fmt.Errorf("%s and %s have no addresses of one family", &q.From, &q.To)
	}
	return a, nil
}

// place returns the ACLs of a scope with the ports and addresses of its groups.
func place(v *policies.View, ports map[string]*view.Port) *policy.Placed {
	s := &policy.Placed{
		ACLs: v.ACLs, Members: map[policy.Selector]map[string]bool{}, Addresses: map[policy.Selector]map[netip.Addr]bool{},
	}
	for selector, keys := range v.Members {
		members, addresses := map[string]bool{}, map[netip.Addr]bool{}
		for _, key := range keys {
			members[key] = true
			if p := ports[key]; p != nil {
				for _, a := range p.Addresses {
					addresses[a] = true
				}
			}
		}
		s.Members[selector], s.Addresses[selector] = members, addresses
	}
	return s
}

// sideOf says a verdict in words. what is a direction with its pod, such as "egress of shop/web".
func sideOf(v policy.Verdict, what string) *Side {
	s := &Side{Allowed: v.Allowed, Policies: names(v.By)}
	word := "denied"
	if v.Allowed {
		word = "allowed"
	}
	switch {
	case len(v.Asked) == 0:
		s.Why = word + ": no policy restricts " + what
	case len(v.By) == 0:
		s.Why = word + ": no rule of " + strings.Join(names(v.Asked), ", ") + " matches"
	case v.By[0].When == nil:
		verb, its := "restricts", "no rule of it"
		if len(s.Policies) > 1 {
			verb, its = "restrict", "no rule of them"
		}
		s.Why = fmt.Sprintf("%s: %s %s %s, and %s allows this", word, strings.Join(s.Policies, ", "), verb, what, its)
	default:
		s.Policies, s.Rule = s.Policies[:1], conf.OneLine(v.By[0].Rule, conf.MaxReason)
		s.Why = word + " by " + ruleName(&v.By[0])
	}
	for i := range v.Passed {
		s.Why += ", after Pass of " + ruleName(&v.Passed[i])
	}
	return s
}

// names lists the policies of ACLs, each one once.
func names(acls []policy.ACL) []string {
	all := []string{}
	for _, a := range acls {
		if name := policyName(&a); !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	return all
}

func policyName(a *policy.ACL) string {
	namespace, _, namespaced := strings.Cut(a.Policy, "/")
	if !namespaced {
		namespace = ""
	}
	return kindOf(namespace) + " " + a.Policy
}

// ruleName is such as "ClusterNetworkPolicy guard, ingress rule 0 its-name".
func ruleName(a *policy.ACL) string {
	return policyName(a) + ", " + strings.Replace(conf.OneLine(a.Rule, conf.MaxReason), " ", " rule ", 1)
}

// AnswerText writes an answer.
func AnswerText(w io.Writer, a *Answer) error {
	network := a.To.Network
	if a.From.Network != "" && network != "" && a.From.Network != network {
		network = a.From.Network + " and " + network
	} else if network == "" {
		network = a.From.Network
	}
	var text strings.Builder
	printf(&text, "%s to %s, %s/%d, on %s\n", a.From.name(), a.To.name(), a.Protocol, int(a.Port), network)
	for _, c := range a.Connections {
		word := "denied"
		if c.Allowed {
			word = "allowed"
		}
		printf(&text, "%s to %s: %s\n", c.From, c.To, word)
		if c.Egress != nil {
			printf(&text, "  egress:  %s\n", c.Egress.Why)
		}
		if c.Ingress != nil {
			printf(&text, "  ingress: %s\n", c.Ingress.Why)
		}
	}
	_, err := io.WriteString(w, text.String())
	return err
}
