package policies

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/netmodel/policy"
)

// selectorSet is the selectors of a set, parsed.
type selectorSet struct {
	own string
	all []*selected
	// names are the selectors with the name of a port. Those with its numbers are among all.
	names []*selected
}

type selected struct {
	selector   policy.Selector
	pods       labels.Selector
	of         labels.Selector // of namespaces; nil: only the set's own namespace is selected
	namespaces map[string]bool // where pods are selected
}

func parseSelectors(set *policy.Set, namespaces map[string]policy.Namespace) (*selectorSet, error) {
	s := &selectorSet{own: set.Namespace}
	for _, selector := range append(set.Names(), set.Selectors()...) {
		one := &selected{selector: selector, namespaces: map[string]bool{}}
		var err error
		if one.pods, err = labels.Parse(selector.Pods); err != nil {
			return nil, err
		}
		if selector.Anywhere {
			if one.of, err = labels.Parse(selector.Namespaces); err != nil {
				return nil, err
			}
			for namespace, has := range namespaces {
				if one.of.Matches(labels.Set(has.Labels)) {
					one.namespaces[namespace] = true
				}
			}
		} else {
			one.namespaces[set.Namespace] = true
		}
		if selector.Port == "" {
			s.all = append(s.all, one)
		} else {
			s.names = append(s.names, one)
		}
	}
	return s, nil
}

// matches reports whether the pod belongs to the group of the selector.
func (s *selected) matches(pod *netmodel.Pod) bool {
	return (s.selector.Port == "" || slices.Contains(pod.Ports, s.selector.Port)) && s.selects(pod)
}

// selects reports whether the pod's labels match.
func (s *selected) selects(pod *netmodel.Pod) bool {
	return s.namespaces[pod.Namespace] && s.pods.Matches(labels.Set(pod.Labels))
}

// addNumbers adds the selectors with the numbers that pods have for the named ports of a set.
func (s *selectorSet) addNumbers(set *policy.Set, pods map[string]*netmodel.Pod, present map[policy.Selector]bool) {
	var has []policy.Named
	for _, pod := range pods {
		numbers := policy.PortNumbers(pod.Ports)
		for _, one := range s.names {
			if number := numbers[one.selector.Port]; number != 0 && !pod.ManyLabels && one.selects(pod) {
				has = append(has, policy.Named{Name: one.selector, Namespace: pod.Namespace, Number: number})
			}
		}
	}
	set.SetNumbers(has, present)
	for _, one := range s.names {
		for _, selector := range set.Numbers(one.selector) {
			s.all = append(s.all, &selected{selector, one.pods, one.of, one.namespaces})
		}
	}
}

// namespaces are the namespaces with pods that may be selected, and the set's own.
func (s *selectorSet) namespaces() []string {
	all := slices.Sorted(maps.Keys(s.elsewhere()))
	if s.own != "" {
		all = append(all, s.own)
	}
	return all
}

// elsewhere are the selected namespaces without the set's own.
func (s *selectorSet) elsewhere() map[string]bool {
	all := map[string]bool{}
	for _, one := range slices.Concat(s.all, s.names) {
		maps.Copy(all, one.namespaces)
	}
	delete(all, s.own)
	return all
}

// selects reports whether pods of another namespace than the set's own may be selected.
func (s *selectorSet) selects(namespace string) bool {
	return namespace != s.own && s.any(func(one *selected) bool { return one.namespaces[namespace] })
}

func (s *selectorSet) any(is func(*selected) bool) bool {
	return slices.ContainsFunc(s.all, is) || slices.ContainsFunc(s.names, is)
}

// changed reports whether one of the selectors selects a namespace now, and did not before, or the other way about.
func (s *selectorSet) changed(namespace string, has map[string]string, there bool) bool {
	return s.any(func(one *selected) bool {
		return one.of != nil && one.namespaces[namespace] != (there && one.of.Matches(labels.Set(has)))
	})
}

// of returns one of the selectors.
func (s *selectorSet) of(selector policy.Selector) *selected {
	for _, list := range [][]*selected{s.all, s.names} {
		if i := slices.IndexFunc(list, func(one *selected) bool { return one.selector == selector }); i >= 0 {
			return list[i]
		}
	}
	return &selected{selector: selector}
}

// here reports whether a selector selects pods of the set's own namespace.
func (s *selectorSet) here(selector policy.Selector) bool { return s.of(selector).namespaces[s.own] }
