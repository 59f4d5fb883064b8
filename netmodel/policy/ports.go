package policy

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Limits of named ports. Pods decide about the numbers, so they must cost others no more than policies do.
const (
	MaxNamedPorts = 128                    // of one pod; further ones do not count
	MaxNumbers    = 32                     // of one name, of the pods of one selector
	maxNumberACLs = MaxPolicies * MaxRules // for named ports, of one set
	// maxNumberBytes is the limit of the ACLs of these numbers, of one set.
	maxNumberBytes = 512 << 10
)

// NamedPorts returns the ports of a pod's containers that have a name, each as "tcp/http=8080". Of the ports with one
// name and protocol the first one counts, and sidecars come after containers: Services do the same (FindPort in
// k8s.io/kubernetes/pkg/api/v1/pod).
func NamedPorts(spec *corev1.PodSpec) []string {
	var ports []string
	known := map[string]bool{}
	add := func(c *corev1.Container) {
		for _, p := range c.Ports {
			protocol, err := protocolOf(&p.Protocol)
			name := protocol + "/" + p.Name
			if err != nil || !validName(p.Name) || p.ContainerPort < 1 || p.ContainerPort > 65535 || known[name] ||
				len(ports) == MaxNamedPorts {
				continue
			}
			known[name] = true
			ports = append(ports, numbered(name, uint16(p.ContainerPort)))
		}
	}
	for i := range spec.Containers {
		add(&spec.Containers[i])
	}
	for i := range spec.InitContainers {
		c := &spec.InitContainers[i]
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			add(c)
		}
	}
	return ports
}

func validName(name string) bool { return len(validation.IsValidPortName(name)) == 0 }

// numbered is a name such as "tcp/http" with a number.
func numbered(name string, number uint16) string { return fmt.Sprintf("%s=%d", name, number) }

// cutNumber divides what numbered joins. A name without a number has the number 0.
func cutNumber(port string) (name string, number uint16) {
	name, text, _ := strings.Cut(port, "=")
	n, _ := strconv.ParseUint(text, 10, 16)
	return name, uint16(n)
}

// PortNumbers returns the numbers of a pod's named ports, by names such as "tcp/http".
func PortNumbers(ports []string) map[string]uint16 {
	all := map[string]uint16{}
	for _, port := range ports {
		name, number := cutNumber(port)
		all[name] = number
	}
	return all
}

// withPort returns the selector of those of the pods that have a named port.
func (s Selector) withPort(port string) Selector {
	s.Port = port
	return s
}

// Named is the number that pods of a namespace have for a named port. Name is the selector of the pods, with the name.
type Named struct {
	Name      Selector
	Namespace string
	Number    uint16
}

// names returns the selectors of the pods whose numbers a rule of the policy needs, each with the name of a port: the
// pods that the policy is for if they are the destination, and otherwise the peers. A peer that is no pod has no names.
func (p *Policy) names(toPod bool, r *Rule) []Selector {
	of := []Selector{p.Subject}
	switch {
	case toPod:
	case r.Any:
		of = []Selector{{Anywhere: true}}
	default:
		of = r.Peers
	}
	var all []Selector
	for _, port := range r.Ports {
		if port.Name != "" {
			for _, s := range of {
				all = append(all, s.withPort(port.Protocol+"/"+port.Name))
			}
		}
	}
	return all
}

func (p *Policy) allNames() (all []Selector) {
	for _, word := range []string{ingress, egress} {
		if rules := p.rules(word); rules != nil {
			for i := range *rules {
				all = append(all, p.names(word == ingress, &(*rules)[i])...)
			}
		}
	}
	return all
}

// HasNames reports whether the policy has named ports.
func (p *Policy) HasNames() bool { return len(p.allNames()) > 0 }

// Names are the different selectors with the name of a port, such as "tcp/http". They need the numbers of pods.
func (s *Set) Names() []Selector {
	all := sets.New[Selector]()
	for _, p := range s.Policies {
		all.Insert(p.allNames()...)
	}
	return sorted(all)
}

