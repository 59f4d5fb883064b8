package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
)

// gc runs the agent's command of that name on the first node, as its operator would.
func (w *world) gc(args ...string) (out string, err error) {
	args = append([]string{"gc", "--socket", w.Nodes[0].AgentSocket}, args...)
	text, err := exec.CommandContext(w.Ctx, filepath.Join(w.Binaries().Ours, "ovn-multinetd"), args...).CombinedOutput()
	return string(text), err
}

// dead makes a pod with networks and ends its namespace; its DEL never comes. It waits until the agent has done its part.
func (w *world) dead(name, networks string) *lab.Pod {
	p := w.Attached(0, name, networks)
	w.Must(p.RemoveNetNS())
	w.noRows(p)
	w.toldOfDead(p)
	return p
}

// toldOfDead waits until the agent tells the plugin of a dead pod: it does in its answer to whatever is asked.
func (w *world) toldOfDead(p *lab.Pod) {
	w.Eventually(func() error {
		c := &agentapi.Client{Socket: p.Node.AgentSocket}
		defer c.Close()
		if err := c.Call(w.Ctx, agentapi.OpFailedDELs, agentapi.FailedDELsRequest{}, nil); err != nil {
			return err
		}
		for _, d := range c.Garbage {
			if d.ContainerID == p.Sandbox {
				return nil
			}
		}
		return fmt.Errorf("the agent does not say that %s is dead", p)
	})
}

// TestDelegatesOfTheDead: what other plugins made for pods that no DEL comes for is undone by the calls for other pods, by
// each for one: by a DEL, by an ADD that fails, by no ADD that does not.
func TestDelegatesOfTheDead(t *testing.T) {
	w := parallelWorld(t, lab.Options{}, reconciling)
	log := w.recorderOn("rec", "")
	passes := func() { w.End(w.Attached(0, "passes-by", "blue")) }
	fails := func() {
		p := w.Pod(0, "fails", "blue,none")
		w.refused(w.TryAdd(p), 101, "shop/none")
		w.End(p)
	}
	var stays *lab.Pod
	succeeds := func() { stays = w.Attached(0, "stays", "blue,rec") }
	first, second, third := w.dead("a", "blue,rec"), w.dead("b", "rec,green,rec"), w.dead("c", "blue,rec")
	dels := func() (calls []string) {
		for _, c := range w.toldOf(log, first, second, third) {
			if strings.HasPrefix(c, "DEL ") {
				calls = append(calls, c)
			}
		}
		return calls
	}
	succeeds()
	equal(t, "DELs by an ADD that succeeds", dels(), nil)
	undone := map[*lab.Pod][]string{first: {"DEL a net2"}, second: {"DEL b net3", "DEL b net1"}, third: {"DEL c net2"}}
	seen := 0
	for i, call := range []func(){passes, fails, passes} {
		call()
		now := dels()
		matches := 0
		for p, want := range undone {
			if slices.Equal(slices.Sorted(slices.Values(now[seen:])), slices.Sorted(slices.Values(want))) {
				matches++
				delete(undone, p)
				equal(t, "what is left of "+p.String(), w.onHost(p), nil)
			}
		}
		if matches != 1 {
			t.Errorf("call %d: undid %q, want all of one pod", i+1, now[seen:])
		}
		seen = len(now)
	}
	passes()
	equal(t, "DELs by a call when nobody is dead any more", len(dels()), seen)
	w.End(first, second, third)
	equal(t, "DELs by those that come after all", len(dels()), seen)
	w.Over(stays)
}

// TestHangingDelegateOfTheDead: a plugin that hangs for a dead pod is killed within the call's bound, and asked once by each
// call; the other pods' calls succeed, and other dead pods get their turn.
func TestHangingDelegateOfTheDead(t *testing.T) {
	w := parallelWorld(t, lab.Options{}, reconciling)
	log := w.recorderOn("hangs", `,"hang":"DEL"`)
	rec := w.recorderOn("rec", "")
	hangs := w.dead("hangs", "blue,hangs")
	for i := range 3 {
		w.toldOfDead(hangs)
		w.End(w.Attached(0, "passes-by", "blue"))
		commands, last := w.calls(log)
		equal(t, fmt.Sprint("calls of the one that hangs, by call ", i+1), len(commands), 2+i)
		pid, err := strconv.Atoi(fmt.Sprint(last["pid"]))
		w.Must(err)
		if err := syscall.Kill(pid, 0); err == nil {
			t.Errorf("process %d of the plugin is still there", pid)
		}
	}
	other := w.dead("other", "blue,rec")
	w.End(w.Attached(0, "passes-by", "blue"))
	commands, _ := w.calls(rec)
	equal(t, "calls for another dead pod", commands, []string{"ADD net2", "DEL net2"})
	commands, _ = w.calls(log)
	equal(t, "calls of the one that hangs, by a call for another", len(commands), 4)

	_, err := w.forget(hangs.Sandbox)
	w.Must(err)
	w.End(w.Attached(0, "passes-by", "blue"))
	equal(t, "what is left once it is forgotten", w.onHost(hangs), nil)
	w.Over(hangs, other)
}

