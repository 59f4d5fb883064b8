package show

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/nad"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/outside"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/policies"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/services"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/view"
)

// Reason says whether a pod's packets reach a destination, and why.
type Reason struct {
	From     string `json:"from"`
	To       string `json:"to"`
	Protocol string `json:"protocol"`
	Port     uint16 `json:"port"`
	Reaches  bool   `json:"reaches"`
	Steps    []Step `json:"steps"` // in the packet's order; the first one that is not right is the cause
}

// Step is one thing on the packet's way.
type Step struct {
	What string `json:"what"`
	OK   bool   `json:"ok"`
	Says string `json:"says"`
}

// The steps of a way.
const (
	stepNetwork  = "network"
	stepPort     = "port"
	stepService  = "service"
	stepAddress  = "address"
	stepRoute    = "route"
	stepAnswer   = "answer"
	stepGateway  = "gateway"
	stepPolicies = "policies"
)

// WhySources is what is known of the ways.
type WhySources struct {
	Networks []view.Network
	Services []*services.View
	// Policies reads the policies of scopes.
	Policies func([]policies.Scope) ([]*policies.View, error)
	Outside  []*outside.Entry
	// Pod reads what the annotations of a pod "<namespace>/<name>" say; nil: nobody knows.
	Pod func(name string) (*PodStatus, error)
}

// why is a question that is being answered.
type why struct {
	*WhySources
	reason *Reason
}

func (y *why) step(what string, ok bool, format string, args ...any) {
	y.reason.Steps = append(y.reason.Steps, Step{what, ok, conf.OneLine(fmt.Sprintf(format, args...), conf.MaxReason)})
	y.reason.Reaches = y.reason.Reaches && ok
}

// Why says whether packets of the pod from reach to, which is a pod or an address: those of the first packet and of the
// answers. what is a protocol with a port.
func (s *WhySources) Why(namespace, from, to, what string) (*Reason, error) {
	q := &Question{}
	if err := q.parse(what); err != nil {
		return nil, err
	}
	if _, err := netip.ParseAddr(from); err == nil {
		return nil, fmt.Errorf("%s is an address: name the pod that sends, as <namespace>/<name>", from)
	}
	y := &why{s, &Reason{From: from, To: to, Protocol: q.Protocol, Port: q.Port, Reaches: true, Steps: []Step{}}}
	froms, err := ends(s.Networks, namespace, from)
	if err == nil {
		err = y.answer(namespace, froms, to, what)
	}
	if no, ok := errors.AsType[*notConnected](err); ok {
		y.step(stepNetwork, false, "%s", no.why)
		err = nil
	}
	return y.reason, err
}

func (y *why) answer(namespace string, froms []End, to, what string) error {
	dst, parseErr := netip.ParseAddr(to)
	isAddress := parseErr == nil
	if isAddress {
		dst = dst.Unmap()
		if v := y.serviceOf(froms, dst); v != nil {
			return y.service(namespace, froms, v, dst)
		}
		for _, e := range y.Outside {
			if slices.Contains(e.IPs(), dst) {
				return fmt.Errorf("%s is an outside address of %s: name the pod, or a pod behind the Service", dst, e.User)
			}
		}
		froms = y.leaving(froms, dst)
	}
	word := froms[0].Pod + ":" + froms[0].Interface
	if len(froms) > 1 {
		word = froms[0].Pod
	}
	q, err := Ask(y.Networks, namespace, word, to, what)
	if err != nil {
		return err
	}
	return y.way(q, dst)
}

// serviceOf returns the Service with a virtual address that one of the ends reaches; nil: none.
func (y *why) serviceOf(froms []End, dst netip.Addr) *services.View {
	for _, v := range y.Services {
		if !slices.Contains(v.Addresses, dst) {
			continue
		}
		for i := range froms {
			if f := &froms[i]; f.Network == v.Network || f.way != "" && f.way == y.wayOf(v.Network) {
				return v
			}
		}
	}
	return nil
}

func (y *why) wayOf(network string) string {
	for i := range y.Networks {
		if y.Networks[i].ID == network {
			return y.Networks[i].Config.ReachedBy()
		}
	}
	return ""
}

