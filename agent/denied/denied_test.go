package denied

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovnport"
)

// nbWith is a Northbound database with one rule, and with the pods at some addresses.
type nbWith struct {
	rule  ovnport.DenyingRule
	pods  map[string]string // by address
	err   error
	reads int
}

func (n *nbWith) DenyingRules(_ context.Context, keys []string) (map[string]*ovnport.DenyingRule, error) {
	n.reads++
	rules := map[string]*ovnport.DenyingRule{}
	for _, k := range keys {
		if k == key {
			rules[k] = &n.rule
		}
	}
	return rules, n.err
}

func (n *nbWith) PodsAt(_ context.Context, keys []string) (map[string]string, error) {
	n.reads++
	all := map[string]string{}
	for address, pod := range n.pods {
		all[ovndb.AddressKey(n.rule.Book, netip.MustParseAddr(address))] = pod
	}
	return all, n.err
}

func newCounterVec() *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "packets"}, []string{"namespace", "policy", "direction"})
}

// series are the series of a metric, with their values.
func series(t *testing.T, c prometheus.Collector) map[string]float64 {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(c)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var words []string
			for _, l := range m.GetLabel() {
				words = append(words, l.GetValue())
			}
			all[strings.Join(words, " ")] = m.GetCounter().GetValue()
		}
	}
	return all
}

// TestReader: a line becomes a line with pods and policy. Lines that are not ours become nothing. NB is asked once.
func TestReader(t *testing.T) {
	l := newLog(t)
	nb := &nbWith{
		rule: ovnport.DenyingRule{Policy: "shop/db", Rule: "ingress deny", Network: "shop/blue", Book: "shop/blue", ToPod: true},
		pods: map[string]string{"10.1.0.11": "shop/db-0"},
	}
	var out bytes.Buffer
	packets := newCounterVec()
	r := New(l.path, nb, packets, slog.New(slog.NewTextHandler(&out, nil)))
	t.Cleanup(r.follower.close)
	l.must(r.pass(t.Context()))
	other := strings.Replace(name, key, strings.Replace(key, "0", "f", 1), 1)
	l.write(head + name + flow + "\n" + head + other + flow + "\nnoise\n" + head + name + flow + "\n")
	l.must(r.pass(t.Context()))
	const want = `msg="a policy has denied a packet" policy=shop/db rule="ingress deny" network=shop/blue ` +
		"fromAddress=10.1.0.10:41234 to=shop/db-0 toAddress=10.1.0.11:5432 protocol=tcp\n"
	if got := out.String(); strings.Count(got, want) != 2 || strings.Count(got, "\n") != 2 {
		t.Errorf("the log is\n%s\nwant two lines with\n%s", got, want)
	}
	if got := fmt.Sprint(series(t, packets)); got != "map[ingress shop db:2]" {
		t.Errorf("the metric is %s", got)
	}
	if l.write(head + name + flow + "\n"); nb.reads != 2 {
		t.Errorf("NB was read %d times, want 2", nb.reads)
	}
	nb.err = errors.New("NB is away")
	l.must(r.pass(t.Context())) // all is known
	l.write(head + strings.Replace(name+flow, "10.1.0.10", "10.1.0.99", 1) + "\n")
	if err := r.pass(t.Context()); !errors.Is(err, nb.err) || nb.reads != 3 {
		t.Errorf("%v after %d reads; want the error of NB", err, nb.reads)
	}
}

// TestBoundaryManyAddresses: what is remembered and asked of NB is bounded, whatever addresses packets have.
func TestBoundaryManyAddresses(t *testing.T) {
	nb := &nbWith{rule: ovnport.DenyingRule{Policy: "p", Book: "shop/blue"}}
	r := New("", nb, newCounterVec(), slog.New(slog.DiscardHandler))
	r.rules, r.pods = map[string]*ovnport.DenyingRule{}, map[string]string{}
	var packets []packet
	for i := range 3 * maxKnown {
		a := netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})
		packets = append(packets, packet{acl: key, source: a, target: a})
	}
	if err := r.learn(t.Context(), packets); err != nil || len(r.pods) != maxKnown {
		t.Errorf("%d addresses are remembered, want %d; %v", len(r.pods), maxKnown, err)
	}
}

// TestBoundarySeries: policies that a tenant makes give a bounded number of series, and take none from others.
func TestBoundarySeries(t *testing.T) {
	packets := newCounterVec()
	c := newCounter(packets)
	for i := range 10 * maxPolicies {
		c.add(&ovnport.DenyingRule{Policy: fmt.Sprint("hostile/p", i), ToPod: true})
	}
	c.add(&ovnport.DenyingRule{Policy: "shop/db", ToPod: true})
	c.add(&ovnport.DenyingRule{Policy: "guard"})
	all := series(t, packets)
	if len(all) != maxPolicies+3 || all["ingress shop db"] != 1 || all["egress  guard"] != 1 ||
		all["ingress hostile (others)"] != 9*maxPolicies {
		t.Errorf("series %v", all)
	}
	for i := range 2 * maxNamespaces {
		c.add(&ovnport.DenyingRule{Policy: fmt.Sprintf("n%d/p", i)})
	}
	if all = series(t, packets); len(all) > maxPolicies+4+maxNamespaces || all["egress (others) (others)"] == 0 {
		t.Errorf("%d series", len(all))
	}
}
