package e2e

import (
	"slices"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
	"github.com/ovn-multinet/ovn-multinet/e2e/shapes"
)

// TestShapesOfCharts starts pods as public charts describe them: with their NADs unchanged, as networks of other
// plugins, and with OVN networks in the place of the first plugin. The annotations are the same.
func TestShapesOfCharts(t *testing.T) {
	all, err := shapes.All()
	if err != nil {
		t.Fatal(err)
	}
	w := parallelWorld(t, lab.Options{Nodes: 1}, func(l *lab.Lab) {
		l.Nodes[0].PluginConf = func(entry map[string]any) {
			entry["allowedDelegates"], entry["allowedIPAM"] = allowed, allowedIPAM
		}
		l.Nodes[0].AgentArgs = append(l.Nodes[0].AgentArgs, "--cni-args-for-static")
	})
	w.wire("up0")
	w.Base = w.Snapshot()
	for _, s := range all {
		w.part("as delegates "+s.Name, func(t *testing.T, w *world) {
			for name, n := range s.Networks {
				config := n.AsDelegate("up0")
				if strings.Contains(config, `"ipvlan"`) {
					t.Log("many kernels, and the lab, have no ipvlan: macvlan stands in for it")
					config = shapes.WithoutIPVLAN(config)
				}
				w.NAD(name, config)
			}
			w.shape(t, s, s.Delegates)
			for name := range s.Networks {
				w.Must(w.RemoveManifest(name + ".yaml"))
			}
			if s.Name == "bridge-sbr" {
				w.onNode("ip", "link", "del", "shbr0")
			}
			w.AsBefore()
		})
		w.part("on OVN "+s.Name, func(t *testing.T, w *world) {
			var names []string
			for name, n := range s.Networks {
				config, err := n.AsOVN()
				w.Must(err)
				w.network(name, config)
				names = append(names, name)
			}
			w.shape(t, s, nil)
			w.endNetworks(names...)
			w.AsBefore()
		})
	}
}

// shape starts a pod of a chart and looks at its interfaces. given are addresses that only the NAD names.
func (w *world) shape(t *testing.T, s shapes.Shape, given map[string][]string) {
	p := w.Attached(0, "chart", s.Annotation)
	links := w.Links(p)
	equal(t, "interfaces", len(links), len(s.Want)+1)
	for _, status := range w.Status(p)[1:] {
		name := status.Interface
		want, asked := s.Want[name]
		if !asked {
			t.Errorf("the pod has %s, which nobody asked for", name)
		}
		want = append(want, given[name]...)
		if got := links[name].Prefixes(); len(want) > 0 || len(s.Delegates[name]) == 0 {
			slices.Sort(got)
			slices.Sort(want)
			equal(t, "addresses of "+name, strings.Join(got, " "), strings.Join(want, " "))
		} else {
			equal(t, "addresses that OVN gave "+name, len(got), 1)
		}
		equal(t, "status of "+name, status.IPs, links[name].IPs())
	}
	main := append(w.routes(p, "-4"), w.routes(p, "-6")...)
	for _, r := range s.Routes {
		if !slices.Contains(main, r) {
			t.Errorf("the main table lacks %s: %q", r, main)
		}
	}
	equal(t, "default routes", w.defaults(p, "-4"), []string{"default via 10.244.1.1 dev eth0"})
	table := ""
	if len(s.Table100) > 0 {
		table = w.Exec(p, "ip", "route", "show", "table", "100")
	}
	for _, r := range s.Table100 {
		if !strings.Contains(table, r) {
			t.Errorf("table 100 lacks %s: %s", r, table)
		}
	}
	w.Must(p.Check(w.Ctx))
	w.End(p)
}
