package agent

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/node/journal"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
)

// leftIn is an entry of the journal whose delegates would not go.
func (r *rig) leftIn(container, ifName string) *journal.Summary {
	a := r.attachedTo(container, "d1")
	a.Sandbox.Interface, a.FailedAttempts, a.LastError = ifName, 3, "interface net2: no"
	return a
}

// leftBehind is what the agent says of it.
func leftBehind(a *journal.Summary, since time.Time, forgotten bool) agentapi.FailedDEL {
	return agentapi.FailedDEL{Sandbox: a.Sandbox, FailedAttempts: 3, LastError: "interface net2: no", Since: since, Forgotten: forgotten,
		Delegates: []agentapi.FailedDelegate{{Interface: "net1", Network: "shop/ext"}, {Interface: "net2", Network: "shop/vf", Device: "d1"}}}
}

// left asks the agent.
func (r *rig) left() []agentapi.FailedDEL {
	r.t.Helper()
	var answer agentapi.FailedDELs
	r.must(r.call(agentapi.OpFailedDELs, agentapi.FailedDELsRequest{}, &answer))
	return answer.Attachments
}

// release lists release/, hidden files too.
func (r *rig) release() []string {
	r.t.Helper()
	entries, err := os.ReadDir(filepath.Join(r.conf.StateDir, journal.ReleaseDir))
	r.must(err)
	names := []string{}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// An operator sees those whose DEL failed, and no others.
func TestLeftBehind(t *testing.T) {
	r := newRig(t)
	r.start()
	var answer json.RawMessage
	r.must(r.call(agentapi.OpFailedDELs, agentapi.FailedDELsRequest{}, &answer))
	if string(answer) != `{"attachments":[]}` {
		t.Errorf("of nothing: %s", answer)
	}
	failed, forgotten, intent := r.leftIn("c2", "eth0"), r.leftIn("c3", "eth0"), r.leftIn("c4", "eth0")
	intent.Plan = nil // what it had went with its release
	r.writeAttached(r.attachedTo("c1", "d7"), failed, forgotten, intent)
	r.write("", journal.ReleaseDir, ".forget-c3@eth0")
	r.write("{", journal.EntryDir, "c5@eth0")
	r.write("", journal.EntryDir, "c2@eth0.left")
	at := time.Unix(1_700_000_000, 0).UTC()
	for _, a := range []*journal.Summary{failed, forgotten} {
		r.must(os.Chtimes(filepath.Join(r.conf.StateDir, journal.EntryDir, a.Sandbox.ID()), at, at))
	}
	got := r.left()
	for i := range got {
		got[i].Since = got[i].Since.UTC()
	}
	if want := []agentapi.FailedDEL{leftBehind(failed, at, false), leftBehind(forgotten, at, true)}; !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if got := r.metric("ovn_multinet_agent_failed_dels"); got != 1 {
		t.Errorf("%v are counted, want 1: the other one is not tried again", got)
	}
	r.eventually("counted", func() bool {
		return testutil.ToFloat64(r.agent.metrics.requests.WithLabelValues("left", "0")) == 2 // of nothing, and now
	})
}

// A journal that cannot be read is not an empty one.
func TestLeftBehindOfAJournalThatCannotBeRead(t *testing.T) {
	r := newRig(t)
	r.start()
	r.write("", journal.EntryDir)
	want := "which DELs failed: open " + filepath.Join(r.conf.StateDir, journal.EntryDir) + ": not a directory"
	wantCoded(t, r.call(agentapi.OpFailedDELs, agentapi.FailedDELsRequest{}, nil), conf.CodeTryAgain, want)
	wantCoded(t, r.call(agentapi.OpForget, agentapi.ForgetRequest{Sandbox: agentapi.Sandbox{ContainerID: "c1"}}, nil), conf.CodeTryAgain, want)
	if got := r.metric("ovn_multinet_agent_failed_dels"); !math.IsNaN(got) {
		t.Errorf("%v are counted, where nobody can tell", got)
	}
	if got := r.release(); len(got) != 0 {
		t.Errorf("release/ has %q", got)
	}
}

// Only what is named clearly, and is in trouble, is given up.
func TestForget(t *testing.T) {
	tests := []struct {
		name                string
		container, ifName   string
		want                string // the mark
		number              int    // of those that have this name, where it is refused
		alone               bool   // with one attachment that would not go
		forgottenBeforehand bool
	}{
		{name: "by its ID", container: "abc123", want: ".forget-abc123@eth0"},
		{name: "by the beginning", container: "abc1", want: ".forget-abc123@eth0"},
		{name: "by the interface of two", container: "abd", ifName: "eth1", want: ".forget-abd@eth1"},
		{name: "a second time", container: "abc123", want: ".forget-abc123@eth0", forgottenBeforehand: true},
		{name: "the only one, by its beginning", container: "a", want: ".forget-abc123@eth0", alone: true},
		{name: "the beginning of several", container: "ab", number: 3},
		{name: "two interfaces", container: "abd", number: 2},
		{name: "another interface", container: "abc123", ifName: "eth1", number: 0},
		{name: "the end of one", container: "c123", number: 0},
		{name: "more than one's", container: "abc1234", number: 0},
		{name: "unknown", container: "x", number: 0},
		{name: "one that lives", container: "live", number: 0},
		{name: "one whose ADD has no plan", container: "intent", number: 0},
		{name: "one that is damaged", container: "damaged", number: 0},
		{name: "no ID", container: "", number: 3},
		{name: "no ID of the only one", container: "", number: 1, alone: true},
		{name: "a path", container: "../abc123", number: 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t)
			r.start()
			intent := r.leftIn("intent", "eth0")
			intent.Plan = nil
			r.write("{", journal.EntryDir, "damaged@eth0")
			r.writeAttached(r.leftIn("abc123", "eth0"), intent, r.attachedTo("live", "d7"))
			if !tt.alone {
				r.writeAttached(r.leftIn("abd", "eth0"), r.leftIn("abd", "eth1"))
			}
			before := []string{}
			if tt.forgottenBeforehand {
				r.write("", journal.ReleaseDir, tt.want)
				before = append(before, tt.want)
			}
			if got := r.release(); !slices.Equal(got, before) {
				t.Fatalf("release/ has %q", got)
			}
			var l agentapi.FailedDEL
			err := r.call(agentapi.OpForget, agentapi.ForgetRequest{Sandbox: agentapi.Sandbox{ContainerID: tt.container, Interface: tt.ifName}}, &l)
			if tt.want == "" {
				wantCoded(t, err, conf.CodeInvalidConfig, `container "`+tt.container+`": `+string(rune('0'+tt.number))+" have this ID or beginning and delegates whose DEL failed, where one is wanted")
				if got := r.release(); len(got) != 0 {
					t.Errorf("release/ has %q", got)
				}
				return
			}
			r.must(err)
			if got := r.release(); !slices.Equal(got, []string{tt.want}) {
				t.Errorf("release/ has %q, want %s", got, tt.want)
			}
			info, err := os.Lstat(filepath.Join(r.conf.StateDir, journal.ReleaseDir, tt.want))
			if err != nil || info.Mode() != 0o600 || info.Size() != 0 {
				t.Errorf("the mark is %v, %v", info, err)
			}
			if id := strings.TrimPrefix(tt.want, ".forget-"); l.ID() != id || !l.Forgotten || len(l.Delegates) != 2 {
				t.Errorf("the answer is %+v", l)
			}
			for _, other := range r.left() {
				if other.Forgotten != (other.ID() == l.ID()) {
					t.Errorf("%s is forgotten: %t", other.ID(), other.Forgotten)
				}
			}
			// What an operator did to a pod is in the log.
			if !strings.Contains(r.log.String(), `msg="an operator had a failed DEL forgotten" pod=shop/old containerID=`+l.ContainerID) {
				t.Errorf("the log: %s", r.log.String())
			}
		})
	}
}

