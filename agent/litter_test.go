package agent

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/journal"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
)

// scans counts the transactions in which NB looks through all ports for a sandbox's.
func (r *rig) scans(sandbox string) (count func() int) {
	n := 0
	r.proxy.Before(func(tr ovndbtest.Transact) {
		if text := fmt.Sprintf("%v", tr.Ops); !tr.Writes && strings.Contains(text, "Logical_Switch_Port") {
			n++
		}
	})
	return func() int { r.proxy.Before(nil); return n }
}

// An entry of the journal that a DEL has renamed is released as what it lists, by key; an intent by its owner.
func TestBoundaryRenamedEntryIsReleased(t *testing.T) {
	r := newRig(t)
	for _, tt := range []struct {
		name  string
		plan  bool
		scans int
	}{{"an entry with its plan", true, 0}, {"an intent", false, 1}} {
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
			scans := r.scans("c1")
			r.start()
			r.eventually("released", func() bool { return len(r.ports()) == 0 && len(r.release()) == 0 })
			if got := scans(); got-1 != tt.scans { // one is the agent's own first list
				t.Errorf("NB looked through all ports %d times, want %d", got-1, tt.scans)
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

// failed are n attachments of a pod's earlier sandboxes whose delegates' DEL failed.
func (r *rig) failed(n int, namespace, pod, uid string) {
	r.t.Helper()
	for i := range n {
		a := r.leftIn(fmt.Sprint("f", namespace, pod, i), "eth0")
		a.Sandbox.Namespace, a.Sandbox.Pod, a.Sandbox.UID = namespace, pod, uid
		r.writeAttached(a)
	}
}

// Too many failed DELs of a pod, or of its namespace, refuse it another attachment with delegates before anything is
// written. Its OVN networks alone it may have, and so may others with delegates.
func TestBoundaryFailedDELsRefuseTheNext(t *testing.T) {
	for _, tt := range []struct {
		name     string
		prepare  func(r *rig)
		networks string
		want     string
	}{
		{"the pod's", func(r *rig) { r.failed(journal.MaxFailedOfPod, "shop", "web", "u-1") }, "blue,ext", "pod shop/web has 4 earlier sandboxes with a failed delegate DEL; a pod may have at most 4"},
		{"the namespace's", func(r *rig) { r.failed(journal.MaxFailedOfNamespace, "shop", "other", "u-2") }, "ext", "namespace shop has 32 sandboxes with a failed delegate DEL on this node"},
		{"no delegates", func(r *rig) { r.failed(journal.MaxFailedOfPod, "shop", "web", "u-1") }, "blue", ""},
		{"another namespace's", func(r *rig) { r.failed(2*journal.MaxFailedOfNamespace, "depot", "web", "u-1") }, "blue,ext", ""},
		{"given up", func(r *rig) {
			r.failed(journal.MaxFailedOfPod, "shop", "web", "u-1")
			r.must(r.call(agentapi.OpForget, agentapi.ForgetRequest{All: true}, nil))
		}, "blue,ext", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t)
			r.source.nads["ext"] = testNAD{Config: ext}
			r.start()
			tt.prepare(r)
			r.proxy.Reset()
			p, err := r.planFor("c1", tt.networks)
			if tt.want != "" {
				r.wantRefused(err, conf.CodeDelegateFailed, tt.want)
				if got := r.proxy.Counts(); got.Committed > 0 || got.Refused > 0 {
					t.Errorf("NB was asked: %+v", got)
				}
				return
			}
			r.must(err)
			if got := len(p.Interfaces) + len(p.Delegates); got != strings.Count(tt.networks, ",")+1 {
				t.Errorf("the plan has %d attachments", got)
			}
		})
	}
}

// One word of an operator gives up all of a node, or all of a namespace, and no attachment that is in no trouble.
func TestBoundaryForgetAll(t *testing.T) {
	for _, tt := range []struct {
		namespace string
		want      []string
	}{
		{"", []string{".forget-fdepotweb0@eth0", ".forget-fshopweb0@eth0", ".forget-fshopweb1@eth0"}},
		{"shop", []string{".forget-fshopweb0@eth0", ".forget-fshopweb1@eth0"}},
		{"none", nil},
	} {
		t.Run("namespace "+tt.namespace, func(t *testing.T) {
			r := newRig(t)
			r.start()
			r.failed(2, "shop", "web", "u-1")
			r.failed(1, "depot", "web", "u-1")
			r.writeAttached(r.attachedTo("live", "d7"))
			request := agentapi.ForgetRequest{Sandbox: agentapi.Sandbox{Namespace: tt.namespace}, All: true}
			var answer agentapi.FailedDELs
			r.must(r.call(agentapi.OpForget, request, &answer))
			if got := r.release(); !slices.Equal(got, tt.want) && len(got)+len(tt.want) > 0 {
				t.Errorf("release/ has %q, want %q", got, tt.want)
			}
			if len(answer.Attachments) != len(tt.want) || strings.Count(r.log.String(), "an operator had a failed DEL forgotten") != len(tt.want) {
				t.Errorf("the answer is %+v, the log %s", answer, r.log.String())
			}
			var again json.RawMessage
			r.must(r.call(agentapi.OpForget, request, &again))
			if string(again) != `{"attachments":[]}` {
				t.Errorf("a second time: %s", again)
			}
		})
	}
}

// What the agent knows of its node's blocks is of the networks that have ports there, not of all that ever had.
func TestBoundaryBlocksOfUnusedNetworksAreForgotten(t *testing.T) {
	r := newLayer3(t)
	r.has(l3)
	r.start()
	_, err := r.planFor("c1", on("x1"))
	r.must(err)
	known := func() int {
		r.agent.subnets.mu.Lock()
		defer r.agent.subnets.mu.Unlock()
		return len(r.agent.subnets.known)
	}
	r.agent.subnets.mu.Lock()
	for i := range 1000 {
		r.agent.subnets.known[fmt.Sprint("shop/gone", i)] = "10.0.0.0/24"
	}
	r.agent.subnets.mu.Unlock()
	_, err = r.agent.reconciler.pass(t.Context(), false)
	r.must(err)
	if got := known(); got != 1 {
		t.Errorf("%d networks are known, want the one that has a port", got)
	}
	r.proxy.Reset()
	_, err = r.planFor("c2", on("x2"))
	r.must(err)
	r.wantCounts(1, 0, 0) // it was not forgotten
}
