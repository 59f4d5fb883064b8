package controller

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/ovn-multinet/ovn-multinet/policy"
)

// selectorSet is the selectors of a set, parsed.
type selectorSet struct {
	own string
	all []*selected
}

type selected struct {
	selector   policy.Selector
	pods       labels.Selector
	namespaces map[string]bool // where pods are selected
}

func parseSelectors(set *policy.Set, namespaces map[string]policy.Namespace) (*selectorSet, error) {
	s := &selectorSet{own: set.Namespace}
	for _, selector := range set.Selectors() {
		one := &selected{selector: selector, namespaces: map[string]bool{}}
		var err error
		if one.pods, err = labels.Parse(selector.Pods); err != nil {
			return nil, err
		}
		if selector.Anywhere {
			of, err := labels.Parse(selector.Namespaces)
			if err != nil {
				return nil, err
			}
			for namespace, has := range namespaces {
				if of.Matches(labels.Set(has.Labels)) {
					one.namespaces[namespace] = true
				}
			}
		} else {
			one.namespaces[set.Namespace] = true
		}
		s.all = append(s.all, one)
	}
	return s, nil
}

func (s *selected) matches(pod *policy.Pod) bool {
	return s.namespaces[pod.Namespace] && s.pods.Matches(labels.Set(pod.Labels))
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
	for _, one := range s.all {
		maps.Copy(all, one.namespaces)
	}
	delete(all, s.own)
	return all
}

// of returns one of the selectors.
func (s *selectorSet) of(selector policy.Selector) *selected {
	i := slices.IndexFunc(s.all, func(one *selected) bool { return one.selector == selector })
	if i < 0 {
		return &selected{selector: selector}
	}
	return s.all[i]
}

// here tells whether a selector selects pods of the set's own namespace.
func (s *selectorSet) here(selector policy.Selector) bool { return s.of(selector).namespaces[s.own] }
