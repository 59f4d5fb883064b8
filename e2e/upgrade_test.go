package e2e

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
	"github.com/ovn-multinet/ovn-multinet/internal/failpoint"
	"github.com/ovn-multinet/ovn-multinet/node/journal"
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
	u.NAD("pair", `{"cniVersion":"1.0.0","type":"macvlan","master":"eth1"}`)
	u.log = u.recorderOn("rec", "")
	u.peer = u.Attached(0, "peer", "blue,green")
	u.Base = u.Snapshot()
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
	u.Must(u.Exchange(lab.PluginType, u.dirs[version]))
	path, err := filepath.EvalSymlinks(filepath.Join(u.Binaries().Ours, lab.PluginType))
	u.Must(err)
	equal(u.T, "the plugin", path, u.real(version, lab.PluginType))
}

// serves exchanges the agents for those of a version, which end as their DaemonSet has them end.
func (u *upgrade) serves(version string) {
	u.Must(u.Exchange("ovn-multinetd", u.dirs[version]))
	for _, n := range u.Nodes {
		u.Must(n.StopAgent(u.Ctx))
		u.starts(n, version)
	}
}

// starts starts a node's agent and looks which version it is.
func (u *upgrade) starts(n *lab.Node, version string, env ...string) {
	u.Must(u.Exchange("ovn-multinetd", u.dirs[version]))
	u.Must(n.StartAgent(u.Ctx, env...))
	path, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", n.Agent.Pid()))
	u.Must(err)
	equal(u.T, "the agent", path, u.real(version, "ovn-multinetd"))
}

func (u *upgrade) real(version, program string) string {
	path, err := filepath.EvalSymlinks(filepath.Join(u.dirs[version], program))
	u.Must(err)
	return path
}

// whole holds everything against each other that a pod with these networks has: kernel, status, rows, journal; and it
// reaches the peer.
func (u *upgrade) whole(p *lab.Pod, networks string) {
	names := strings.Split(networks, ",")
	links, status := u.Links(p), u.Status(p)
	equal(u.T, "entries in the status", len(status), 1+len(names))
	delegates := 0
	for i, name := range names {
		ifName := fmt.Sprintf("net%d", i+1)
		what := fmt.Sprintf("%s on %s", ifName, name)
		equal(u.T, what+" in the status", []string{status[i+1].Name, status[i+1].Interface}, []string{"shop/" + name, ifName})
		switch name {
		case "pair":
			u.delegated(p, delegates, i+1, "shop/pair", ifName, links[ifName].Prefixes())
			fallthrough
		case "rec", "slow":
			delegates++
			continue
		}
		addresses := strings.Join(append([]string{links[ifName].MAC}, links[ifName].IPs()...), " ")
		equal(u.T, what+" ips in the status", status[i+1].IPs, links[ifName].IPs())
		row := u.portRow(p, ifName)
		security, _, _ := strings.Cut(row.PortSecurity, " fe80:") // older versions did not name the link-local address
		equal(u.T, what+" in NB", []string{row.Addresses, security, row.ExternalIDs["ovn-multinet/sandbox"], row.Options["requested-chassis"]},
			[]string{addresses, addresses, p.Sandbox, p.Node.SystemID})
		// The version before may see the flows of an OVS port that it has just replaced, and end its wait too early.
		u.Must(lab.Eventually(u.Ctx, func() error {
			ids, err := p.Node.VSCtl(u.Ctx, "get", "Interface", agentapi.HostVeth(p.Sandbox, ifName), "external_ids:iface-id", "external_ids:ovn-installed")
			if want := []string{`"` + p.String() + "/" + ifName + `"`, `"true"`}; err == nil && !slices.Equal(strings.Fields(ids), want) {
				err = fmt.Errorf("%s in Open vSwitch: %s, want %q", what, ids, want)
			}
			return err
		}))
		u.reachBy(p, ifName, u.Links(u.peer)[map[string]string{"blue": "net1", "green": "net2"}[name]].IPs()...)
	}
	_, err := os.Stat(filepath.Join(p.Node.StateDir, journal.EntryDir, p.Sandbox+"@eth0"))
	u.Must(err)
}

