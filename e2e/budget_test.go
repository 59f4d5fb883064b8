package e2e

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
)

// counted is a world whose agent speaks to both databases through proxies that count.
type counted struct {
	*world
	nb, ovs *ovndbtest.Proxy
}

func newCounted(t *testing.T, change ...func(*lab.Lab)) *counted {
	c := &counted{}
	c.world = newWorld(t, lab.Options{}, func(l *lab.Lab) {
		c.nb = ovndbtest.StartProxy(t, "unix:"+l.NBSocket())
		c.nb.Ignore(ofGatewayCheck(l.Nodes[0].Name))
		c.ovs = ovndbtest.StartProxy(t, "unix:"+l.Nodes[0].OVSSocket)
		l.Nodes[0].NBEndpoint = c.nb.Endpoint()
		l.Nodes[0].AgentArgs = []string{"--ovs-socket", c.ovs.Socket, "--reconcile-period", "1h"}
		for _, one := range change {
			one(l)
		}
	})
	return c
}

// ofGatewayCheck recognizes what an agent reads by the clock and after news: whether its node may have a gateway, with the
// lists of ended connections, and whether NB knows its chassis. Such a read, or a probe, also reads the row of NB's owner.
func ofGatewayCheck(node string) func(ovndbtest.Transact) bool {
	key := ovndb.NodeKey(node)
	return func(t ovndbtest.Transact) bool {
		ofGateways := func(op ovndbtest.Op) bool { return op["table"] == nb.HAChassisTable }
		return !t.Writes && (slices.ContainsFunc(t.Ops, ofGateways) || !slices.ContainsFunc(t.Ops, func(op ovndbtest.Op) bool {
			where := fmt.Sprint(op["where"])
			return !strings.Contains(where, key) && !strings.Contains(where, ovndb.ClusterKey)
		}))
	}
}

func (c *counted) reset() {
	c.nb.Reset()
	c.ovs.Reset()
}

// TestTransactions counts what a pod costs: one committed transaction in each database for ADD and one for DEL,
// however many networks it has.
func TestTransactions(t *testing.T) {
	t.Parallel()
	c := newCounted(t)
	for _, k := range []int{1, 4, 8} {
		t.Run(fmt.Sprintf("%d networks", k), func(t *testing.T) {
			networks := strings.TrimSuffix(strings.Repeat("blue,green,", 4), ",")
			p := c.Pod(0, fmt.Sprintf("web-%d", k), strings.Join(strings.Split(networks, ",")[:k], ","))
			c.reset()
			c.Add(p)
			nb, ovs := c.nb.Counts(), c.ovs.Counts()
			equal(t, "ADD in NB: committed, refused, reading", []int{nb.Committed, nb.Refused, nb.ReadOnly}, []int{1, 0, 0})
			equal(t, "ADD in OVS: committed, refused", []int{ovs.Committed, ovs.Refused}, []int{1, 0})
			c.reset()
			c.Over(p)
			nb, ovs = c.nb.Counts(), c.ovs.Counts()
			equal(t, "DEL in NB: committed, refused, reading", []int{nb.Committed, nb.Refused, nb.ReadOnly}, []int{1, 0, 0})
			equal(t, "DEL in OVS: committed, refused", []int{ovs.Committed, ovs.Refused}, []int{1, 0})
		})
	}
}

// TestPlainPodCostsNothing attaches a pod without the annotation while there is no agent at all.
func TestPlainPodCostsNothing(t *testing.T) {
	w := parallelWorld(t, lab.Options{}, nil)
	w.Must(w.Nodes[0].KillAgent())
	trace := filepath.Join(t.TempDir(), "strace")
	p := w.Pod(0, "plain", "")
	w.Add(p, lab.WithStrace(trace))
	w.noCall(trace)
	w.Del(p, lab.WithStrace(trace))
	w.noCall(trace)
	w.Over(p)
}

// noCall reads a trace of one call of our plugin, which must not have tried to reach the agent.
func (w *world) noCall(trace string) {
	if calls := regexp.MustCompile(`connect\(.*`).FindAllString(read(w.T, trace), -1); len(calls) > 0 {
		w.T.Errorf("the plugin called somebody for a plain pod: %q", calls)
	}
}

// TestNoExec traces the plugin: it runs no other program and moves no link for OVN networks.
func TestNoExec(t *testing.T) {
	w := parallelWorld(t, lab.Options{}, nil)
	trace := filepath.Join(t.TempDir(), "strace")
	p := w.Pod(0, "web", "blue,green,blue,green")
	w.Add(p, lab.WithStrace(trace))
	w.noExec(trace)
	// One request creates a veth, one sets its pod-side veth up, and one has the kernel announce its addresses. The plugin
	// asks for no link.
	equal(t, "requests of an ADD with four links", w.linkRequests(trace), map[string]int{"RTM_NEWLINK": 8, "RTM_SETLINK": 4})
	equal(t, "syncs of an ADD", w.syncs(trace), 0)
	w.Del(p, lab.WithStrace(trace))
	w.noExec(trace)
	equal(t, "syncs of a DEL whose ports are released", w.syncs(trace), 0)
	// A DEL asks for each link by its name, never for all links of the node, and deletes them by one request.
	equal(t, "requests of a DEL with four links", w.linkRequests(trace), map[string]int{
		"RTM_GETLINK": 4, "RTM_SETLINK": 4, "RTM_DELLINK": 1,
	})
	w.Over(p)
}

// syncs counts what a call of our plugin waits for until it is on the disk.
func (w *world) syncs(trace string) int {
	return len(regexp.MustCompile(`(?m)^\S+\s+\S+\s+f(data)?sync\(`).FindAllString(read(w.T, trace), -1))
}

