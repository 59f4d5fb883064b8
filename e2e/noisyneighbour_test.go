package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
	"github.com/ovn-multinet/ovn-multinet/e2e/labtest"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/netmodel/cost"
	"github.com/ovn-multinet/ovn-multinet/netmodel/policy"
	"github.com/ovn-multinet/ovn-multinet/netmodel/service"
)

// noisy is a world in which a namespace for each kind has as many of the largest objects as it may have, on network
// default/shared, which others use too.
type noisy struct {
	*counted
	bystanders int
	claims     string // whether the last IPAMClaims got addresses
}

// bystander is what a pod and a network of another namespace cost in NB.
type bystander struct {
	transactions, operations int
	received                 int64
	network                  string // transactions and rows of the controller
}

// bystander attaches a pod of namespace shop to network default/shared, and makes a network of namespace shop.
func (n *noisy) bystander() (b bystander, added time.Duration) {
	n.T.Helper()
	n.bystanders++
	p := n.Pod(0, fmt.Sprintf("bystander-%02d", n.bystanders), "default/shared")
	n.nb.Reset()
	begin := time.Now()
	n.Add(p)
	added = time.Since(begin)
	counts := n.nb.Counts()
	b.transactions, b.operations, b.received = counts.Committed+counts.Refused, counts.Operations, counts.Received
	n.End(p)
	before := n.ofShop()
	n.network(fmt.Sprintf("bystander-%02d", n.bystanders), `{"type":"ovn-multinet","subnets":"10.99.0.0/24"}`)
	now := n.ofShop()
	b.network = fmt.Sprintf("%d transactions, %d rows", now["transactions"]-before["transactions"], now["rows"]-before["rows"])
	return b, added
}

// same compares what a bystander costs with what it costs alone. An answer has the number of its request, which has more
// digits when many came before.
func (n *noisy) same(when string, now, alone bystander) {
	n.T.Helper()
	if more := now.received - alone.received; more > 0 && more <= int64(3*now.transactions) {
		now.received = alone.received
	}
	equal(n.T, "cost of a bystander "+when, now, alone)
}

// ofShop reads what the controller has written for namespace shop.
func (n *noisy) ofShop() map[string]int {
	n.T.Helper()
	metrics, err := n.Lab.Metrics(controllerMetrics)
	n.Must(err)
	sums := map[string]int{}
	for name, value := range metrics {
		for _, of := range []string{"transactions", "rows"} {
			if strings.HasPrefix(name, "ovn_multinet_controller_pass_"+of) && strings.Contains(name, `namespace="shop"`) {
				sums[of] += int(value)
			}
		}
	}
	return sums
}

const controllerMetrics = "127.0.0.1:9099"

var vmRSS = regexp.MustCompile(`VmRSS:\s*(\d+) kB`)

// memory returns what the programs have in memory, in MB.
func (n *noisy) memory() string {
	n.T.Helper()
	var words []string
	for _, p := range []*lab.Process{n.Controller, n.Nodes[0].Agent, n.Northd, n.NB, n.SB, n.Nodes[0].OVNController, n.Nodes[0].VSwitchd} {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.Pid()))
		n.Must(err)
		kb, err := strconv.Atoi(vmRSS.FindStringSubmatch(string(status))[1])
		n.Must(err)
		words = append(words, fmt.Sprintf("%s %d MB", p.Name, kb>>10))
	}
	return strings.Join(words, ", ")
}

// fill makes objects until one is refused because of a limit, and returns how many are accepted. state reads what the
// controller says of one.
func (n *noisy) fill(write func(i int), state func(i int) string) (accepted int) {
	n.T.Helper()
	for i := 0; ; i++ {
		write(i)
		said := ""
		n.Eventually(func() error {
			if said = state(i); !strings.Contains(said, `"ready":true`) && !strings.Contains(said, "is the limit of the namespace") {
				return fmt.Errorf("object %d: %s", i, said)
			}
			return nil
		})
		if !strings.Contains(said, `"ready":true`) {
			return i
		}
	}
}

// stateOf reads the state of an object beside its manifest, without blanks.
func (n *noisy) stateOf(name string) string {
	text, _ := os.ReadFile(filepath.Join(n.Manifests, name))
	return strings.ReplaceAll(string(text), `": `, `":`)
}

// fillers make the i-th one of the largest objects of each kind, in the namespace of that name.
func (n *noisy) fillers() map[string]filler {
	return map[string]filler{
		"network": {func(i int) {
			excludes := listOf(netmodel.MaxExclude, func(k int) string { return fmt.Sprintf("10.9.%d.0/28", k) })
			routes := listOf(netmodel.MaxRoutes, func(k int) string { return fmt.Sprintf(`{"dst":"10.%d.%d.0/24"}`, 100+k/250, k%250) })
			n.NAD(fmt.Sprint("network/n", i), `{"type":"ovn-multinet","subnets":"10.9.0.0/16,fd09::/64","excludeSubnets":"`+excludes+`","routes":[`+routes+`]}`)
		}, n.stateAt("network.n%d.network.json")},
		"policies": {func(i int) { n.largePolicy(i, 0) }, n.stateAt("policies.p%d.policy.json")},
		"service": {func(i int) {
			name := fmt.Sprint("service/s", i)
			yaml := serviceYAML(name, "default/shared", "auto", manyPorts(service.MaxPorts), "")
			n.Must(n.WriteManifest(serviceManifest(name), strings.Replace(yaml, fmt.Sprint("app=s", i), "app=s", 1)))
		}, n.stateAt("service.s%d.service.json")},
		"ipamclaim": {n.useClaims, func(int) string { return n.claims }},
	}
}

