package show

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/netmodel/service"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/outside"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/services"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/view"
)

// Service is one Service on one network.
type Service struct {
	Namespace string       `json:"namespace"`
	Name      string       `json:"name"`
	Network   string       `json:"network,omitempty"` // if NB does not have the Service: the NAD that it names
	Headless  bool         `json:"headless"`
	Addresses []netip.Addr `json:"addresses"` // the virtual ones
	Outside   []netip.Addr `json:"outsideAddresses"`
	Ports     []string     `json:"ports"`
	// Backends has the number of backends of each port; of two families, the smaller one. It is empty if the Service is
	// headless, or if NB does not have it.
	Backends []int  `json:"backends"`
	Ready    bool   `json:"ready"`
	Reason   string `json:"reason,omitempty"`

	view     *services.View   // nil: NB does not have it
	accepted *service.Service // nil: the same, or NB has something else
	object   *service.Service // nil: there is none that can be served
}

// Reasons of Services that are not ready.
const (
	serviceRowsDiffer = "its rows in NB are not those of the accepted Service: is ovn-multinet-controller running?"
	changedSince      = "the controller has not accepted its last change: is ovn-multinet-controller running?"
)

// Services combines the services in NB with those of the API or the manifests, which have the states. Without known,
// objects has none because nobody could read them. The result is sorted.
func Services(objects []*service.Object, known bool, views []*services.View) []Service {
	list, accepted := []Service{}, map[string]bool{}
	states := map[string]*service.Object{}
	for _, o := range objects {
		states[o.ID()] = o
	}
	for _, v := range views {
		accepted[v.Key.Service] = true
		namespace, name, _ := strings.Cut(v.Key.Service, "/")
		line := Service{Namespace: namespace, Name: name, Network: v.Network, Ready: true, view: v, accepted: v.Service}
		line.describe(v.Service)
		line.Addresses = append(line.Addresses, v.Addresses...)
		line.count()
		switch o := states[v.Key.Service]; {
		case o != nil:
			line.judge(o)
		case known:
			line.Ready, line.Reason = false, stillInNB
		}
		if line.Ready && v.Differs {
			line.Ready, line.Reason = false, serviceRowsDiffer
		}
		list = append(list, line)
	}
	for _, o := range objects {
		if !accepted[o.ID()] {
			line := Service{Namespace: o.Namespace, Name: o.Name}
			line.describe(o.Service)
			line.judge(o)
			list = append(list, line)
		}
	}
	sortServices(list)
	return list
}

func sortServices(list []Service) {
	slices.SortFunc(list, func(a, b Service) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name),
			strings.Compare(a.Network, b.Network))
	})
}

// SetOutside sets the outside addresses, of the entries in NB.
func SetOutside(list []Service, entries []*outside.Entry) {
	for _, e := range entries {
		for i := range list {
			if l := &list[i]; e.User == (outside.User{Namespace: l.Namespace, Service: l.Name}) {
				l.Outside = append(l.Outside, e.IPs()...)
			}
		}
	}
}

// describe notes what a Service says; s is nil if it cannot be parsed.
func (l *Service) describe(s *service.Service) {
	l.Addresses, l.Outside, l.Ports, l.Backends = []netip.Addr{}, []netip.Addr{}, []string{}, []int{}
	if s == nil {
		return
	}
	l.Network, l.Headless = cmp.Or(l.Network, s.NAD), s.Headless()
	for _, p := range s.Ports {
		l.Ports = append(l.Ports, fmt.Sprintf("%s/%d", p.Protocol, p.Port))
	}
}

// count counts the backends of each port.
func (l *Service) count() {
	if l.accepted == nil || l.Headless {
		return
	}
	for _, p := range l.accepted.Ports {
		least := -1
		for _, vip := range l.view.Vips {
			if n := len(vip.Backends); vip.Protocol == p.Protocol && vip.Address.Port() == p.Port && (least < 0 || n < least) {
				least = n
			}
		}
		l.Backends = append(l.Backends, max(least, 0))
	}
}

// judge sets Ready and Reason from the state that the controller wrote.
func (l *Service) judge(o *service.Object) {
	l.object = o.Service
	var state service.State
	if json.Unmarshal([]byte(o.State), &state) != nil {
		l.Ready, l.Reason = false, notSeen
		return
	}
	l.Ready, l.Reason = state.Ready, conf.OneLine(state.Reason, conf.MaxReason) // tenants can write it
	if l.Ready && (state.Network != l.Network || !same(l.accepted, l.object)) {
		l.Ready, l.Reason = false, changedSince
	}
}