// gone takes what is left of pods and wants the world as it was with the peer alone, and each ADD of the recorder to have had
// its DEL after it.
func (u *upgrade) gone(pods ...*lab.Pod) {
	u.Over(pods...)
	for _, p := range pods {
		last := "DEL" // one that was never begun needs none
		for _, call := range u.told(u.log) {
			if call.container == p.Sandbox {
				last = call.command
			}
		}
		equal(u.T, "the last call of rec for "+p.String(), last, "DEL")
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
					p, stale := u.Attached(0, "web", networks), u.Attached(0, "stale", networks)
					u.whole(p, networks)
					u.Must(errors.Join(p.Check(u.Ctx), stale.Check(u.Ctx), n.Status(u.Ctx)))
					u.Must(n.GC(u.Ctx, []*lab.Pod{u.peer, p}, lab.WithoutCache()))
					_, err := os.Stat(filepath.Join(n.StateDir, journal.EntryDir, stale.Sandbox+"@eth0"))
					equal(t, "what GC left in the journal", errors.Is(err, fs.ErrNotExist), true)
					equal(t, "what GC left in the pod", len(u.Links(stale)), 1)
					u.whole(p, networks)
					u.Must(p.Check(u.Ctx))
					u.Del(p)
					equal(t, "what DEL left in the pod", len(u.Links(p)), 0)
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
				here, away, lost := u.Attached(0, "here", mixed), u.Attached(0, "away", mixed), u.Attached(0, "lost", mixed)
				u.Must(os.Truncate(filepath.Join(n.StateDir, journal.EntryDir, lost.Sandbox+"@eth0"), 40))
				u.chains(plugin.to)
				u.Must(here.Check(u.Ctx))
				u.serves(agent.to)
				u.whole(here, mixed)
				u.Must(here.Check(u.Ctx))
				u.Del(here)

				u.Must(n.KillAgent())
				u.Del(away)
				u.Del(lost)
				for _, p := range []*lab.Pod{away, lost} {
					ports := u.NBCtl("--bare", "--columns=name", "find", "Logical_Switch_Port", "external_ids:ovn-multinet/sandbox="+p.Sandbox)
					equal(t, "ports of "+p.String()+" while no agent is there", len(strings.Fields(ports)), 2)
					_, err := os.Stat(filepath.Join(n.StateDir, journal.ReleaseDir, p.Sandbox+"@eth0"))
					u.Must(err)
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
				first, given := u.Pod(0, "web", mixed), u.Pod(0, "given-up", mixed)
				for _, p := range []*lab.Pod{first, given} {
					u.killed(u.TryAdd(p, lab.WithEnv(failpoint.Env+"="+point)))
				}
				u.chains(c.to)
				u.serves(c.to)
				second := u.NewSandbox(first)
				u.Add(second)
				u.Must(first.Del(u.Ctx)) // late: the second sandbox has the ports
				u.Must(first.RemoveNetNS())
				u.whole(second, mixed)
				u.gone(second, given)
			})
		}
		for _, point := range pluginDel {
			t.Run(fmt.Sprintf("%s, DEL at %s", c, point), func(t *testing.T) {
				u := u.in(t)
				u.chains(c.from)
				u.serves(c.from)
				p := u.Attached(0, "web", mixed)
				u.killed(p.Del(u.Ctx, lab.WithEnv(failpoint.Env+"="+point)))
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
					u.Must(n.StopAgent(u.Ctx))
					u.starts(n, c.from, failpoint.Env+"="+point)
					p := u.Pod(0, "web", "blue,green,rec")
					added, called := make(chan struct{}), make(chan error, 1)
					deleted := len(agentDel) > 0 && (point == agentDel[0] || point == agentDel[1])
					go func() {
						_, err := p.Add(u.Ctx)
						close(added)
						if err == nil && deleted {
							err = p.Del(u.Ctx)
						}
						called <- err
					}()
					u.killed(n.Agent.Wait(u.Ctx))
					u.starts(n, c.to, failpoint.Env+"=")
					u.Must(<-called)
					<-added
					if !deleted {
						u.whole(p, "blue,green,rec")
						u.Must(p.Check(u.Ctx))
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
				{`[{"name":"blue","ips":["` + u.Links(u.peer)["net1"].Prefixes()[0] + `"]}]`, conf.CodeInUse, "shop/peer"},
			} {
				p := u.Pod(0, "web", tt.networks)
				u.refused(u.TryAdd(p), tt.code, tt.words)
				u.gone(p)
			}
		}
	}
}

// TestRunningPodsNoticeNothing exchanges agents, controller and plugin to and fro, in order and by SIGKILL, while pods
// ping each other, on one node and between two: no network is cut off, and all that is written of the pods stays.
func TestRunningPodsNoticeNothing(t *testing.T) {
	t.Setenv("OVN_MULTINET_RECONCILE_PERIOD", "1s")
	u := newUpgrade(t, lab.Options{Nodes: 2})
	u.serves(older)
	u.chains(older)
	near, far := u.Attached(0, "near", "blue,green"), u.Attached(1, "far", "blue,green")
	var pings []*pinger
	allGoOn := func() {
		for _, p := range pings {
			p.goesOn()
		}
	}
	for _, from := range []*lab.Pod{near, far} {
		for name, l := range u.Links(u.peer) {
			if name == "eth0" {
				continue
			}
			for _, addr := range l.IPs() {
				pings = append(pings, u.pinging(from, addr))
			}
		}
	}
	allGoOn()
	world := u.Snapshot()
	for _, version := range []string{newer, older, newer} {
		u.chains(version)
		u.Must(u.Exchange("ovn-multinet-controller", u.dirs[version]))
		u.Must(errors.Join(u.KillController(), u.StartController(u.Ctx)))
		u.serves(version)
		allGoOn()
		for _, n := range u.Nodes {
			u.Must(n.KillAgent())
			u.starts(n, version)
		}
		for _, p := range []*lab.Pod{u.peer, near, far} {
			u.Must(p.Check(u.Ctx))
		}
		allGoOn()
		equal(t, "what version "+version+" changed", world.Diff(u.Snapshot()), "")
		// Pods come and go by this version.
		web := u.Attached(0, "web", mixed)
		u.whole(web, mixed)
		u.End(web)
		u.Must(lab.Eventually(u.Ctx, func() error {
			if diff := world.Diff(u.Snapshot()); diff != "" {
				return errors.New(diff)
			}
			return nil
		}))
	}
	for _, p := range pings {
		p.stop()
	}
	u.gone(near, far)
}
