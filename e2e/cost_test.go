package e2e

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
	"github.com/ovn-multinet/ovn-multinet/nad"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/netmodel/cost"
	"github.com/ovn-multinet/ovn-multinet/netmodel/policy"
	"github.com/ovn-multinet/ovn-multinet/netmodel/service"
)

// costs compares what objects need with what is calculated before they have rows.
type costs struct {
	*world
	last cost.Cost // of all rows of NB, and of the flows of node 0
}

// now reads the bytes of NB, the flows of node 0 and the groups of ports, when OVN has nothing left to do.
func (c *costs) now() (now cost.Cost) {
	c.T.Helper()
	c.NBCtl("--wait=hv", "sync")
	dump, err := exec.CommandContext(c.Ctx, "ovsdb-client", "--format=json", "dump", "unix:"+c.NBSocket(), "OVN_Northbound").Output()
	c.Must(err)
	now[cost.Bytes] = len(dump)
	flows, err := c.Nodes[0].OFCtl(c.Ctx, "dump-flows", "--no-stats")
	c.Must(err)
	now[cost.Flows] = strings.Count(flows, "\n")
	for vip := range strings.FieldsSeq(c.NBCtl("--bare", "--columns=vips", "list", "Load_Balancer")) {
		if _, backends, ok := strings.Cut(vip, "="); ok && backends != "" {
			now[cost.Endpoints] += 1 + strings.Count(backends, ",")
		}
	}
	now[cost.Groups] = len(strings.Fields(c.NBCtl("--bare", "--columns=name", "list", "Port_Group")))
	return now
}

// is makes a change, and compares what OVN has got with what was calculated: within a factor of two, for each resource
// of which there is more than a few.
func (c *costs) is(what string, want cost.Cost, change func()) {
	c.T.Helper()
	change()
	now := c.now()
	for _, r := range cost.All() {
		got, few := now[r]-c.last[r], map[cost.Resource]int{cost.Bytes: 500, cost.Flows: 20}[r]
		c.T.Logf("%-40s %6d %s, %d calculated", what, got, r, want[r])
		if got > 2*want[r]+few || 2*got+few < want[r] {
			c.T.Errorf("%s needs %d %s, and %d were calculated", what, got, r, want[r])
		}
	}
	c.last = now
}

// listOf are n words with commas between them.
func listOf(n int, word func(i int) string) string {
	var words []string
	for i := range n {
		words = append(words, word(i))
	}
	return strings.Join(words, ",")
}

// manyPorts are n ports of a Service, as YAML.
func manyPorts(n int) string {
	return listOf(n, func(i int) string { return fmt.Sprintf("{name: p%d, port: %d}", i, 1000+i) })
}

// serviceOf parses a Service.
func (c *costs) serviceOf(text string) *service.Service {
	var o struct {
		Metadata struct {
			Namespace, Name     string
			Labels, Annotations map[string]string
		}
		Spec json.RawMessage
	}
	c.Must(yaml.Unmarshal([]byte(text), &o))
	m := o.Metadata
	parsed := service.NewObject(m.Namespace, m.Name, 1, m.Labels, m.Annotations, o.Spec)
	if parsed.Service == nil {
		c.T.Fatal(parsed.Refusal)
	}
	return parsed.Service
}

// policyOf parses a policy for network red.
func (c *costs) policyOf(name, text string) *policy.Policy {
	spec, err := yaml.YAMLToJSON([]byte(text))
	c.Must(err)
	o := policy.NewObject("shop", name, 1, map[string]string{policy.ForAnnotation: "red"}, spec, len(spec))
	if o.Policy == nil {
		c.T.Fatal(o.Refusal)
	}
	return o.Policy
}