// service follows the way to each backend of a Service's port.
func (y *why) service(namespace string, froms []End, v *services.View, dst netip.Addr) error {
	r := y.reason
	i := slices.IndexFunc(v.Vips, func(vip services.Vip) bool {
		return strings.EqualFold(vip.Protocol, r.Protocol) && vip.Address == netip.AddrPortFrom(dst, r.Port)
	})
	switch {
	case i < 0:
		y.step(stepService, false, "%s is an address of Service %s, which has no port %s/%d", dst, v.Key.Service, r.Protocol,
			r.Port)
		return nil
	case len(v.Vips[i].Backends) == 0:
		y.step(stepService, false, "%s is an address of Service %s, which has no backend: no pod that it selects is ready: "+
			"kubectl multinet service show %[2]s", dst, v.Key.Service)
		return nil
	}
	backends := v.Vips[i].Backends
	y.step(stepService, true, "%s is an address of Service %s with %d backends", dst, v.Key.Service, len(backends))
	for _, b := range backends {
		what := r.Protocol + "/" + strconv.Itoa(int(b.Port()))
		if err := y.answer(namespace, froms, b.Addr().String(), what); err != nil {
			return err
		}
	}
	return nil
}

// leaving returns the ends by which packets to an address leave: those on its network, or else those with a route. If
// none has a route, they are the ends that should have one: a router connects them with the network of the address.
func (y *why) leaving(froms []End, dst netip.Addr) []End {
	for _, has := range []func(*End) bool{
		func(e *End) bool { return e.config != nil && e.config.SubnetOf(dst) >= 0 },
		func(e *End) bool { return routed(e.config, dst) },
		func(e *End) bool {
			return slices.ContainsFunc(y.Networks, func(n view.Network) bool {
				return n.Config != nil && n.Config.SubnetOf(dst) >= 0 && reaches(e, &n)
			})
		},
	} {
		var list []End
		for i := range froms {
			if has(&froms[i]) {
				list = append(list, froms[i])
			}
		}
		if len(list) > 0 {
			return list
		}
	}
	return froms
}

// routed reports whether the pods of a network send packets to an address by it.
func routed(n *netmodel.Network, dst netip.Addr) bool {
	has := func(r conf.Route) bool { return r.Dst.Contains(dst) }
	return n != nil && (n.SubnetOf(dst) >= 0 || slices.ContainsFunc(n.Routes, has))
}

// way follows the packets of one question. dst is the address that was asked for, if it was one.
func (y *why) way(q *Question, dst netip.Addr) error {
	from, to := &q.From, &q.To
	y.bound(from)
	if to.port == nil {
		if !y.outside(from, dst) {
			return nil
		}
	} else {
		y.bound(to)
		y.network(from, to)
	}
	if to.port == nil || from.Network != to.Network {
		if err := y.routes(from, to); err != nil {
			return err
		}
	}
	return y.policies(q)
}

// bound says whether ovn-controller has bound a port.
func (y *why) bound(e *End) {
	if !e.port.Up {
		y.step(stepPort, false, "%s: ovn-controller of node %s has not bound it: kubectl multinet status", e, e.port.Node)
	}
	for _, c := range e.port.Conflicts {
		y.step(stepAddress, false, "%s: the host with the MAC %s uses %s, too", e, c.MAC, c.Addr)
	}
}

func (y *why) network(from, to *End) {
	if from.Network == to.Network {
		y.step(stepNetwork, true, "%s and %s are on network %s", from.name(), to.name(), from.Network)
		return
	}
	y.step(stepNetwork, true, "%s connects %s with %s", from.way, from.Network, to.Network)
}

// outside says whether an address that no pod has is reached. goes reports whether there is a way to follow.
func (y *why) outside(from *End, dst netip.Addr) (goes bool) {
	for i := range y.Networks {
		n := &y.Networks[i]
		if n.Config == nil || n.Config.SubnetOf(dst) < 0 || !reaches(from, n) {
			continue
		}
		if n.Config.Topology == netmodel.Localnet {
			y.step(stepNetwork, true, "%s is on network %s, and no pod has it: a host outside may", dst, n.ID)
			return true
		}
		y.step(stepAddress, false, "no pod on network %s has %s: kubectl multinet who %[2]s", n.ID, dst)
		return false
	}
	if holder := y.holder(dst); holder != nil && !routed(from.config, dst) {
		y.step(stepNetwork, false, "no network, router or VLAN connects %s with %s, which has %s", from, holder, dst)
		return false
	}
	n := y.Networks[slices.IndexFunc(y.Networks, func(n view.Network) bool { return n.ID == from.Network })]
	switch {
	case n.Config != nil && n.Config.Topology == netmodel.Localnet && n.Config.Router == "":
		y.step(stepGateway, true, "%s is on a physical network: its router there decides", from.Network)
	case n.Gateway == nil:
		y.step(stepGateway, false, "%s is on no network that %s reaches, and %[2]s has no router with a gateway", dst,
			from.Network)
		return false
	case len(n.Gateway.Nodes) == 0:
		y.step(stepGateway, false, "no node has the gateway of network %s: kubectl multinet network show %[1]s",
			from.Network)
	default:
		y.step(stepGateway, true, "the gateway of network %s, on node %s, brings packets outside", from.Network,
			n.Gateway.Nodes[0])
	}
	return true
}

