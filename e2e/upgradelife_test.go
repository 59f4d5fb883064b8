package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

// slow is a delegate's plugin whose ADD says that it has begun and then waits until it is told to go on.
type slow struct{ begun, goOn string } // named pipes

func (u *upgrade) slow() slow {
	dir := u.Nodes[0].Dir
	s := slow{filepath.Join(dir, "slow.begun"), filepath.Join(dir, "slow.go-on")}
	u.Must(errors.Join(syscall.Mkfifo(s.begun, 0o600), syscall.Mkfifo(s.goOn, 0o600)))
	script := fmt.Sprintf(`#!/bin/sh
case $CNI_COMMAND in
ADD) echo >%s; read go <%s; echo '{"cniVersion":"1.0.0"}' ;;
VERSION) echo '{"cniVersion":"1.0.0","supportedVersions":["1.0.0"]}' ;;
esac
`, s.begun, s.goOn)
	u.Must(os.WriteFile(filepath.Join(u.Binaries().Ours, "slow"), []byte(script), 0o755))
	u.NAD("slow", `{"cniVersion":"1.0.0","type":"slow"}`)
	return s
}

// TestExchangedInMidADD exchanges the plugin's binary, the agent, or both, while an ADD is between its plan and its bind: the
// process that runs is the one of before, and goes on with the agent of now.
func TestExchangedInMidADD(t *testing.T) {
	t.Parallel()
	u := newUpgrade(t, lab.Options{})
	n, slow := u.Nodes[0], u.slow()
	for _, c := range changes {
		for how, exchange := range map[string]func(u *upgrade){
			"plugin":            func(u *upgrade) { u.chains(c.to) },
			"agent":             func(u *upgrade) { u.serves(c.to) },
			"agent, by SIGKILL": func(u *upgrade) { u.Must(n.KillAgent()); u.starts(n, c.to) },
			"both":              func(u *upgrade) { u.chains(c.to); u.serves(c.to) },
			"agent, and back":   func(u *upgrade) { u.serves(c.to); u.serves(c.from) },
		} {
			t.Run(c.String()+", "+how, func(t *testing.T) {
				u.in(t).inMidADD(slow, c, exchange)
			})
		}
	}
}

// inMidADD does something while an ADD of the version that is changed from is between its plan and its bind. It succeeds, and the
// pod goes whole.
func (u *upgrade) inMidADD(s slow, c change, do func(*upgrade)) {
	const networks = "blue,rec,slow,green"
	u.chains(c.from)
	u.serves(c.from)
	p, added := u.Pod(0, "web", networks), make(chan error, 1)
	go func() {
		_, err := p.Add(u.Ctx)
		added <- err
	}()
	u.Read(s.begun)
	do(u)
	u.Must(os.WriteFile(s.goOn, []byte("go\n"), 0))
	u.Must(<-added)
	u.whole(p, networks)
	u.Must(p.Check(u.Ctx))
	u.gone(p)
}

