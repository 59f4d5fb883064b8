//go:build bench

package bench

import (
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
	"github.com/ovn-multinet/ovn-multinet/e2e/labtest"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
)

// counts checks each count against its limit, and shows it in the report.
type counts struct {
	t    *testing.T
	part *Part
	seen map[string]bool
}

func (c *counts) note(what string, n float64) {
	limit, known := Limits[what]
	switch {
	case !known:
		c.t.Errorf("%s: %s has no limit", what, short(n))
	case n > limit:
		c.t.Errorf("%s: %s, the limit is %s", what, short(n), short(limit))
	}
	c.seen[what] = true
	c.part.Rows = append(c.part.Rows, Number(what, "", []float64{n}, 0).AtMost(limit))
}

// TestCounts counts what does not depend on the load of the machine.
func TestCounts(t *testing.T) {
	c := &counts{t: t, seen: map[string]bool{}, part: report(t, "70-counts", "Counts", `What no load of the machine changes. The goals are
limits: `+"`make bench-quick`"+` fails for each count that is over its limit. `+"`make test`"+` checks more of them where they
belong: TestTransactions, TestPlainPodCostsNothing, TestNoExec and TestBytesFromNB in `+"`e2e`"+`, TestPluginStartsLight,
TestPluginIsSmall and TestInstallerIsSmall in `+"`internal/arch`"+`, TestLeasesOfAmongMany in `+"`ovnport`"+`. NB is behind a proxy
that counts, without TLS.`)}
	c.programs()
	s := &labtest.World{Test: labtest.New(t, patience), Lab: lab.Start(t, lab.Options{PluginConf: func(_ *lab.Node, entry map[string]any) {
		delete(entry, "logFile") // of the lab alone
		entry["allowedDelegates"] = []string{"bridge"}
	}})}
	n := s.Nodes[0]
	nbProxy, ovsProxy := ovndbtest.StartProxy(t, "unix:"+s.NBSocket()), ovndbtest.StartProxy(t, "unix:"+n.OVSSocket)
	nbProxy.Ignore(byTheClock(n.Name))
	n.NBEndpoint, n.AgentArgs = nbProxy.Endpoint(), []string{"--ovs-socket", ovsProxy.Socket, "--reconcile-period", "1h",
		"--global-namespaces", "shop"}
	s.ControllerArgs = []string{"--global-namespaces", "shop"}
	s.Start()
	var networks []string
	for i := range maxNetworks {
		networks = append(networks, fmt.Sprint("ovn", i))
		s.NAD(networks[i], fmt.Sprintf(`{"cniVersion":"1.0.0","name":"ovn%d","type":"ovn-multinet","subnets":"10.%d.0.0/16"}`, i, 60+i))
	}
	all := strings.Join(networks, ",")
	first := s.Pod(0, "first", all)
	s.AddInTheEnd(first)
	s.End(first)

	plain := c.traced(s, s.Pod(0, "plain", ""), "ADD")
	c.note("plain pod, execs", plain.execs)
	c.note("plain pod, connections", plain.connects)
	c.note("plain pod, fsyncs", plain.fsyncs)
	c.note("plain pod, files opened for writing", plain.writes)

	p := s.Pod(0, "web", all)
	for _, verb := range []string{"ADD", "DEL"} {
		nbProxy.Reset()
		ovsProxy.Reset()
		calls := c.traced(s, p, verb)
		if verb == "DEL" {
			s.Eventually(func() error { // the plugin hands the release over to the agent
				if nbProxy.Counts().Committed == 0 {
					return fmt.Errorf("no port has been released in NB")
				}
				return nil
			})
		}
		in, out := nbProxy.Counts(), ovsProxy.Counts()
		c.note(verb+" k=8, transactions in NB", float64(in.Committed+in.Refused))
		c.note(verb+" k=8, transactions in OVS", float64(out.Committed+out.Refused))
		c.note(verb+" k=8, bytes from NB", float64(in.Received))
		c.note(verb+" k=8, connections of the plugin", calls.connects)
		c.note(verb+" k=8, fsyncs of the plugin", calls.fsyncs)
		c.note(verb+" k=8, netlink requests", calls.netlink)
		if verb == "ADD" {
			c.note("ADD k=8, reads in NB", float64(in.ReadOnly))
			c.note("ADD k=8, execs", calls.execs)
		}
	}
	s.Must(p.RemoveNetNS())
	s.NAD("other", `{"cniVersion":"1.0.0","name":"other","type":"bridge","bridge":"other"}`)
	fsyncs := c.traced(s, s.Pod(0, "delegate", "other"), "ADD").fsyncs
	c.note("ADD with a delegate, fsyncs", fsyncs)
	if fsyncs < 2 {
		t.Errorf("%v fsyncs in an ADD with a delegate: its DEL needs the journal after a power cut", fsyncs)
	}
	c.policies(s, nbProxy)
	c.services()
	for what := range Limits {
		if !c.seen[what] {
			t.Errorf("%s has a limit and was not counted", what)
		}
	}
}