// SetNumbers sets the numbers of named ports to those that pods have. Beyond the limits, those of the set's own
// namespace come first. The other namespaces take turns, so that the pods of one of them do not keep out those of
// another one. Among equals, present numbers stay.
func (s *Set) SetNumbers(has []Named, present map[Selector]bool) {
	cost, bytes := s.costOfNames()
	rank := map[Selector]int{}
	known := map[Named]bool{}
	turns := map[Named]int{} // of a name and a namespace, whose Number is 0
	slices.SortFunc(has, func(a, b Named) int { return cmp.Compare(a.Number, b.Number) })
	for _, one := range has {
		if known[one] {
			continue
		}
		known[one] = true
		turn := 0
		if one.Namespace != s.Namespace {
			of := Named{Name: one.Name, Namespace: one.Namespace}
			turns[of]++
			turn = turns[of]
		}
		selector := one.Name.withPort(numbered(one.Name.Port, one.Number))
		if before, ok := rank[selector]; !ok || turn < before {
			rank[selector] = turn
		}
	}
	late := func(selector Selector) int {
		if present[selector] {
			return 0
		}
		return 1
	}
	ordered := slices.SortedFunc(maps.Keys(rank), func(a, b Selector) int {
		_, numberA := cutNumber(a.Port)
		_, numberB := cutNumber(b.Port)
		return cmp.Or(cmp.Compare(rank[a], rank[b]), cmp.Compare(late(a), late(b)), cmp.Compare(numberA, numberB),
			strings.Compare(a.String(), b.String()))
	})
	s.numbers, s.beyond = map[Selector][]uint16{}, map[Selector]bool{}
	groups, acls, size := len(s.Selectors()), 0, 0
	for _, selector := range ordered {
		name, number := cutNumber(selector.Port)
		of := selector.withPort(name)
		if len(s.numbers[of]) == MaxNumbers || groups == MaxSelectors || acls+cost[of] > maxNumberACLs ||
			size+bytes[of] > maxNumberBytes {
			s.beyond[of] = true
			continue
		}
		s.numbers[of] = append(s.numbers[of], number)
		groups, acls, size = groups+1, acls+cost[of], size+bytes[of]
	}
	for _, numbers := range s.numbers {
		slices.Sort(numbers)
	}
}

// costOfNames returns how many ACLs each number of a named port needs, and their bytes.
func (s *Set) costOfNames() (acls, bytes map[Selector]int) {
	acls, bytes = map[Selector]int{}, map[Selector]int{}
	for _, p := range s.Policies {
		for _, word := range []string{ingress, egress} {
			rules := p.rules(word)
			if rules == nil {
				continue
			}
			for i := range *rules {
				r := &(*rules)[i]
				names := p.names(word == ingress, r)
				if len(names) == 0 {
					continue
				}
				of := r.matchBytes(word == ingress, []Port{{Protocol: "tcp", First: 65535, Last: 65535}})
				if word == egress { // the peers with the number are the only ones that the ACL names
					of = 2*perACL + 4*groupNameLength
				}
				for _, name := range names {
					acls[name]++
					bytes[name] += of
				}
			}
		}
	}
	return acls, bytes
}

// Numbers returns the selectors with the numbers of a named port.
func (s *Set) Numbers(name Selector) (all []Selector) {
	for _, number := range s.numbers[name] {
		all = append(all, name.withPort(numbered(name.Port, number)))
	}
	return all
}

// Limited says that pods have more numbers for a named port of a policy than the limits allow.
type Limited struct{ what string }

func (l *Limited) Error() string { return l.what }

// Limit returns an error if the numbers of some pods are beyond the limits. The policy allows nothing to these pods by
// their names.
func (s *Set) Limit(p *Policy) error {
	for _, name := range p.allNames() {
		if s.beyond[name] { // without numbers, because the state should not change with each pod
			return &Limited{fmt.Sprintf("%s: pods have more numbers for this name than are served; "+
				"kubectl multinet policy show lists those that are: use fewer numbers (%d is the limit of one name) "+
				"or fewer selectors (%d)", name, MaxNumbers, MaxSelectors)}
		}
	}
	return nil
}

// UseNumbers sets the numbers of named ports to those of an index.
func (s *Set) UseNumbers(x *Index) {
	s.numbers = map[Selector][]uint16{}
	for _, e := range x.Entries {
		if name, number := cutNumber(e.Port); number != 0 {
			of := e.Selector.withPort(name)
			s.numbers[of] = append(s.numbers[of], number)
		}
	}
}

// variant is a rule for one group of ports, without names of ports.
type variant struct {
	port    string // the named port that became a number; "": the rule's numbers
	subject Selector
	rule    *Rule
}

// variants divides a rule: one variant for the ports that are numbers, and one for each number of each named port.
func (s *Set) variants(p *Policy, toPod bool, r *Rule) []variant {
	plain := *r
	plain.Ports = slices.DeleteFunc(slices.Clone(r.Ports), func(port Port) bool { return port.Name != "" })
	if len(plain.Ports) == len(r.Ports) {
		return []variant{{"", p.Subject, r}}
	}
	var all []variant
	if len(plain.Ports) > 0 {
		all = append(all, variant{"", p.Subject, &plain})
	}
	pods := map[string][]Selector{} // by named port
	for _, name := range p.names(toPod, r) {
		for _, one := range s.Numbers(name) {
			if !slices.Contains(pods[one.Port], one) {
				pods[one.Port] = append(pods[one.Port], one)
			}
		}
	}
	for _, port := range slices.Sorted(maps.Keys(pods)) {
		one, with := variant{port, p.Subject, nil}, *r
		protocol, _, _ := strings.Cut(port, "/")
		_, number := cutNumber(port)
		with.Ports = []Port{{Protocol: protocol, First: number, Last: number}}
		if toPod {
			one.subject = pods[port][0]
		} else {
			with.Peers, with.CIDRs, with.Any = pods[port], nil, false
		}
		one.rule = &with
		all = append(all, one)
	}
	return all
}