// operator runs a command of a version's agent program on the first node, and returns what it printed on both streams.
func (u *upgrade) operator(version string, args ...string) (string, error) {
	cmd := exec.CommandContext(u.Ctx, filepath.Join(u.dirs[version], "ovn-multinetd"), append(args, "--socket", u.Nodes[0].AgentSocket)...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.String(), err
}

// TestOperatorAcrossVersions asks an agent of either version by the command of the other: what an agent is too old for, it says.
func TestOperatorAcrossVersions(t *testing.T) {
	t.Parallel()
	u := newUpgrade(t, lab.Options{})
	n := u.Nodes[0]
	stuck := filepath.Join(n.Dir, "stuck")
	u.recorderOn("sticky", fmt.Sprintf(`,"fail":{"DEL":{"code":11,"msg":"not yet"}},"while":"%s"`, stuck))
	for _, c := range changes {
		u.chains(c.from)
		u.serves(c.from)
		p := u.Attached(0, "web", "sticky")
		u.Must(os.WriteFile(stuck, nil, 0o600))
		for range 2 {
			u.refused(p.Del(u.Ctx), 11, "not yet")
		}
		u.End(p) // the third time it is no error any more
		u.chains(c.to)
		u.serves(c.to)
		for _, of := range versions {
			out, err := u.operator(of, "forget")
			if err != nil || !strings.Contains(out, p.Sandbox[:12]+" ") || !strings.Contains(out, "net1 on shop/sticky") {
				t.Errorf("%s: what version %s lists of the journal: %v: %q", c, of, err, out)
			}
		}
		out, err := u.operator(c.from, "forget", p.Sandbox[:12])
		if err != nil || !strings.Contains(out, "forgotten") {
			t.Errorf("%s: forget says %q, %v", c, out, err)
		}
		u.gone(u.Attached(0, "next", "blue")) // whose DEL takes the entry away, without the plugin
	}
	u.Must(os.Remove(stuck))

	for _, version := range versions {
		u.serves(version)
		out, err := u.operator(newer, "gc", "--dry-run")
		u.Must(err)
		equal(t, "what gc says of version "+version, out, "nothing is left on this node of containers that are gone\n")
	}
}

// TestDrainingOfOneVersion: a plugin on a node that is being uninstalled refuses pods with networks, whatever its agent's version.
// Pods that are there can be deleted.
func TestDrainingOfOneVersion(t *testing.T) {
	t.Parallel()
	u := newUpgrade(t, lab.Options{})
	n := u.Nodes[0]
	usual := n.PluginConf
	draining := func(entry map[string]any) {
		usual(entry)
		entry["draining"] = true
	}
	for _, tt := range []struct{ plugin, agent string }{{newer, newer}, {newer, older}, {older, newer}, {older, older}} {
		t.Run("plugin "+tt.plugin+", agent "+tt.agent, func(t *testing.T) {
			u := u.in(t)
			u.chains(tt.plugin)
			u.serves(tt.agent)
			before, p := u.Attached(0, "before", mixed), u.Pod(0, "web", mixed)
			n.PluginConf = draining
			defer func() { n.PluginConf = usual }()
			u.refused(u.TryAdd(p), conf.CodeTryAgain, "being uninstalled from this node")
			u.whole(before, mixed)
			u.gone(before, p)
		})
	}
}

// TestDeadOfOneVersion: an agent names a container that no DEL came for to a plugin of another version, which takes the container's
// delegates away.
func TestDeadOfOneVersion(t *testing.T) {
	t.Setenv("OVN_MULTINET_RECONCILE_PERIOD", "1s")
	u := newUpgrade(t, lab.Options{})
	for _, tt := range []struct{ plugin, agent string }{{older, newer}, {newer, older}} {
		u.serves(tt.agent)
		u.chains(tt.plugin)
		lost := u.Attached(0, "lost", mixed)
		u.Must(errors.Join(lost.RemoveManifest(), lost.RemoveNetNS()))
		u.Eventually(func() error {
			u.End(u.Attached(0, "web", "blue"))
			if got := u.ofSandbox(lost); len(got) != 2 || got[1] != "DEL" {
				return fmt.Errorf("plugin %s, agent %s: calls for the container: %q", tt.plugin, tt.agent, got)
			}
			return nil
		})
		u.gone(lost)
	}
}

// ofSandbox lists the recorder's calls for a sandbox.
func (u *upgrade) ofSandbox(p *lab.Pod) (commands []string) {
	for _, call := range u.told(u.log) {
		if call.container == p.Sandbox {
			commands = append(commands, call.command)
		}
	}
	return commands
}

// TestVersionsTooFarApart: with a peer whose protocol is two versions away there is one line that says so, and nothing is left.
func TestVersionsTooFarApart(t *testing.T) {
	t.Parallel()
	u := newUpgrade(t, lab.Options{CNIVersion: "1.1.0"})
	n := u.Nodes[0]
	for _, version := range versions {
		for _, spoken := range []int{agentapi.Version - 2, agentapi.Version + 2} {
			t.Run(fmt.Sprintf("version %s, peer speaks %d", version, spoken), func(t *testing.T) {
				u := u.in(t)
				u.chains(version)
				u.serves(version)
				words := fmt.Sprintf("protocol version %d is not understood, only %d", spoken, agentapi.Version)
				for _, op := range []string{agentapi.OpPlan, agentapi.OpBind, agentapi.OpRelease, agentapi.OpCheck, agentapi.OpStatus, agentapi.OpFailedDELs, agentapi.OpForget} {
					answer := u.ask(agentapi.Request{Version: spoken, Op: op, Body: []byte("{}")})
					if answer.Error == nil || answer.Error.Code != conf.CodeTryAgain || answer.Error.Msg != words || answer.Body != nil {
						t.Errorf("the agent's answer to %s: %+v", op, answer)
					}
				}
				p := u.Attached(0, "web", mixed)
				u.Must(n.StopAgent(u.Ctx))
				stop := u.standIn(spoken)
				u.refused(p.Check(u.Ctx), conf.CodeTryAgain, words)
				u.refused(n.Status(u.Ctx), conf.CodeNotAvailable, words)
				refused := u.Pod(0, "refused", mixed)
				u.refused(u.TryAdd(refused), conf.CodeTryAgain, words)
				u.Del(p) // what is made goes without an agent's word
				stop()
				u.starts(n, version)
				u.gone(p, refused)
			})
		}
	}
}

// ask sends a request to the first node's agent and returns its answer.
func (u *upgrade) ask(r agentapi.Request) (answer agentapi.Response) {
	conn, err := net.Dial("unix", u.Nodes[0].AgentSocket)
	u.Must(err)
	defer conn.Close()
	u.Must(agentapi.Write(conn, r))
	u.Must(agentapi.NewReader(conn).Read(&answer))
	return answer
}

// standIn serves the first node's agent socket, and answers everything in a version of the protocol, until stop.
func (u *upgrade) standIn(version int) (stop func()) {
	socket := u.Nodes[0].AgentSocket
	u.Must(os.RemoveAll(socket))
	l, err := net.Listen("unix", socket)
	u.Must(err)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			var r agentapi.Request
			if agentapi.NewReader(conn).Read(&r) == nil {
				_ = agentapi.Write(conn, agentapi.Response{Version: version, Body: []byte(`{"interfaces":[],"done":true}`)})
			}
			_ = conn.Close()
		}
	}()
	return func() {
		u.Must(l.Close())
		<-ended
	}
}