// policies counts an ADD beside the policies of ten namespaces with 200 pods.
func (c *counts) policies(s *labtest.World, nbProxy *ovndbtest.Proxy) {
	m := mix{namespaces: 10, pods: 200, nodes: 10}
	s.NAD(portsNetwork, portsConfig)
	objects, states := m.operators(), []string{}
	for _, o := range objects {
		states = append(states, "ClusterNetworkPolicy."+o.name()+".policy.json")
	}
	for i := range m.namespaces {
		objects = append(append(objects, m.namespace(i)), m.tenant(i)...)
		for _, o := range m.tenant(i) {
			states = append(states, m.namespaceName(i)+"."+o.name()+".policy.json")
		}
	}
	for i := range m.pods {
		objects = append(objects, m.pod(i))
	}
	for i, o := range objects {
		s.Must(s.WriteManifest(fmt.Sprintf("mix-%d.yaml", i), string(s.JSON(o))))
	}
	for _, file := range states {
		s.Eventually(func() error {
			state, err := os.ReadFile(filepath.Join(s.Manifests, file))
			if err == nil && !strings.Contains(string(state), `"ready": true`) {
				err = fmt.Errorf("%s: %s", file, state)
			}
			return err
		})
	}
	add := func(name string) (n ovndbtest.Counts) {
		p, err := s.Nodes[0].NewPod(s.Ctx, m.namespaceName(1), name, map[string]string{labtest.NetworksAnnotation: portsNetwork})
		s.Must(err)
		p.Labels = map[string]string{"app": "web"}
		s.Must(p.WriteManifest())
		nbProxy.Reset()
		s.Add(p)
		n = nbProxy.Counts()
		s.End(p)
		return n
	}
	c.note("first ADD with policies, bytes from NB", float64(add("first-web").Received))
	var n ovndbtest.Counts
	tries := 0
	s.Eventually(func() error { // a pass that follows the last policy may still write the groups
		tries++
		if n = add(fmt.Sprint("web-", tries)); n.ReadOnly > 0 {
			return fmt.Errorf("the groups of policies still change: an ADD has read them %d times", n.ReadOnly)
		}
		return nil
	})
	c.note("ADD with policies, transactions in NB", float64(n.Committed+n.Refused))
	c.note("ADD with policies, reads in NB", float64(n.ReadOnly))
	c.note("ADD with policies, operations in NB", float64(n.Operations))
	c.note("ADD with policies, bytes from NB", float64(n.Received))
}

// byTheClock recognizes what an agent reads every ten seconds: whether its node may have a gateway, with the lists of ended
// connections, and its node's row.
func byTheClock(node string) func(ovndbtest.Transact) bool {
	key := ovndb.NodeKey(node)
	return func(t ovndbtest.Transact) bool {
		ofGateways := func(op ovndbtest.Op) bool { return op["table"] == nb.HAChassisTable }
		return !t.Writes && (slices.ContainsFunc(t.Ops, ofGateways) || !slices.ContainsFunc(t.Ops, func(op ovndbtest.Op) bool {
			return !strings.Contains(fmt.Sprint(op["where"]), key)
		}))
	}
}

// programs counts bytes of files and allocations before main.
func (c *counts) programs() {
	for what, program := range map[string]string{"plugin": "ovn-multinet", "installer": "ovn-multinet-install",
		"agent": "ovn-multinetd", "controller": "ovn-multinet-controller"} {
		path := ours(c.t, program)
		c.note(what+", bytes", megabytes(c.t, path)*1e6)
		if what == "plugin" || what == "installer" {
			c.note(what+", allocations before main", allocationsBeforeMain(c.t, path))
		}
	}
}

// allocationsBeforeMain is the smallest count of five runs: on a busy machine, goroutines of the runtime allocate too
// while packages are initialized.
func allocationsBeforeMain(t testing.TB, path string) float64 {
	smallest := math.Inf(1)
	for range 5 {
		out, err := exec.Command("env", "GODEBUG=inittrace=1", path, "--version").CombinedOutput()
		must(t, err)
		sum := 0.0
		for line := range strings.Lines(string(out)) {
			if n, err := strconv.ParseFloat(group(`^init .* (\d+) allocs`, line), 64); err == nil {
				sum += n
			}
		}
		smallest = min(smallest, sum)
	}
	return smallest
}

// syscalls are what a call of our plugin did.
type syscalls struct{ execs, connects, fsyncs, writes, netlink float64 }

// traced runs ADD or DEL with our plugin under strace.
func (c *counts) traced(s *labtest.World, p *lab.Pod, verb string) syscalls {
	file := filepath.Join(c.t.TempDir(), "strace")
	if verb == "ADD" {
		s.Add(p, lab.WithStrace(file))
	} else {
		s.Del(p, lab.WithStrace(file))
	}
	trace := string(get[[]byte](c.t)(os.ReadFile(file)))
	count := func(pattern string) float64 {
		return float64(len(regexp.MustCompile(pattern).FindAllString(trace, -1)))
	}
	return syscalls{
		execs:    count(`execve\(`) - 1, // its own start
		connects: count(`connect\([^\n]*AF_UNIX`),
		fsyncs:   count(`f(?:data)?sync\(`),
		writes:   count(`open(?:at)?\([^\n]*(?:O_WRONLY|O_RDWR|O_CREAT)`),
		netlink:  count(`send(?:to|msg)\([^\n]*nlmsg_len`),
	}
}