// same reports whether two Services say the same. Their texts may have other words for it.
func same(a, b *service.Service) bool {
	if a == nil || b == nil {
		return a == b
	}
	one, other := *a, *b
	one.Text, other.Text = "", ""
	return reflect.DeepEqual(one, other)
}

// ServiceDetails is one Service with its backends.
type ServiceDetails struct {
	Service
	Accepted *ServiceSpec `json:"accepted,omitempty"` // what NB has
	Object   *ServiceSpec `json:"object,omitempty"`   // what the object of the API or the manifests says
	Vips     []Vip        `json:"virtualAddresses"`
}

// ServiceSpec is what a Service says.
type ServiceSpec struct {
	NAD     string   `json:"networkAttachmentDefinition"`
	Address string   `json:"address"`                  // "auto", addresses, or "headless"
	Outside string   `json:"outsideAddress,omitempty"` // "auto", addresses, or "gateway"
	Pods    string   `json:"pods"`                     // the selector
	Ports   []string `json:"ports"`
	// Affinity is that of Kubernetes: "None" or "ClientIP".
	Affinity string `json:"sessionAffinity"`
	NotReady bool   `json:"publishNotReadyAddresses"`
}

// Vip is a virtual address and port with the backends.
type Vip struct {
	Port     string         `json:"port"`
	Address  netip.AddrPort `json:"address"`
	Backends []Backend      `json:"backends"`
}

// Backend is a backend, and the port that has its address; nil: none.
type Backend struct {
	Address netip.AddrPort `json:"address"`
	Port    *Port          `json:"port,omitempty"`
}

// OneService returns the Service of a list that has no other one; nil if the list is empty. While a Service moves, NB
// may have it on two networks: the result is the one that is ready.
func OneService(list []Service) *Service {
	var found *Service
	for i := range list {
		if found == nil || list[i].Ready {
			found = &list[i]
		}
	}
	return found
}

// BackendAddresses returns the addresses of the backends.
func (l *Service) BackendAddresses() []netip.Addr {
	all := map[netip.Addr]bool{}
	if l.view != nil {
		for _, vip := range l.view.Vips {
			for _, b := range vip.Backends {
				all[b.Addr()] = true
			}
		}
	}
	return slices.SortedFunc(maps.Keys(all), netip.Addr.Compare)
}

// Details returns the Service with its backends. ports has the ports at their addresses.
func (l *Service) Details(ports map[netip.Addr]view.Port) *ServiceDetails {
	d := &ServiceDetails{Service: *l, Accepted: specOf(l.accepted), Object: specOf(l.object), Vips: []Vip{}}
	if l.view == nil {
		return d
	}
	for _, v := range l.view.Vips {
		vip := Vip{
			Port: fmt.Sprintf("%s/%d", v.Protocol, v.Address.Port()), Address: v.Address, Backends: []Backend{},
		}
		for _, a := range v.Backends {
			b := Backend{Address: a}
			if p, ok := ports[a.Addr()]; ok {
				b.Port = new(portOf(&p))
			}
			vip.Backends = append(vip.Backends, b)
		}
		d.Vips = append(d.Vips, vip)
	}
	return d
}

func specOf(s *service.Service) *ServiceSpec {
	if s == nil {
		return nil
	}
	spec := &ServiceSpec{
		NAD: s.NAD, Address: "headless", Pods: s.Pods, Ports: []string{},
		Affinity: "None", NotReady: s.NotReady,
	}
	switch {
	case s.Auto:
		spec.Address = "auto"
	case len(s.Fixed) > 0:
		spec.Address = words(s.Fixed)
	}
	switch o := s.Outside; {
	case o == nil:
	case o.Gateway:
		spec.Outside = "gateway"
	case len(o.Fixed) == 0:
		spec.Outside = "auto"
	default:
		spec.Outside = words(o.Fixed)
	}
	if s.Affinity {
		spec.Affinity = "ClientIP"
	}
	for _, p := range s.Ports {
		target := p.TargetName
		if target == "" {
			target = fmt.Sprint(p.Target)
		}
		spec.Ports = append(spec.Ports, strings.TrimSpace(fmt.Sprintf("%s %s/%d to %s", p.Name, p.Protocol, p.Port, target)))
	}
	return spec
}