// linkRequests counts the requests about links in a trace, by their type; "all links" counts the lists of all links.
// strace shows only the number of the type if the socket belongs to the network namespace of the pod.
func (w *world) linkRequests(trace string) map[string]int {
	counts, types := map[string]int{}, map[string]string{
		"0x10": "RTM_NEWLINK", "0x11": "RTM_DELLINK", "0x12": "RTM_GETLINK", "0x13": "RTM_SETLINK",
	}
	for _, m := range regexp.MustCompile(`sendto\(.*nlmsg_type=(RTM_...LINK|0x1[0-3]).*?, nlmsg_flags=(\S+),`).FindAllStringSubmatch(read(w.T, trace), -1) {
		if strings.Contains(m[2], "NLM_F_DUMP") {
			m[1] = "all links"
		}
		counts[cmp.Or(types[m[1]], m[1])]++
	}
	return counts
}

// noExec reads a trace of one call of our plugin: the one execve is its own start.
func (w *world) noExec(trace string) {
	text := read(w.T, trace)
	if n := len(regexp.MustCompile(`execve\(`).FindAllString(text, -1)); n != 1 {
		w.T.Errorf("%d calls of execve, want the plugin's own alone:\n%s", n, text)
	}
	if strings.Contains(text, "RTM_SETLINK") && strings.Contains(text, "IFLA_NET_NS") {
		w.T.Errorf("a link was moved between namespaces:\n%s", text)
	}
}

func read(t testing.TB, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if len(text) == 0 {
		t.Fatalf("%s is empty", path)
	}
	return string(text)
}

// TestBytesFromNB: what an ADD receives from NB does not grow with the ports that are there. northd, to which so
// many ports are minutes of work, is not what is measured: it is away, and the test stands in for the flows.
func TestBytesFromNB(t *testing.T) {
	t.Parallel()
	c := newCounted(t)
	c.Must(c.Northd.Kill())
	received := func(name string) int64 {
		p := c.Pod(0, name, "blue,green")
		c.nb.Reset()
		added := make(chan error, 1)
		go func() {
			_, err := p.Add(c.Ctx)
			added <- err
		}()
		for _, ifName := range []string{"net1", "net2"} {
			c.Must(lab.Eventually(c.Ctx, func() error {
				_, err := p.Node.VSCtl(c.Ctx, "set", "Interface", agentapi.HostVeth(p.Sandbox, ifName), "external_ids:ovn-installed=true")
				return err
			}))
		}
		c.Must(<-added)
		n := c.nb.Counts().Received
		c.End(p)
		return n
	}
	c.fill("blue", 0, 10)
	few := received("web-a")
	c.fill("blue", 10, 20000)
	many := received("web-b")
	t.Logf("an ADD receives %d bytes from NB beside 10 ports, %d beside 20,000", few, many)
	if few == 0 || float64(max(few, many)-min(few, many)) >= 0.1*float64(few) {
		t.Errorf("an ADD received %d bytes from NB beside 10 ports and %d beside 20,000", few, many)
	}
}

// fill puts the ports from..to onto a network, as if others had made them.
func (c *counted) fill(network string, from, to int) {
	server := ovndbtest.AttachNB(c.T, c.NBSocket())
	var ops []ovndbtest.Op
	var keys []any
	for i := from; i < to; i++ {
		key := uuid.NewString()
		keys = append(keys, ovndbtest.UUID(key))
		ops = append(ops, ovndbtest.Op{"op": "insert", "table": "Logical_Switch_Port", "uuid": key,
			"row": ovndbtest.Op{"name": fmt.Sprintf("filler-%d", i)}})
	}
	ops = append(ops, ovndbtest.Op{"op": "mutate", "table": "Logical_Switch",
		"where":     []any{[]any{"_uuid", "==", ovndbtest.UUID(ovndb.SwitchKey("shop/" + network))}},
		"mutations": []any{[]any{"ports", "insert", ovndbtest.Set(keys...)}}})
	server.Transact(c.T, ops...)
}

// BenchmarkPod attaches and deletes a pod with k further networks on one node. Reported beside the chain's time are
// our own plugin's share and the ratio of that to the rest of the chain (Flannel, bridge, host-local, portmap) in the
// same run: times of different machines do not compare, ratios do.
func BenchmarkPod(b *testing.B) {
	w := newWorld(b, lab.Options{}, nil)
	for _, k := range []int{0, 1, 4, 8} {
		b.Run(fmt.Sprintf("k=%d", k), func(b *testing.B) {
			networks := strings.Split(strings.TrimSuffix(strings.Repeat("blue,green,", 4), ","), ",")[:k]
			n := w.Nodes[0]
			ours, others := map[string]time.Duration{}, map[string]time.Duration{}
			i := 0
			for b.Loop() {
				i++
				b.StopTimer()
				p := w.Pod(0, fmt.Sprintf("web-%d-%d", k, i), strings.Join(networks, ","))
				n.ForgetRuns()
				b.StartTimer()
				w.Add(p)
				w.Del(p)
				b.StopTimer()
				for _, run := range n.Runs() {
					if run.Plugin == lab.PluginType {
						ours[run.Command] += run.Took
					} else {
						others[run.Command] += run.Took
					}
				}
				w.End(p)
				b.StartTimer()
			}
			for _, command := range []string{"ADD", "DEL"} {
				b.ReportMetric(float64(ours[command].Microseconds())/1000/float64(i), "ms-ours/"+command)
				b.ReportMetric(float64(ours[command])/float64(others[command]), "ours:rest/"+command)
			}
		})
	}
}