// TestNextProtocol: a version of the protocol is spoken to the next one's programs, in either place and when they are exchanged
// in mid ADD; also by the version before this one, whose protocol this is.
func TestNextProtocol(t *testing.T) {
	t.Parallel()
	const next = "N+1"
	u := newUpgrade(t, lab.Options{CNIVersion: "1.1.0"})
	n, slow := u.Nodes[0], u.slow()
	dir, err := lab.BuildNext(u.Ctx, agentapi.Version)
	u.Must(err)
	u.dirs[next] = dir
	for _, tt := range []struct{ plugin, agent string }{{next, next}, {next, newer}, {newer, next}, {next, older}, {older, next}} {
		t.Run("plugin "+tt.plugin+", agent "+tt.agent, func(t *testing.T) {
			u := u.in(t)
			u.chains(tt.plugin)
			u.serves(tt.agent)
			p := u.Attached(0, "web", mixed)
			u.whole(p, mixed)
			u.Must(errors.Join(p.Check(u.Ctx), n.Status(u.Ctx)))
			bad := u.Pod(0, "bad", "none") // a refusal is passed on, too
			u.refused(u.TryAdd(bad), conf.CodeNetworkNotFound, "network shop/none is not found")
			u.gone(p, bad)
		})
	}
	for _, c := range []change{{newer, next}, {next, newer}} {
		t.Run("agent "+c.String()+" in mid ADD", func(t *testing.T) {
			u.in(t).inMidADD(slow, c, func(u *upgrade) { u.serves(c.to) })
		})
	}
}
