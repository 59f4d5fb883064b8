package show

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/ovn-multinet/ovn-multinet/kubectl/check"
)

// Limit is how much of a resource the accepted objects of a namespace need in OVN, and may need together
// (docs/limits.md).
type Limit struct {
	Namespace string `json:"namespace"`
	Resource  string `json:"resource"`
	Used      uint64 `json:"used"`
	Limit     uint64 `json:"limit"`
}

// ParseLimits reads the account of a controller from its metrics. leads reports whether the controller leads; another
// one has no account.
func ParseLimits(metrics io.Reader) (list []Limit, leads bool, err error) {
	families, leads, err := check.ParseMetrics(metrics)
	if err != nil {
		return nil, false, err
	}
	byKey := map[[2]string]*Limit{}
	each := func(name string, note func(*Limit, uint64)) {
		for _, m := range families[name].GetMetric() {
			key := [2]string{check.Label(m, "namespace"), check.Label(m, "resource")}
			if byKey[key] == nil {
				byKey[key] = &Limit{Namespace: key[0], Resource: key[1]}
			}
			note(byKey[key], uint64(m.GetGauge().GetValue()))
		}
	}
	each("ovn_multinet_controller_cost", func(l *Limit, n uint64) { l.Used = n })
	each("ovn_multinet_controller_cost_limit", func(l *Limit, n uint64) { l.Limit = n })
	list = []Limit{}
	for _, l := range byKey {
		list = append(list, *l)
	}
	slices.SortFunc(list, func(a, b Limit) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Resource, b.Resource))
	})
	return list, leads, nil
}

// LimitsOf returns the lines of a namespace.
func LimitsOf(list []Limit, namespace string) []Limit {
	return slices.DeleteFunc(list, func(l Limit) bool { return l.Namespace != namespace })
}

// LimitTable writes a line for each namespace and resource.
func LimitTable(w io.Writer, list []Limit) error {
	if len(list) == 0 {
		_, err := fmt.Fprintln(w, "no networks, policies or Services on networks")
		return err
	}
	t := table(w)
	fmt.Fprintln(t, "NAMESPACE\tRESOURCE\tUSED\tLIMIT\tPERCENT")
	for _, l := range list {
		percent := "-"
		if l.Limit > 0 {
			percent = fmt.Sprint(l.Used * 100 / l.Limit)
		}
		printf(t, "%s\t%s\t%d\t%d\t%s\n", l.Namespace, l.Resource, l.Used, l.Limit, percent)
	}
	return t.Flush()
}
