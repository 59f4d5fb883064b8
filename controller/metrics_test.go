package controller_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ovn-multinet/ovn-multinet/controller"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbtest"
)

// registered has the metrics of a controller on a registry.
func registered(m *controller.Metrics) *prometheus.Registry {
	registry := prometheus.NewRegistry()
	m.Register(registry)
	return registry
}

// scrape reads the samples that are not 0, one a line, without the prefix that all have.
func scrape(t *testing.T, registry *prometheus.Registry) string {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, family := range families {
		for _, m := range family.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			if value := m.GetGauge().GetValue() + m.GetCounter().GetValue(); value != 0 {
				lines = append(lines, fmt.Sprintf("%s{%s} %v", strings.TrimPrefix(family.GetName(), "ovn_multinet_controller_"), strings.Join(labels, ","), value))
			}
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// sampleOf returns one sample as scrape writes it, "" when it is 0.
func sampleOf(t *testing.T, registry *prometheus.Registry, sample string) string {
	t.Helper()
	for line := range strings.Lines(scrape(t, registry)) {
		if value, ok := strings.CutPrefix(line, sample+" "); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

func TestMetricsOfRefusedNADs(t *testing.T) {
	w, a := nbtest.NewWorld(t), newAPI()
	c := newController(w.Networks, a, leads, quiet)
	registry := registered(c.metrics)
	r := runController(t, w, c)
	refused := func() string {
		var lines []string
		for line := range strings.Lines(scrape(t, registry)) {
			if text, ok := strings.CutPrefix(line, "refused_objects"); ok {
				lines = append(lines, strings.TrimSpace(strings.Replace(text, ",kind=nad", "", 1)))
			}
		}
		return strings.Join(lines, " ")
	}
	r.apply("shop/blue", nbtest.Spec(nbtest.Net4+nbtest.OnR1))
	r.wantState(t, "shop/blue", "ready, held")
	steps := []struct {
		name string
		do   func()
		want string
	}{
		{"a mistake", func() { r.apply("shop/typo", nbtest.Spec(`"mtu":1`)) }, "{code=7} 1"},
		{"what is no JSON", func() { r.apply("shop/blue", nbtest.Spec("x")) }, "{code=7} 2"},
		{"no grant", func() { r.apply("shop/v42", nbtest.Spec(nbtest.Localnet("phys", `,"vlanID":42`))) }, "{code=102} 1 {code=7} 2"},
		{"something in the way", func() { r.apply("shop/red", nbtest.Spec(nbtest.Net4+nbtest.OnR1)) }, "{code=102} 1 {code=11} 1 {code=7} 2"},
		{"another mistake in the same NAD", func() { r.apply("shop/typo", nbtest.Spec(nbtest.Localnet("phys", ""))) }, "{code=102} 2 {code=11} 1 {code=7} 1"},
		{"mended", func() { r.apply("shop/blue", nbtest.Spec(nbtest.Net4+nbtest.OnR1)) }, "{code=102} 2 {code=11} 1"},
		{"another plugin's", func() { r.apply("shop/v42", `{"type":"bridge"}`) }, "{code=102} 1 {code=11} 1"},
		{"deleted", func() { r.deleteNAD(t, "shop/typo") }, "{code=11} 1"},
		{"what was in the way is gone", func() { r.deleteNAD(t, "shop/blue") }, ""},
		{"a mistake in a network with a port", func() {
			w.PodAt(t, "shop/red", nbtest.Strange, "web-0", "net1")
			r.apply("shop/red", nbtest.Spec("x"))
		}, "{code=7} 1"},
		{"which is being deleted", func() { r.deleteNAD(t, "shop/red") }, ""},
	}
	for _, step := range steps {
		step.do()
		t.Log(step.name)
		eventually(t, step.want, refused)
	}
}

// wantRefused waits until the metrics count so many refused objects of a kind; "": none.
func wantRefused(t *testing.T, registry *prometheus.Registry, kind, want string) {
	t.Helper()
	eventually(t, want, func() string { return sampleOf(t, registry, "refused_objects{code=,kind="+kind+"}") })
}

func TestMetricsOfRefusedPods(t *testing.T) {
	w := newOutsideWorld(t)
	registry := registered(w.metrics)
	w.attach(t, "a", "n1", 7, floating17)
	w.wantNATs(t, distributed17)
	w.attach(t, "b", "n2", 8, floating17)
	wantRefused(t, registry, "pod", "1")
	w.attach(t, "c", "n2", 9, `{"net1":"auto"}`)
	wantRefused(t, registry, "pod", "2")
	for _, name := range []string{"c", "b"} {
		w.kube.with(func() { w.kube.pods["shop/"+name].Outside = "" })
		w.queue.BackendChanged("shop", name)
		wantRefused(t, registry, "pod", map[string]string{"c": "1", "b": ""}[name])
	}
	// A pod that ends is not counted any more, also one whose annotation no row was ever made from.
	for name, annotation := range map[string]string{"d": floating17, "e": `{"net1":`} {
		w.attach(t, name, "n2", name[0], annotation)
		wantRefused(t, registry, "pod", "1")
		w.kube.with(func() { delete(w.kube.pods, "shop/"+name) })
		w.queue.BackendChanged("shop", name)
		wantRefused(t, registry, "pod", "")
	}
}

func TestMetricsOfRefusedServices(t *testing.T) {
	w := newBalancedWorld(t)
	registry := registered(w.metrics)
	w.put("192.0.2.99") // in no pool
	wantRefused(t, registry, "service", "1")
	w.put("192.0.2.18")
	wantRefused(t, registry, "service", "")
	w.put("192.0.2.99")
	wantRefused(t, registry, "service", "1")
	w.services.remove("shop/web")
	wantRefused(t, registry, "service", "")
}

func TestMetricsOfRefusedPolicies(t *testing.T) {
	w := newPolicyWorld(t)
	registry := registered(w.metrics)
	w.apply("shop/blue", nbtest.Spec(""))
	w.put("p", `{"podSelector":{},"ingres":[]}`)
	wantRefused(t, registry, "policy", "1")
	w.put("p", fromWeb)
	wantRefused(t, registry, "policy", "")
	w.put("p", `{"podSelector":{},"ingres":[]}`)
	wantRefused(t, registry, "policy", "1")
	w.kube.with(func() { delete(w.kube.policies, "shop/p") })
	w.queue.PolicyChanged("shop")
	wantRefused(t, registry, "policy", "")
}

// A controller that only compares commits nothing; passes that fail are told apart.
func TestMetricsOfPasses(t *testing.T) {
	w, a := nbtest.NewWorld(t), newAPI()
	c := newController(w.Networks, a, leads, quiet)
	registry := registered(c.metrics)
	r := runController(t, w, c)
	eventually(t, "1", func() string { return sampleOf(t, registry, "passes_total{kind=all,result=done}") })
	eventually(t, "1", func() string { return sampleOf(t, registry, "nb_transactions_total{}") }) // tells agents that it leads
	r.apply("shop/blue", nbtest.Spec(nbtest.Net4))
	r.wantState(t, "shop/blue", "ready, held")
	if got := sampleOf(t, registry, "nb_transactions_total{}"); got != "2" {
		t.Errorf("%q transactions with one network, want 2", got)
	}
	r.with(func() { a.failing["shop/none"] = errors.New("the API is away") })
	c.NADChanged("shop", "none")
	eventually(t, "true", func() string {
		return fmt.Sprint(sampleOf(t, registry, "passes_total{kind=nad,result=failed}") != "")
	})
}

// Who waits for the Lease, lost it or has ended does not lead.
func TestMetricsOfTheLeader(t *testing.T) {
	for _, end := range []string{"it lost the Lease", "it ended"} {
		t.Run(end, func(t *testing.T) {
			w, a := nbtest.NewWorld(t), newAPI()
			var lost atomic.Bool
			c := newController(w.Networks, a, func() error {
				if lost.Load() {
					return errors.New("lost")
				}
				return nil
			}, quiet)
			registry := registered(c.metrics)
			if got := scrape(t, registry); got != "nb_connected{} 1" {
				t.Errorf("before it leads: %s", got)
			}
			r := runController(t, w, c)
			eventually(t, "1", func() string { return sampleOf(t, registry, "leader{}") })
			if end == "it ended" {
				r.stop()
			} else {
				lost.Store(true)
			}
			if got := sampleOf(t, registry, "leader{}"); got != "" {
				t.Errorf("leader %s, but %s", got, end)
			}
		})
	}
}

// What waits for its turn is the depth of the queue.
func TestMetricsOfTheQueue(t *testing.T) {
	w := nbtest.NewWorld(t)
	c := newController(w.Networks, newAPI(), leads, quiet)
	registry := registered(c.metrics)
	for i := range 3 {
		c.NADChanged("shop", fmt.Sprint("n", i%2)) // one twice
	}
	if got := sampleOf(t, registry, "queue_depth{}"); got != "2" {
		t.Errorf("%q wait, want 2", got)
	}
	runController(t, w, c)
	eventually(t, "", func() string { return sampleOf(t, registry, "queue_depth{}") })
}