// The devices of what was given up are free at once.
func TestForgetFreesDevices(t *testing.T) {
	r := newDeviceRig(t)
	r.kubelet(vf + ": d1")
	r.start()
	r.writeAttached(r.leftIn("c9", "eth0"))
	_, err := r.planFor("c1", "vf")
	r.wantRefused(err, conf.CodeNoDevice, "no device of resource a.example/vf is free: d1 is allocated to container c9 of pod shop/old")
	r.must(r.call(agentapi.OpForget, agentapi.ForgetRequest{Sandbox: agentapi.Sandbox{ContainerID: "c9"}}, nil))
	p, err := r.planFor("c1", "vf")
	r.must(err)
	if got := given(p); got != "net1 a.example/vf d1" {
		t.Errorf("got %s", got)
	}
}

// A mark goes with its entry: the plugin that took the entry away may have been killed before it took the mark.
func TestMarksAreSwept(t *testing.T) {
	r := newRig(t)
	r.writeAttached(r.leftIn("c1", "eth0"))
	// In the order in which the folder is read: what is to go comes last.
	for _, name := range []string{".c2@eth0.tmp", ".forget-c1@eth0", ".forget-c1@eth1", ".forget-c2@eth0"} {
		r.write("", journal.ReleaseDir, name)
	}
	r.start()
	r.eventually("swept", func() bool { return !slices.Contains(r.release(), ".forget-c2@eth0") })
	if got := r.release(); !slices.Equal(got, []string{".c2@eth0.tmp", ".forget-c1@eth0"}) {
		t.Errorf("release/ has %q", got)
	}
	if got := r.left(); len(got) != 1 || !got[0].Forgotten {
		t.Errorf("left: %+v", got)
	}
}

// The folder that an operator's word goes to is root's, whoever made it.
func TestReleaseFolderIsClosed(t *testing.T) {
	r := newRig(t)
	dir := filepath.Join(r.conf.StateDir, journal.ReleaseDir)
	r.must(os.MkdirAll(dir, 0o755))
	r.must(os.Chmod(dir, 0o777))
	r.start()
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}

// scans counts the transactions in which NB looks through all ports.
func (r *rig) scans() (count func() int) {
	n := 0
	r.proxy.Before(func(tr ovndbtest.Transact) {
		for _, op := range tr.Ops {
			if op["table"] == "Logical_Switch_Port" && op["op"] == "select" && !strings.Contains(fmt.Sprint(op["where"]), "_uuid") {
				n++
			}
		}
	})
	return func() int { r.proxy.Before(nil); return n }
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
