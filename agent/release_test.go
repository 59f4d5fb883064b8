package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/node/journal"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
)

// TestReleaseLeftBehind: what a DEL could not tell an agent is done at the agent's start.
func TestReleaseLeftBehind(t *testing.T) {
	r := newRig(t)
	r.start()
	p, err := r.plan("c1")
	r.must(err)
	if got := r.ports(); len(got) != 2 || got["shop/web/net1"] != "c1" {
		t.Fatalf("ports %v", got)
	}
	r.must(r.stop())
	release := agentapi.Release{Version: agentapi.Version, Sandbox: r.sandbox("c1"), Planned: true, Ports: []agentapi.Port{p.Interfaces[0].Port, p.Interfaces[1].Port}}
	for name, c := range map[string]struct{ file, text string }{
		"whole":   {"c1@eth0", string(marshal(t, release))},
		"damaged": {"c1@eth0", `{"version":1,"sand`},
	} {
		t.Run(name, func(t *testing.T) {
			r.t = t
			path := filepath.Join(r.conf.StateDir, journal.ReleaseDir, c.file)
			r.must(os.WriteFile(path, []byte(c.text), 0o600))
			r.start()
			r.eventually("released", func() bool { return len(r.ports()) == 0 && !exists(path) })
			_, err := r.plan("c1") // for the next round
			r.must(err)
			r.must(r.stop())
		})
	}
}

// TestReleaseWaitsForNB: a DEL is answered although NB hangs; the file stays until NB has agreed. A plan of the same
// sandbox in between must not lose its ports to the late release.
func TestReleaseWaitsForNB(t *testing.T) {
	r := newRig(t)
	r.start()
	p, err := r.plan("c1")
	r.must(err)
	path := filepath.Join(r.conf.StateDir, journal.ReleaseDir, "c1@eth0")
	release := agentapi.Release{Version: agentapi.Version, Sandbox: r.sandbox("c1"), Planned: true, Ports: []agentapi.Port{p.Interfaces[0].Port, p.Interfaces[1].Port}}
	r.must(os.WriteFile(path, marshal(t, release), 0o600))
	r.nb.Pause()
	var done agentapi.Released
	r.must(r.call(agentapi.OpRelease, release, &done))
	if done.Done || !exists(path) {
		t.Errorf("answered %+v while NB hangs, file there: %t", done, exists(path))
	}
	planned := make(chan error, 1)
	go func() {
		_, err := r.plan("c1")
		planned <- err
	}()
	r.nb.Resume()
	r.must(<-planned)
	r.eventually("done with the release", func() bool { return !exists(path) })
	// Whatever is still to come of the old release has come once its lock is free.
	unlock, err := r.agent.sandboxes.take(t.Context(), "c1")
	r.must(err)
	defer unlock()
	if got := r.ports(); len(got) != 2 {
		t.Errorf("ports %v: the old release took the new ports", got)
	}
}

// An entry of the journal that a DEL has renamed is released as what it lists; an intent by its owner. Neither needs a scan.
func TestBoundaryRenamedEntryIsReleased(t *testing.T) {
	r := newRig(t)
	for _, tt := range []struct {
		name string
		plan bool
	}{{"an entry with its plan", true}, {"an intent", false}} {
		t.Run(tt.name, func(t *testing.T) {
			r.t = t
			r.start()
			p, err := r.plan("c1")
			r.must(err)
			r.must(r.stop())
			entry := journal.Summary{Sandbox: r.sandbox("c1")}
			if tt.plan {
				entry.Plan = p
			}
			r.write(string(marshal(t, map[string]any{"version": 1, "sandbox": entry.Sandbox, "plan": entry.Plan, "begun": 1})), journal.ReleaseDir, "c1@eth0")
			scans := r.scans()
			r.start()
			r.eventually("released", func() bool { return len(r.ports()) == 0 && len(r.release()) == 0 })
			if got := scans(); got > 1 { // the agent's first look may have come
				t.Errorf("NB looked through all ports %d times, want once at most", got)
			}
			if strings.Contains(r.log.String(), "is damaged") {
				t.Errorf("the log: %s", r.log.String())
			}
		})
	}
}

// A file of release/ that can neither be read nor deleted keeps no other from its release. It is named in the log and
// counted, and NB is not asked for it again and again.
func TestBoundaryOneBadReleaseKeepsNoOther(t *testing.T) {
	r := newRig(t)
	r.start()
	_, err := r.plan("c9")
	r.must(err)
	r.must(r.stop())
	// The folder is read in the order of the names: the bad one comes first.
	r.write("", journal.ReleaseDir, "c1@eth0", "inside") // can neither be read nor deleted
	r.write("", journal.ReleaseDir, "c9@eth0")
	r.start()
	r.eventually("released", func() bool { return len(r.ports()) == 0 })
	r.eventually("swept", func() bool { return slices.Equal(r.release(), []string{"c1@eth0"}) })
	r.eventually("counted", func() bool { return r.metric("ovn_multinet_agent_damaged_files") == 1 })
	if !strings.Contains(r.log.String(), "file=c1@eth0") {
		t.Errorf("the log does not name the file: %s", r.log.String())
	}
	// The next sweeps try the file alone.
	sweeps := func() int { return strings.Count(r.log.String(), "a file in release/ cannot be deleted") }
	before, asked := sweeps(), 0
	r.proxy.Before(func(tr ovndbtest.Transact) {
		if strings.Contains(fmt.Sprintf("%v", tr.Ops), "Logical_Switch_Port") {
			asked++
		}
	})
	r.agent.releases.wake()
	r.eventually("swept again", func() bool { return sweeps() > before })
	r.proxy.Before(nil)
	if asked > 0 {
		t.Errorf("NB was asked %d times", asked)
	}
	r.must(os.RemoveAll(filepath.Join(r.conf.StateDir, journal.ReleaseDir, "c1@eth0")))
	r.agent.releases.wake()
	r.eventually("no more counted", func() bool { return r.metric("ovn_multinet_agent_damaged_files") == 0 })
}

// What the plugin dropped is in the agent's log, and costs the databases nothing.
func TestBoundaryDroppedIsLogged(t *testing.T) {
	r := newRig(t)
	r.start()
	release := agentapi.Release{Version: agentapi.Version, Sandbox: r.sandbox("c1"), Planned: true, Abandoned: []string{"interface net1: network shop/ext: no vrfname"}}
	var released agentapi.Released
	r.must(r.call(agentapi.OpRelease, release, &released))
	if !released.Done || r.proxy.Counts().Committed > 0 || r.proxy.Counts().ReadOnly > 0 {
		t.Errorf("%+v after %+v", released, r.proxy.Counts())
	}
	if !strings.Contains(r.log.String(), "pod=shop/web containerID=c1 err=\"interface net1: network shop/ext: no vrfname\"") {
		t.Errorf("the log: %s", r.log.String())
	}
}