// TestBoundaryCosts: what is calculated of each kind of objects, for its largest ones, is what they need in OVN.
func TestBoundaryCosts(t *testing.T) {
	w := parallelWorld(t, lab.Options{Nodes: 1}, nil)
	c := &costs{world: w}
	pod := func(name, network string) *lab.Pod {
		return w.labelled(0, name, network, map[string]string{"app": "s"})
	}
	pod("first", "blue")
	c.last = c.now()

	routes := listOf(netmodel.MaxRoutes, func(i int) string { return fmt.Sprintf(`{"dst":"10.%d.%d.0/24"}`, 100+i/250, i%250) })
	excludes := listOf(netmodel.MaxExclude, func(i int) string { return fmt.Sprintf("10.9.%d.0/28", i) })
	dhcpRoutes := listOf(30, func(i int) string { return fmt.Sprintf(`{"dst":"10.%d.0.0/16"}`, 100+i) })
	ranges := listOf(netmodel.MaxRanges, func(i int) string { return fmt.Sprintf(`{"from":"10.12.%d.0","to":"10.12.%[1]d.99"}`, i) })
	virtual := listOf(netmodel.MaxVirtualAddresses, func(i int) string {
		return fmt.Sprintf(`{"address":"10.13.0.%d","selector":{"app":"a"},"vrid":%[1]d}`, 100+i)
	})
	behind := listOf(netmodel.MaxSubnetsBehind, func(i int) string {
		return fmt.Sprintf(`{"subnet":"10.%d.0.0/16","via":"%s"}`, 60+i, listOf(netmodel.MaxVia, func(i int) string {
			return fmt.Sprint("10.14.0.", 10+i)
		}))
	})
	for name, config := range map[string]string{
		"virtual": `{"type":"ovn-multinet","subnets":"10.13.0.0/24,fd13::/64","virtualAddresses":[` + virtual + `]}`,
		"small":   `{"type":"ovn-multinet","subnets":"10.8.0.0/24"}`,
		"large":   `{"type":"ovn-multinet","subnets":"10.9.0.0/16,fd09::/64","excludeSubnets":"` + excludes + `","routes":[` + routes + `]}`,
		"core":    onCore,
		"layer3":  `{"type":"ovn-multinet","topology":"layer3","subnets":"10.10.0.0/16,fd10::/48"}`,
		"dhcp": `{"type":"ovn-multinet","router":"vms","subnets":"10.12.0.0/16,fd12::/64","routes":[` + dhcpRoutes + `],
			"ranges":[` + ranges + `],"dhcp":{"dns":["10.12.0.53","10.12.0.54","fd12::53","fd12::54"],"domain":"example.org"}}`,
	} {
		parsed, err := netmodel.ParseNetwork("shop", name, []byte(config))
		w.Must(err)
		need := parsed.Cost().Plus(cost.Cost{cost.Bytes: 1400, cost.Flows: 250}) // with a pod
		if name == "layer3" {
			need[cost.Bytes] += 2500 // the switch of the node
		}
		c.is("network "+name, need, func() {
			w.network(name, config)
			pod(name, name)
		})
	}

	functions := `{"type":"ovn-multinet","router":"functions","subnets":"10.14.0.0/24","subnetsBehind":[` + behind + `]}`
	parsed, err := netmodel.ParseNetwork("shop", "functions", []byte(functions))
	w.Must(err)
	need := parsed.Cost().Plus(cost.Cost{cost.Bytes: 1400 * netmodel.MaxVia, cost.Flows: 250 + 40*netmodel.MaxVia})
	c.is("network with subnets behind pods", need, func() {
		w.network("functions", functions)
		for i := range netmodel.MaxVia {
			p := w.Pod(0, fmt.Sprint("function-", i), fmt.Sprintf(`[{"name":"functions","ips":["10.14.0.%d"]}]`, 10+i))
			p.Ready = "True"
			w.Must(p.WriteManifest())
			w.Add(p)
		}
		w.Eventually(func() error {
			out, err := w.Lab.NBCtl(w.Ctx, "--bare", "--columns=nexthop", "find", "Logical_Router_Static_Route", "nexthop!=discard")
			if got := len(strings.Fields(out)); err != nil || got != netmodel.MaxVia*netmodel.MaxSubnetsBehind {
				return fmt.Errorf("%d routes: %v", got, err)
			}
			return nil
		})
	})

	w.network("vms", vmNetwork)
	pod("vms", "vms")
	vm := w.claimed("shop", "vm", strings.Repeat("n", 200))
	c.last = c.now()
	one := netmodel.IPAMClaimCost("shop/vm-10-"+strings.Repeat("n", 200), "shop/vms", 2)
	c.is("IPAMClaims without a pod", one.Times(nad.MaxNetworks), func() {
		w.Add(vm)
		w.End(vm)
	})

	w.network("red", `{"type":"ovn-multinet","subnets":"10.11.0.0/24,fd11::/64"}`)
	var backends []service.Backend
	for i := range 8 {
		p := pod(fmt.Sprint("s-", i), "red")
		b := service.Backend{Name: p.Name, Ready: true}
		for _, a := range w.Links(p)["net1"].IPs() {
			b.Addresses = append(b.Addresses, netip.MustParseAddr(a))
		}
		backends = append(backends, b)
	}
	w.service("shop/one", serviceYAML("shop/one", "red", "auto", manyPorts(1), "")) // has the private router
	c.last = c.now()
	large := strings.ReplaceAll(serviceYAML("shop/s", "red", "auto", manyPorts(service.MaxPorts), ""), "app=one", "app=s")
	c.is("Service", c.serviceOf(large).Cost(backends), func() { w.service("shop/s", large) })

	rules := map[string]string{
		"ports": `{from: [{podSelector: {matchLabels: {app: s}}}], ports: [` + listOf(policy.MaxPorts, func(i int) string {
			return fmt.Sprintf("{port: %d, endPort: %d}", 1000*i+1, 1000*i+998)
		}) + `]}`,
		"CIDRs": `{from: [` + listOf(policy.MaxPeers, func(i int) string {
			return fmt.Sprintf("{ipBlock: {cidr: 10.%d.0.0/16, except: [10.%d.1.0/24]}}", 100+i, 100+i)
		}) + `], ports: [{port: 80}]}`,
		"selectors": `{from: [` + listOf(policy.MaxPeers, func(i int) string {
			return fmt.Sprintf("{podSelector: {matchLabels: {app: p%d}}}", i)
		}) + `]}`,
	}
	for i := range policy.MaxPeers {
		w.labelled(0, fmt.Sprint("peer-", i), "red", map[string]string{"app": fmt.Sprint("p", i)})
	}
	for name := range rules {
		w.labelled(0, "for-"+strings.ToLower(name), "red", map[string]string{"for": name})
	}
	w.policy("first", "red", `{podSelector: {matchLabels: {app: s}}}`) // OVN tracks connections from now on
	c.last = c.now()
	for name, rule := range rules {
		spec := fmt.Sprintf(`{podSelector: {matchLabels: {for: %s}}, ingress: [%s]}`, name, rule)
		c.is("policy with many "+name, c.policyOf(name, spec).Cost(), func() { w.policy(name, "red", spec) })
	}
}