// holder returns a pod with an address, on any network; nil: none. Networks that nothing connects may have one address
// each.
func (y *why) holder(a netip.Addr) *End {
	for i := range y.Networks {
		n := &y.Networks[i]
		for j := range n.Ports {
			if p := &n.Ports[j]; p.Namespace != "" && slices.Contains(p.Addresses, a) {
				e := endOf(n, p)
				return &e
			}
		}
	}
	return nil
}

// reaches reports whether an end is on a network, or on one that has the same router or VLAN.
func reaches(e *End, n *view.Network) bool {
	return n.ID == e.Network || e.way != "" && n.Config.ReachedBy() == e.way
}

// routes says whether the packets leave by the interface, and the answers by the other one.
func (y *why) routes(from, to *End) error {
	for _, d := range []struct {
		what      string
		self, far *End
	}{{stepRoute, from, to}, {stepAnswer, to, from}} {
		if d.self.port == nil {
			continue
		}
		own, err := y.Pod(d.self.Pod)
		if err != nil {
			return err
		}
		severalWays := d.what == stepAnswer && y.several(d.self)
		for _, a := range d.far.addresses {
			sameFamily := func(own netip.Addr) bool { return own.Is4() == a.Is4() }
			if slices.ContainsFunc(d.self.addresses, sameFamily) && !severalWays && !own.routes(d.self, a) {
				y.step(d.what, false, "%s has no route to %s, so packets leave by another interface: add it to the routes of "+
					"network %s", d.self, a, d.self.Network)
			}
		}
	}
	return nil
}

// routes reports whether packets of a pod to an address leave by an interface: by a route of its own, by those of the
// network, or by the default route.
func (s *PodStatus) routes(e *End, dst netip.Addr) bool {
	var own []struct{ Dst, GW, Interface string }
	if s == nil || json.Unmarshal([]byte(s.Routes), &own) != nil {
		own = nil
	}
	best, by := -1, false
	for _, r := range own {
		to, err := netip.ParsePrefix(r.Dst)
		if err != nil || !to.Contains(dst) || to.Bits() <= best {
			continue
		}
		gw, err := netip.ParseAddr(r.GW)
		best = to.Bits()
		by = r.Interface == e.Interface || r.Interface == "" && err == nil && e.config != nil && e.config.SubnetOf(gw) >= 0
	}
	if best >= 0 {
		return by
	}
	isDefault := func(n nad.NetworkStatus) bool { return n.Interface == e.Interface && len(n.DefaultRoute) > 0 }
	return routed(e.config, dst) || slices.ContainsFunc(statusOf(s), isDefault)
}

// several reports whether a pod has several interfaces behind one router or VLAN: then what it sends from the address
// of one of them leaves by that one.
func (y *why) several(e *End) bool {
	count := 0
	for i := range y.Networks {
		n := &y.Networks[i]
		for j := range n.Ports {
			p := &n.Ports[j]
			if p.Namespace+"/"+p.Pod == e.Pod && reaches(e, n) {
				count++
			}
		}
	}
	return count > 1
}

// policies says what the network policies decide.
func (y *why) policies(q *Question) error {
	views, err := y.Policies(q.Scopes())
	if err != nil {
		return err
	}
	a, err := q.Decide(views)
	if err != nil {
		return err
	}
	for _, c := range a.Connections {
		for _, side := range []*Side{c.Egress, c.Ingress} {
			if side != nil {
				y.step(stepPolicies, side.Allowed, "%s to %s: %s", c.From, c.To, side.Why)
			}
		}
	}
	return nil
}

// WhyText writes a reason: the verdict with the first cause, and then all steps.
func WhyText(w io.Writer, r *Reason) error {
	var text strings.Builder
	verdict := "yes"
	if i := slices.IndexFunc(r.Steps, func(s Step) bool { return !s.OK }); i >= 0 {
		verdict = "no, " + r.Steps[i].Says
	}
	printf(&text, "%s to %s, %s/%d: %s\n", r.From, r.To, r.Protocol, int(r.Port), verdict)
	t := table(&text)
	for _, s := range r.Steps {
		printf(t, "  %s\t%s\t%s\n", map[bool]string{true: "ok", false: "no"}[s.OK], s.What, s.Says)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := io.WriteString(w, text.String())
	return err
}