// TestLooksCost counts what the looks of a healthy node cost: no write, and of NB's answer nothing that grows with the ports of
// others. What many dead containers cost is one transaction each.
func TestLooksCost(t *testing.T) {
	t.Parallel()
	c := &counted{}
	c.world = newWorld(t, lab.Options{}, func(l *lab.Lab) {
		c.nb, c.ovs = ovndbtest.StartProxy(t, "unix:"+l.NBSocket()), ovndbtest.StartProxy(t, "unix:"+l.Nodes[0].OVSSocket)
		l.Nodes[0].NBEndpoint = c.nb.Endpoint()
		l.Nodes[0].AgentArgs = []string{"--ovs-socket", c.ovs.Socket, "--reconcile-period", "300ms"}
	})
	stays := c.Attached(0, "stays", "blue,green")
	looks := func() (perLook float64) {
		const times = 5
		c.Eventually(func() error {
			if got := c.nb.Counts().ReadOnly; got < times {
				return fmt.Errorf("%d of %d looks", got, times)
			}
			return nil
		})
		nb, ovs := c.nb.Counts(), c.ovs.Counts()
		equal(t, "writes by looks at a healthy node", []int{nb.Committed, nb.Refused, ovs.Committed, ovs.Refused}, []int{0, 0, 0, 0})
		return float64(nb.Received) / float64(nb.ReadOnly)
	}
	c.reset()
	few := looks()
	c.fill("blue", 0, 5000)
	c.reset()
	many := looks()
	t.Logf("a look receives %.0f bytes from NB beside no ports of others, %.0f beside 5,000", few, many)
	if few == 0 || many > 1.5*few {
		t.Errorf("a look receives %.0f bytes from NB beside no ports of others, %.0f beside 5,000", few, many)
	}

	const containers, each = 50, 4
	c.reset()
	c.remnants(containers, each)
	c.Eventually(func() error {
		nb, err := c.Lab.NBCtl(c.Ctx, "--bare", "--columns=name", "find", "Logical_Switch_Port", "external_ids:ovn-multinet/pod=long-gone")
		ovs, err2 := c.Nodes[0].VSCtl(c.Ctx, "--bare", "--columns=name", "find", "Interface", `external_ids:"ovn-multinet/port-uuid"=k`)
		if n := len(strings.Fields(nb)) + len(strings.Fields(ovs)); n > 0 || err != nil || err2 != nil {
			return errors.Join(err, err2, fmt.Errorf("%d rows are left", n))
		}
		if n, v := c.nb.Counts().Committed, c.ovs.Counts().Committed; n < containers || v < containers {
			return fmt.Errorf("%d and %d transactions are answered", n, v)
		}
		return nil
	})
	nb, ovs := c.nb.Counts(), c.ovs.Counts()
	equal(t, "transactions for 200 ports and 200 plugs of 50 containers", []int{nb.Committed, nb.Refused, ovs.Committed, ovs.Refused}, []int{containers, 0, containers, 0})
	c.consistent(stays, []string{"net1", "net2"})
	c.End(stays)
}

