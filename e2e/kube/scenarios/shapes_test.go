//go:build kube

package scenarios

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/e2e/kube"
	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
	"github.com/ovn-multinet/ovn-multinet/e2e/shapes"
)

// TestShapesOfCharts starts the pods of public charts on a cluster: first with their NADs unchanged, then with OVN
// networks in their place, all at once. The annotations are the same.
func TestShapesOfCharts(t *testing.T) {
	t.Parallel()
	all, err := shapes.All()
	if err != nil {
		t.Fatal(err)
	}
	w := newWorldOf(t, kube.Options{Nodes: 2, AllowedDelegates: []string{"macvlan", "bridge", "tuning"}},
		`OVN_MULTINET_CNI_ARGS_FOR_STATIC: "true"`)
	for _, n := range w.Nodes {
		w.on(n, "ip", "link", "add", "up0", "type", "veth", "peer", "name", "up0p")
		w.on(n, "ip", "link", "set", "up0", "up")
	}
	w.run("as delegates", func(w *world) {
		w.charts(all, func(n shapes.Network) string {
			// Many kernels, and the lab, have no ipvlan: macvlan stands in for it.
			return shapes.WithoutIPVLAN(n.AsDelegate("up0"))
		}, true)
	})
	w.run("on OVN", func(w *world) {
		w.charts(all, func(n shapes.Network) string {
			config, err := n.AsOVN()
			w.Must(err)
			return config
		}, false)
	})
}

// charts applies all NADs and pods, as charts do at once, looks at the pods, and deletes all.
func (w *world) charts(all []shapes.Shape, config func(shapes.Network) string, delegates bool) {
	nads, pods := "", ""
	for i, s := range all {
		for name, n := range s.Networks {
			nads += nad(name, config(n))
		}
		pods += pod(s.Name, fmt.Sprint("node", i%2+1), s.Annotation)
	}
	w.Must(w.Apply(w.Ctx, nads+pods))
	for _, s := range all {
		w.Must(w.WaitReady(w.Ctx, "default/"+s.Name))
		w.chart(s, delegates)
	}
	w.Must(w.Delete(w.Ctx, pods))
	for _, s := range all {
		w.Must(w.WaitGone(w.Ctx, "default/"+s.Name))
	}
	w.Must(w.Delete(w.Ctx, nads))
	w.Must(lab.Eventually(w.Ctx, w.nothingLeft))
}

// chart looks at the interfaces of a chart's pod.
func (w *world) chart(s shapes.Shape, delegates bool) {
	links := w.links(s.Name)
	if len(links) != len(s.Want)+1 {
		w.T.Errorf("%s has the interfaces %v, want eth0 and %v", s.Name, links, s.Want)
	}
	for _, status := range w.status(s.Name)[1:] {
		name := status.Interface
		want, leased := slices.Clone(s.Want[name]), 0
		if delegates {
			want = append(want, s.Delegates[name]...)
		} else if len(s.Delegates[name]) > 0 {
			leased = 1
		}
		got := slices.Clone(links[name].Addresses)
		slices.Sort(got)
		slices.Sort(want)
		if leased == 0 && !slices.Equal(got, want) || leased > 0 && len(got) != leased {
			w.T.Errorf("%s: %s has the addresses %q, want %q and %d of OVN", s.Name, name, got, want, leased)
		}
		if !slices.Equal(status.IPs, links[name].ips()) {
			w.T.Errorf("%s: the status of %s has %q, the link %q", s.Name, name, status.IPs, got)
		}
	}
	routes := w.routes(s.Name)
	for _, r := range s.Routes {
		if !slices.ContainsFunc(routes, func(have string) bool { return strings.HasPrefix(have, r) }) {
			w.T.Errorf("%s: the main table lacks %s: %q", s.Name, r, routes)
		}
	}
}