// filler makes the objects of a kind. state reads what is said of the i-th one.
type filler struct {
	write func(i int)
	state func(i int) string
}

// stateAt reads the states of objects from files of this name.
func (n *noisy) stateAt(name string) func(i int) string {
	return func(i int) string { return n.stateOf(fmt.Sprintf(name, i)) }
}

// useClaims starts and ends a pod with as many new IPAMClaims as it can have, which have long names.
func (n *noisy) useClaims(i int) {
	p := n.claimed("ipamclaim", fmt.Sprint("vm-", i), strings.Repeat("n", 200))
	n.claims = `"ready":true`
	if err := n.TryAdd(p); err != nil {
		n.claims = err.Error()
		return
	}
	n.End(p)
}

// largePolicy writes a policy with many flows. edit makes another content.
func (n *noisy) largePolicy(i, edit int) {
	rule := `{from: [{podSelector: {matchLabels: {app: s}}}], ports: [` + listOf(policy.MaxPorts, func(k int) string {
		return fmt.Sprintf("{port: %d, endPort: %d}", 1000*k+1+i, 1000*k+998-i-edit)
	}) + `]}`
	yaml := policyYAML(fmt.Sprint("p", i), "default/shared", `{podSelector: {matchLabels: {app: s}}, ingress: [`+rule+`]}`)
	n.Must(n.WriteManifest(fmt.Sprint("policy.", i, ".yaml"), strings.Replace(yaml, "namespace: shop", "namespace: policies", 1)))
}

// ofNamespace attaches pods with app=s to network default/shared.
func (n *noisy) ofNamespace(namespace string, count int) (pods []*lab.Pod) {
	for i := range count {
		p, err := n.Nodes[0].NewPod(n.Ctx, namespace, fmt.Sprint("s-", i), map[string]string{labtest.NetworksAnnotation: "default/shared"})
		n.Must(err)
		p.Labels = map[string]string{"app": "s"}
		n.Must(p.WriteManifest())
		n.Add(p)
		pods = append(pods, p)
	}
	return pods
}

// writesEvery is how often the objects change: as often as an API server lets one client write.
const writesEvery = 20 * time.Millisecond

// disturb edits a policy and has a backend of all Services change between ready and not ready, until stop is called.
func (n *noisy) disturb(backend *lab.Pod) (stop func()) {
	ctx, cancel := context.WithCancel(n.Ctx)
	var writing sync.WaitGroup
	writing.Go(func() {
		tick := time.NewTicker(writesEvery)
		defer tick.Stop()
		for i := 0; ctx.Err() == nil; i++ {
			<-tick.C
			n.largePolicy(0, i%2)
			backend.Ready = map[bool]string{true: "True", false: "False"}[i%2 == 0]
			n.Must(backend.WriteManifest())
		}
	})
	return func() { cancel(); writing.Wait() }
}

// TestBoundaryNoisyNeighbour: namespaces with all that they may have, of the largest objects of each kind, leave all
// programs alive, and cost a pod and a network of another namespace nothing in NB, also while they change.
func TestBoundaryNoisyNeighbour(t *testing.T) {
	t.Parallel()
	n := &noisy{counted: newCounted(t, func(l *lab.Lab) {
		// Each IPAMClaim needs a pod. So their namespace has a quarter of what others have.
		controllerConfig(t, l, fmt.Sprintf("limits: {ipamclaim: {bytes: %d}}\n", cost.Default()[cost.Bytes]/4))
		l.ControllerArgs = append(l.ControllerArgs, "--metrics-address", controllerMetrics)
	})}
	n.network("default/shared", `{"type":"ovn-multinet","subnets":"10.50.0.0/16,fd50::/64"}`)
	n.network("ipamclaim/vms", `{"cniVersion":"1.0.0","name":"vm-net","type":"ovn-multinet","subnets":"10.7.0.0/16,fd07::/64","allowPersistentIPs":true}`)
	n.ofNamespace("policies", 8)
	backend := n.ofNamespace("service", 8)[0]
	idle, added := n.bystander()
	report := func(what string, accepted int, added time.Duration) {
		flows, err := n.Nodes[0].OFCtl(n.Ctx, "dump-flows", "--no-stats")
		n.Must(err)
		t.Attr("boundary.noisy-neighbour."+what, fmt.Sprintf("%d objects; ADD of a bystander %d ms; %d flows of a node; %s",
			accepted, added.Milliseconds(), strings.Count(flows, "\n"), n.memory()))
	}
	report("idle", 0, added)
	fillers := n.fillers()
	for _, kind := range cost.Kinds {
		filler, ok := fillers[kind]
		if !ok {
			t.Fatalf("this test does not fill a namespace with objects of kind %s", kind)
		}
		accepted := n.fill(filler.write, filler.state)
		n.NBCtl("--wait=hv", "sync")
		now, added := n.bystander()
		report(kind, accepted, added)
		n.same("beside objects of kind "+kind, now, idle)
		if accepted == 0 {
			t.Errorf("no object of kind %s is accepted", kind)
		}
	}
	stop := n.disturb(backend)
	for range 3 {
		now, added := n.bystander()
		n.same("beside objects that change", now, idle)
		report("changing", 0, added)
	}
	stop()
}