// remnants makes rows as containers of this node leave them, which nobody else knows of any more.
func (c *counted) remnants(containers, each int) {
	node := c.Nodes[0]
	args := []string{"--no-wait"}
	var ports []string
	for i := range containers {
		for j := range each {
			id, name := fmt.Sprintf("sandbox-%d", i), fmt.Sprintf("mnt%d-%d", i, j)
			port := fmt.Sprintf("shop/long-gone/%d-%d", i, j)
			ports = append(ports, "--", "lsp-add", "shop/blue", port, "--", "set", "Logical_Switch_Port", port)
			for key, value := range map[string]string{"namespace": "shop", "pod": "long-gone", "pod-uid": id, "interface": "net1", "network": "shop/blue", "node": node.Name, "sandbox": id} {
				ports = append(ports, fmt.Sprintf("external_ids:ovn-multinet/%s=%s", key, value))
			}
			args = append(args, "--", "add-port", "br-int", name, "--", "set", "Port", name, `external_ids:"ovn-multinet/sandbox"=`+id, "--",
				"set", "Interface", name, "external_ids:sandbox="+id, `external_ids:"ovn-multinet/port-uuid"=k`, "external_ids:iface-id="+port)
		}
	}
	c.NBCtl(ports[1:]...)
	list := []string{"set", "Copp", ovndb.PortListKey(node.Name)}
	rows := c.NBCtl("--format=csv", "--data=bare", "--no-headings", "--columns=_uuid,name", "find", "Logical_Switch_Port",
		"external_ids:ovn-multinet/pod=long-gone")
	for row := range strings.Lines(strings.TrimSpace(rows)) {
		key, name, _ := strings.Cut(strings.TrimSpace(row), ",")
		i, _, _ := strings.Cut(strings.TrimPrefix(name, "shop/long-gone/"), "-")
		list = append(list, fmt.Sprintf("external_ids:\"%s\"=sandbox-%s", key, i))
	}
	c.NBCtl(list...)
	_, err := node.VSCtl(c.Ctx, args...)
	c.Must(err)
}

// TestGCCommand: an operator sees what would go and why, and has it gone at the earliest a period after the agent saw it.
func TestGCCommand(t *testing.T) {
	w := parallelWorld(t, lab.Options{}, func(l *lab.Lab) {
		withDelegates(l)
		l.Nodes[0].AgentArgs = []string{"--reconcile-period", "1h"}
	})
	w.recorderOn("rec", "")
	says := func(want string, args ...string) {
		t.Helper()
		out, err := w.gc(args...)
		w.Must(err)
		equal(t, strings.Join(append([]string{"gc"}, args...), " "), out, want)
	}
	says("nothing is left on this node of containers that are gone\n", "--dry-run")
	says("[]\n", "--dry-run", "-o", "json")
	lives := w.Attached(0, "lives", "blue")
	p := w.Attached(0, "web", "blue,rec")
	w.Must(p.RemoveNetNS())
	end := agentapi.HostVeth(p.Sandbox, "net1")
	before := w.Snapshot()
	table := "CONTAINER     POD       REASON                         PORTS          HOST VETH       OTHER PLUGINS     STATE\n" +
		p.Sandbox[:12] + "  shop/web  its network namespace is gone  shop/web/net1  " + end + "  net2 on shop/rec  goes when it is seen again\n"
	says(table, "--dry-run")
	says(table)
	says(table, "--dry-run=false")
	out, err := w.gc("--dry-run", "-o", "json")
	w.Must(err)
	var all []agentapi.StaleSandbox
	w.Must(json.Unmarshal([]byte(out), &all))
	equal(t, "as JSON", all, []agentapi.StaleSandbox{{Sandbox: agentapi.Sandbox{ContainerID: p.Sandbox, Interface: "eth0", Conflist: "cbr0", Namespace: "shop", Pod: "web", UID: p.UID},
		Why: "its network namespace is gone", Ports: []string{"shop/web/net1"}, HostVeths: []string{end}, Journal: true, Delegates: []string{"net2 on shop/rec"}}})
	equal(t, "what all that changed", before.Diff(w.Snapshot()), "")

	w.Must(w.NB.Kill())
	out, err = w.gc()
	if err == nil || !strings.HasPrefix(out, "ovn-multinetd: ") || strings.Count(out, "\n") != 1 || !strings.Contains(out, "an incomplete list deletes nothing; do OVN's Northbound database, Open vSwitch and the source of pods answer?") {
		t.Errorf("gc without NB: %v: %s", err, out)
	}
	w.Must(w.NB.Restart(w.Ctx))
	w.End(p)
	w.Eventually(func() error { // the agent connects to NB again, and then releases
		out, err := w.gc("--dry-run")
		if err == nil && out != "nothing is left on this node of containers that are gone\n" {
			err = errors.New(out)
		}
		return err
	})
	w.Must(w.Nodes[0].KillAgent())
	out, err = w.gc("--dry-run")
	if err == nil || !strings.HasPrefix(out, "ovn-multinetd: agent at "+w.Nodes[0].AgentSocket+": ") || !strings.HasSuffix(out, "; is the ovn-multinet agent running on this node?\n") || strings.Count(out, "\n") != 1 {
		t.Errorf("gc without an agent: %v: %s", err, out)
	}
	w.Must(w.Nodes[0].StartAgent(w.Ctx))
	w.Over(lives)
}
