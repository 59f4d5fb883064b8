package e2e

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
	"github.com/ovn-multinet/ovn-multinet/internal/failpoint"
	"github.com/ovn-multinet/ovn-multinet/journal"
)

// The two versions that a node may have at once: an upgrade exchanges plugin and agent one after the other, and not in an
// order that one could rely on.
const older, newer = "N-1", "N"

var versions = []string{older, newer}

// change is from one version to another; a rollback is one too.
type change struct{ from, to string }

func (c change) String() string { return "from " + c.from + " to " + c.to }

var changes = []change{{older, newer}, {newer, older}}

// upgrade is a world whose plugin and agents are of either version.
type upgrade struct {
	*world
	dirs map[string]string // of each version's programs
	log  string            // of the network rec
	peer *lab.Pod          // of this version, there all the while
}

// newUpgrade brings up a world of this version, with networks of other plugins in it and with STATUS asking the agent.
func newUpgrade(t *testing.T, o lab.Options) *upgrade {
	t.Helper()
	previous, err := lab.BuildPrevious(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	u := &upgrade{dirs: map[string]string{older: previous.Lab}}
	u.world = newWorld(t, o, func(l *lab.Lab) {
		u.dirs[newer] = l.Binaries().Ours
		if err := l.OwnPrograms(); err != nil {
			t.Fatal(err)
		}
		for _, n := range l.Nodes {
			n.PluginConf = func(entry map[string]any) {
				entry["allowedDelegates"], entry["strictStatus"] = append([]string{"slow"}, allowed...), true
			}
		}
	})
	// The version before has one list for delegates and what they run for addresses: this one lets nothing run there for it.
	u.definition("pair", `{"cniVersion":"1.0.0","type":"macvlan","master":"eth1"}`)
	u.log = u.recorderOn("rec", "")
	u.peer = u.attached(0, "peer", "blue,green")
	u.base = u.snapshot()
	return u
}

// in is the upgrade for a subtest.
func (u *upgrade) in(t *testing.T) *upgrade {
	sub := *u
	sub.world = u.world.sub(t)
	return &sub
}

// chains puts a version's plugin in place.
func (u *upgrade) chains(version string) {
	u.t.Helper()
	u.must(u.Exchange(lab.PluginType, u.dirs[version]))
	path, err := filepath.EvalSymlinks(filepath.Join(u.Binaries().Ours, lab.PluginType))
	u.must(err)
	equal(u.t, "the plugin", path, u.real(version, lab.PluginType))
}

// serves exchanges the agents for those of a version, which end as their DaemonSet has them end.
func (u *upgrade) serves(version string) {
	u.t.Helper()
	u.must(u.Exchange("ovn-multinetd", u.dirs[version]))
	for _, n := range u.Nodes {
		u.must(n.StopAgent(u.ctx))
		u.starts(n, version)
	}
}

// starts starts a node's agent and looks which version it is.
func (u *upgrade) starts(n *lab.Node, version string, env ...string) {
	u.t.Helper()
	u.must(u.Exchange("ovn-multinetd", u.dirs[version]))
	u.must(n.StartAgent(u.ctx, env...))
	path, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", n.Agent.Pid()))
	u.must(err)
	equal(u.t, "the agent", path, u.real(version, "ovn-multinetd"))
}

func (u *upgrade) real(version, program string) string {
	u.t.Helper()
	path, err := filepath.EvalSymlinks(filepath.Join(u.dirs[version], program))
	u.must(err)
	return path
}

// whole holds everything against each other that a pod with these networks has: kernel, status, rows, journal; and it
// reaches the peer.
func (u *upgrade) whole(p *lab.Pod, networks string) {
	u.t.Helper()
	names := strings.Split(networks, ",")
	links, status := u.links(p), u.status(p)
	equal(u.t, "entries in the status", len(status), 1+len(names))
	delegates := 0
	for i, name := range names {
		ifName := fmt.Sprintf("net%d", i+1)
		what := fmt.Sprintf("%s on %s", ifName, name)
		equal(u.t, what+" in the status", []string{status[i+1].Name, status[i+1].Interface}, []string{"shop/" + name, ifName})
		switch name {
		case "pair":
			u.delegated(p, delegates, i+1, "shop/pair", ifName, links[ifName].Prefixes())
			fallthrough
		case "rec", "slow":
			delegates++
			continue
		}
		addresses := strings.Join(append([]string{links[ifName].MAC}, links[ifName].IPs()...), " ")
		equal(u.t, what+" ips in the status", status[i+1].IPs, links[ifName].IPs())
		row := u.portRow(p, ifName)
		equal(u.t, what+" in NB", []string{row.Addresses, row.PortSecurity, row.ExternalIDs["ovn-multinet/sandbox"], row.Options["requested-chassis"]},
			[]string{addresses, addresses, p.Sandbox, p.Node.SystemID})
		ids, err := p.Node.VSCtl(u.ctx, "get", "Interface", agentapi.HostVeth(p.Sandbox, ifName), "external_ids:iface-id", "external_ids:ovn-installed")
		u.must(err)
		equal(u.t, what+" in Open vSwitch", strings.Fields(ids), []string{`"` + p.String() + "/" + ifName + `"`, `"true"`})
		u.reachBy(p, ifName, u.links(u.peer)[map[string]string{"blue": "net1", "green": "net2"}[name]].IPs()...)
	}
	_, err := os.Stat(filepath.Join(p.Node.StateDir, journal.EntryDir, p.Sandbox+"@eth0"))
	u.must(err)
}

// gone takes what is left of pods and wants the world as it was with the peer alone, and each ADD of the recorder to have had
// its DEL after it.
func (u *upgrade) gone(pods ...*lab.Pod) {
	u.t.Helper()
	u.end(pods...)
	u.asBefore()
	for _, p := range pods {
		last := "DEL" // one that was never begun needs none
		for _, call := range u.told(u.log) {
			if call.container == p.Sandbox {
				last = call.command
			}
		}
		equal(u.t, "the last call of rec for "+p.String(), last, "DEL")
	}
}

const mixed = "blue,pair,rec,green"

// TestEveryPairOfVersions has plugin and agent of either version do all that a runtime asks for.
func TestEveryPairOfVersions(t *testing.T) {
	t.Parallel()
	u := newUpgrade(t, lab.Options{CNIVersion: "1.1.0"})
	n := u.Nodes[0]
	for _, agent := range versions {
		u.serves(agent)
		for _, plugin := range versions {
			for _, networks := range []string{"blue,green", "pair,rec", mixed} {
				t.Run(fmt.Sprintf("plugin %s, agent %s, %s", plugin, agent, networks), func(t *testing.T) {
					u := u.in(t)
					u.chains(plugin)
					p, stale := u.attached(0, "web", networks), u.attached(0, "stale", networks)
					u.whole(p, networks)
					u.must(errors.Join(p.Check(u.ctx), stale.Check(u.ctx), n.Status(u.ctx)))
					u.must(n.GC(u.ctx, []*lab.Pod{u.peer, p}, lab.WithoutCache()))
					_, err := os.Stat(filepath.Join(n.StateDir, journal.EntryDir, stale.Sandbox+"@eth0"))
					equal(t, "what GC left in the journal", errors.Is(err, fs.ErrNotExist), true)
					equal(t, "what GC left in the pod", len(u.links(stale)), 1)
					u.whole(p, networks)
					u.must(p.Check(u.ctx))
					u.del(p)
					equal(t, "what DEL left in the pod", len(u.links(p)), 0)
					u.gone(p, stale)
				})
			}
		}
	}
}

// TestDeletedByAnotherVersion has one version take away what another has made, with the agent there and with one that comes
// after the DEL: what the plugin wrote down for it is all that it knows.
func TestDeletedByAnotherVersion(t *testing.T) {
	t.Parallel()
	u := newUpgrade(t, lab.Options{})
	n := u.Nodes[0]
	for _, plugin := range changes {
		for _, agent := range changes {
			t.Run(fmt.Sprintf("plugin %s, agent %s", plugin, agent), func(t *testing.T) {
				u := u.in(t)
				u.chains(plugin.from)
				u.serves(agent.from)
				here, away, lost := u.attached(0, "here", mixed), u.attached(0, "away", mixed), u.attached(0, "lost", mixed)
				u.must(os.Truncate(filepath.Join(n.StateDir, journal.EntryDir, lost.Sandbox+"@eth0"), 40))
				u.chains(plugin.to)
				u.must(here.Check(u.ctx))
				u.serves(agent.to)
				u.whole(here, mixed)
				u.must(here.Check(u.ctx))
				u.del(here)

				u.must(n.KillAgent())
				u.del(away)
				u.del(lost)
				for _, p := range []*lab.Pod{away, lost} {
					ports, err := u.NBCtl(u.ctx, "--bare", "--columns=name", "find", "Logical_Switch_Port", "external_ids:ovn-multinet/sandbox="+p.Sandbox)
					u.must(err)
					equal(t, "ports of "+p.String()+" while no agent is there", len(strings.Fields(ports)), 2)
					_, err = os.Stat(filepath.Join(n.StateDir, journal.ReleaseDir, p.Sandbox+"@eth0"))
					u.must(err)
				}
				u.starts(n, agent.from) // to sweep what the other version left
				u.gone(here, away, lost)
			})
		}
	}
}

// TestKilledAndUndoneByAnotherVersion kills the plugin at each point of its work. The other version's takes away what it left,
// with the agent exchanged in between: of a pod that is tried anew in another sandbox, and of one that is given up.
func TestKilledAndUndoneByAnotherVersion(t *testing.T) {
	t.Parallel()
	u := newUpgrade(t, lab.Options{})
	for _, c := range changes {
		for _, point := range append([]string{"delegate-begun", "delegate-made"}, pluginAdd...) {
			t.Run(fmt.Sprintf("%s, ADD at %s", c, point), func(t *testing.T) {
				u := u.in(t)
				u.chains(c.from)
				u.serves(c.from)
				first, given := u.pod(0, "web", mixed), u.pod(0, "given-up", mixed)
				for _, p := range []*lab.Pod{first, given} {
					_, err := p.Add(u.ctx, lab.WithEnv(failpoint.Env+"="+point))
					u.killed(err)
				}
				u.chains(c.to)
				u.serves(c.to)
				second, err := first.NewSandbox(u.ctx)
				u.must(err)
				u.add(second)
				u.must(first.Del(u.ctx)) // late: the second sandbox has the ports
				u.must(first.RemoveNetNS())
				u.whole(second, mixed)
				u.gone(second, given)
			})
		}
		for _, point := range pluginDel {
			t.Run(fmt.Sprintf("%s, DEL at %s", c, point), func(t *testing.T) {
				u := u.in(t)
				u.chains(c.from)
				u.serves(c.from)
				p := u.attached(0, "web", mixed)
				u.killed(p.Del(u.ctx, lab.WithEnv(failpoint.Env+"="+point)))
				u.chains(c.to)
				u.serves(c.to)
				u.gone(p)
			})
		}
	}
}

// TestAgentExchangedUnderACall ends an agent by SIGKILL at each point of its work, and another version's takes its place. The
// plugin's call, of either version, goes on with that one.
func TestAgentExchangedUnderACall(t *testing.T) {
	t.Parallel()
	u := newUpgrade(t, lab.Options{})
	n := u.Nodes[0]
	for _, c := range changes {
		for _, plugin := range versions {
			for _, point := range append(agentAdd, agentDel...) {
				t.Run(fmt.Sprintf("agent %s at %s, plugin %s", c, point, plugin), func(t *testing.T) {
					u := u.in(t)
					u.chains(plugin)
					u.must(n.StopAgent(u.ctx))
					u.starts(n, c.from, failpoint.Env+"="+point)
					p := u.pod(0, "web", "blue,green,rec")
					added, called := make(chan struct{}), make(chan error, 1)
					deleted := len(agentDel) > 0 && (point == agentDel[0] || point == agentDel[1])
					go func() {
						_, err := p.Add(u.ctx)
						close(added)
						if err == nil && deleted {
							err = p.Del(u.ctx)
						}
						called <- err
					}()
					u.killed(n.Agent.Wait(u.ctx))
					u.starts(n, c.to, failpoint.Env+"=")
					u.must(<-called)
					<-added
					if !deleted {
						u.whole(p, "blue,green,rec")
						u.must(p.Check(u.ctx))
					}
					u.gone(p)
				})
			}
		}
	}
}

// TestRefusedAcrossVersions: what one version refuses, the other passes on as it is, and nothing is left.
func TestRefusedAcrossVersions(t *testing.T) {
	t.Parallel()
	u := newUpgrade(t, lab.Options{})
	for _, agent := range versions {
		u.serves(agent)
		for _, plugin := range versions {
			u.chains(plugin)
			for _, tt := range []struct {
				networks string
				code     uint
				words    string
			}{
				{"blue,none", conf.CodeNetworkNotFound, "network shop/none is not found"},
				{`[{"name":"blue","ips":["` + u.links(u.peer)["net1"].Prefixes()[0] + `"]}]`, conf.CodeInUse, "shop/peer"},
			} {
				p := u.pod(0, "web", tt.networks)
				_, err := p.Add(u.ctx)
				u.refused(err, tt.code, tt.words)
				u.gone(p)
			}
		}
	}
}

// steady starts a ping in short steps, from what reaches the address already. All of its answers count.
func (u *upgrade) steady(from *lab.Pod, addr string) *pinger {
	u.t.Helper()
	u.mustReach(from, addr)
	what := fmt.Sprintf("ping from %s to %s", from, addr)
	proc, err := u.Run(u.ctx, lab.Spec{
		Name: what, NetNS: from.NetNS, Args: []string{"ping", "-n", "-i", "0.02", addr},
		Log: filepath.Join(from.Node.Dir, "pods", fmt.Sprintf("%s.%s.log", from.Name, addr)),
	})
	u.must(err)
	return &pinger{u.world, proc, what}
}

// lost are the requests after since that have no answer although a later one has.
func (p *pinger) lost(since int) (lost []int) {
	next := since + 1
	for _, seq := range p.answers() {
		for ; next < seq; next++ {
			lost = append(lost, next)
		}
		next = max(next, seq+1)
	}
	return lost
}

// steadied waits until the last second's requests or so are all answered, and returns the last of them.
func (p *pinger) steadied() (last int) {
	p.w.t.Helper()
	const row = 40
	p.w.eventually(func() error {
		seqs := p.answers()
		if len(seqs) < row || seqs[len(seqs)-1]-seqs[len(seqs)-row] != row-1 {
			return fmt.Errorf("%s: no %d answers in a row", p.what, row)
		}
		last = seqs[len(seqs)-1]
		return nil
	})
	return last
}

// allAnswered waits for some more answers of each, and wants one to every request since.
func (u *upgrade) allAnswered(since map[*pinger]int) {
	u.t.Helper()
	before := map[*pinger]int{}
	for p := range since {
		before[p] = len(p.answers())
	}
	for p, from := range since {
		u.eventually(func() error {
			if n := len(p.answers()); n < before[p]+10 {
				return fmt.Errorf("%s: %d answers, %d some time ago", p.what, n, before[p])
			}
			return nil
		})
		equal(u.t, p.what+": requests without an answer", p.lost(from), nil)
	}
}

// TestRunningPodsNoticeNothing exchanges agents, controller and plugin to and fro, in order and by SIGKILL, while pods ping each
// other in short steps, on one node and between two: no request is without its answer, and what is written of the pods stays.
func TestRunningPodsNoticeNothing(t *testing.T) {
	t.Setenv("OVN_MULTINET_RECONCILE_PERIOD", "1s")
	u := newUpgrade(t, lab.Options{Nodes: 2})
	u.serves(older)
	u.chains(older)
	near, far := u.attached(0, "near", "blue,green"), u.attached(1, "far", "blue,green")
	since := map[*pinger]int{}
	for _, from := range []*lab.Pod{near, far} {
		for name, l := range u.links(u.peer) {
			if name == "eth0" {
				continue
			}
			for _, addr := range l.IPs() {
				since[u.steady(from, addr)] = 0
			}
		}
	}
	u.allAnswered(since)
	world := u.snapshot()
	for _, version := range []string{newer, older, newer} {
		u.chains(version)
		u.must(u.Exchange("ovn-multinet-controller", u.dirs[version]))
		u.must(errors.Join(u.KillController(), u.StartController(u.ctx)))
		u.serves(version)
		u.allAnswered(since)
		for _, n := range u.Nodes {
			u.must(n.KillAgent())
			u.starts(n, version)
		}
		for _, p := range []*lab.Pod{u.peer, near, far} {
			u.must(p.Check(u.ctx))
		}
		u.allAnswered(since)
		equal(t, "what version "+version+" changed", world.Diff(u.snapshot()), "")
		// Pods come and go by this version, which OVS drops some packets for, whoever makes their links.
		web := u.attached(0, "web", mixed)
		u.whole(web, mixed)
		u.end(web)
		u.must(lab.Eventually(u.ctx, func() error {
			if diff := world.Diff(u.snapshot()); diff != "" {
				return errors.New(diff)
			}
			return nil
		}))
		for p := range since {
			since[p] = p.steadied()
		}
	}
	for p := range since {
		u.must(p.proc.Stop(u.ctx))
	}
	u.gone(near, far)
}