// TestBoundaryCostsOutside: the same of Services with an outside address, without and with the most sources.
func TestBoundaryCostsOutside(t *testing.T) {
	t.Parallel()
	w := configuredOutsideWorld(t, poolsConfig)
	c := &costs{world: w.world}
	w.network("in", outOf(1, ""))
	var backends []service.Backend
	for i := range 8 {
		p := w.labelled(0, fmt.Sprint("s-", i), "in", map[string]string{"app": "s"})
		b := service.Backend{Name: p.Name, Ready: true}
		for _, a := range w.Links(p)["net1"].IPs() {
			b.Addresses = append(b.Addresses, netip.MustParseAddr(a))
		}
		backends = append(backends, b)
	}
	w.service("shop/first", strings.ReplaceAll(outsideServiceYAML("first", "in", "192.0.2.31,2001:db8::11f", "10.0.0.0/8", "{port: 80}"),
		"app=first", "app=none"))
	c.last = c.now()
	sources := listOf(service.MaxSources, func(i int) string {
		if i%2 == 0 {
			return fmt.Sprintf("10.%d.0.0/16", i)
		}
		return fmt.Sprintf("2001:db8:%d::/48", i)
	})
	for i, of := range []string{"", sources} {
		name := fmt.Sprint("large-", i)
		yaml := outsideServiceYAML(name, "in", fmt.Sprintf("192.0.2.%d,2001:db8::11%d", 16+i, i), of, manyPorts(service.MaxPorts))
		yaml = strings.ReplaceAll(yaml, "app="+name, "app=s")
		c.is(fmt.Sprintf("Service with %d sources", len(of)/len(sources)*service.MaxSources), c.serviceOf(yaml).Cost(backends), func() {
			w.service("shop/"+name, yaml)
		})
	}
}
