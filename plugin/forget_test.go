package plugin

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/node/journal"
)

// mark is an operator's word that the delegates of a container will never go.
func (n *node) mark(container string) {
	n.t.Helper()
	s := sandbox(container)
	n.must(os.WriteFile(journal.Dir(n.state).ForgetMark(&s), nil, 0o600))
}

// wantState tells what there is below the state folder, hidden files too, without the folders.
func (n *node) wantState(what string, want ...string) {
	n.t.Helper()
	got := []string{}
	n.must(filepath.WalkDir(n.state, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			name, _ := filepath.Rel(n.state, path)
			got = append(got, name)
		}
		return err
	}))
	if !slices.Equal(got, want) {
		n.t.Errorf("%s: the state has %q, want %q", what, got, want)
	}
}

// readAttached is the journal as the agent reads it.
func (n *node) readAttached(container string) *journal.Summary {
	n.t.Helper()
	all, damaged, err := journal.Dir(n.state).Summaries()
	n.must(err)
	if len(damaged) > 0 {
		n.t.Errorf("damaged: %q", damaged)
	}
	for i := range all {
		if all[i].Sandbox.ContainerID == container {
			return &all[i]
		}
	}
	n.t.Fatalf("%s is not in %+v", container, all)
	return nil
}

// What the plugin writes is what the agent reads: who has which device, and why that did not go.
func TestJournalIsReadByTheAgent(t *testing.T) {
	n := newNode(t)
	e := n.attachments("c1", of(`{"type":"alpha"}`, ""), of(`{"type":"beta"}`, ""), of(`{"type":"alpha"}`, ""))
	e.Plan.Delegates[0].Device = &agentapi.Device{Resource: "a.example/vf", ID: "0000:18:02.5"}
	e.Plan.Delegates[1].Device = &agentapi.Device{Resource: "a.example/vg", ID: "d1"}
	n.must(n.call.journal.Write(e))
	if got := n.readAttached("c1"); !reflect.DeepEqual(got.Plan.Delegates, e.Plan.Outline().Delegates) || got.FailedAttempts != 0 || got.LastError != "" || got.Forgotten || got.Written.IsZero() {
		t.Errorf("%+v, want the plan %+v", got, e.Plan)
	}
	n.must(n.call.runner().Add(t.Context(), e))
	n.must(n.call.journal.Write(e))
	n.fails("DEL", "alpha")
	for tries := 1; tries <= journal.MaxAttempts; tries++ {
		err := (&Plugin{}).Del(n.args)
		if tries < journal.MaxAttempts {
			wantError(t, err, 119, "alpha cannot DEL")
		} else {
			n.must(err)
		}
		got := n.readAttached("c1")
		if got.FailedAttempts != tries || len(got.Plan.Delegates) != 2 {
			t.Fatalf("after %d tries: %+v", tries, got)
		}
		if first, last := got.Plan.Delegates[0], got.Plan.Delegates[1]; first.Name != "net1" || !reflect.DeepEqual(first.Device, e.Plan.Delegates[0].Device) || last.Name != "net3" || last.Device != nil {
			t.Errorf("what is left: %+v", got.Plan.Delegates)
		}
		// The last one is tried first.
		const no = `plugin type="alpha" failed (delete): delegate alpha: alpha cannot DEL`
		if want := "interface net3: network shop/ext: " + no + "; interface net1: network shop/ext: " + no; got.LastError != want {
			t.Errorf("complaint %q\nwant      %q", got.LastError, want)
		}
	}
}

// A complaint that goes on and on is cut: the journal is read by every ADD.
func TestComplaintsAreShort(t *testing.T) {
	n := newNode(t)
	n.attached("c1", of(`{"type":"alpha"}`, ""))
	n.write("fail DEL alpha", `{"code":119,"msg":"`+strings.Repeat("no ", 10_000)+`"}`)
	wantError(t, (&Plugin{}).Del(n.args), 119, "no no")
	if got := n.readAttached("c1").LastError; len(got) != 512 || !strings.HasPrefix(got, `interface net1: network shop/ext: plugin type="alpha" failed (delete): delegate alpha: no no`) {
		t.Errorf("%d bytes: %.60s…", len(got), got)
	}
	n.attached("c2", of(`{"type":"alpha"}`, ""), of(`{"type":"alpha"}`, ""))
	n.write("fail DEL alpha", `{"code":119,"msg":"no"}`)
	n.args.ContainerID = "c2"
	wantError(t, (&Plugin{}).Del(n.args), 119, "no")
	want := `interface net2: network shop/ext: plugin type="alpha" failed (delete): delegate alpha: no; interface net1: network shop/ext: plugin type="alpha" failed (delete): delegate alpha: no`
	if got := n.readAttached("c2").LastError; got != want {
		t.Errorf("two complaints: %s\nwant %s", got, want)
	}
}

// Delegates that an operator gave up are not asked again, and nothing of them is left: not the entry, not libcni's
// results, not the mark.
func TestForgottenGoes(t *testing.T) {
	tests := []struct {
		name   string
		tries  int // that failed before
		do     func(n *node) error
		called []string
	}{
		{"at its DEL", journal.MaxAttempts, func(n *node) error { return (&Plugin{}).Del(n.args) }, []string{}},
		{"at its DEL, after one complaint", 1, func(n *node) error { return (&Plugin{}).Del(n.args) }, []string{}},
		{"at GC", journal.MaxAttempts, func(n *node) error {
			return (&Plugin{}).GC(n.argsOf("", `,"cni.dev/valid-attachments":[]`))
		}, []string{"GC alpha", "GC beta"}},
		{"at another container's DEL", journal.MaxAttempts, func(n *node) error {
			n.attached("c9", of(`{"type":"beta"}`, ""))
			return (&Plugin{}).Del(n.argsOf("c9", ""))
		}, []string{"DEL beta net1"}},
		{"at another ADD of the container", journal.MaxAttempts, func(n *node) error {
			n.plans(&agentapi.Plan{})
			return (&Plugin{Stdout: &strings.Builder{}}).Add(n.argsOf("c1", `,"prevResult":`+prevResult))
		}, []string{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			n := newNode(t)
			n.attached("c1", both)
			n.fails("DEL", "alpha")
			for range tt.tries {
				_ = (&Plugin{}).Del(n.args)
			}
			if got := n.readAttached("c1"); got.FailedAttempts != tt.tries {
				t.Fatalf("%+v", got)
			}
			n.mark("c1")
			n.called()
			n.must(tt.do(n))
			n.wantCalled(tt.name, tt.called...)
			n.wantState(tt.name)
		})
	}
}

// A mark counts for delegates whose DEL has failed: those that were never asked are asked, and the mark goes with them.
func TestMarkOfWhatIsInNoTrouble(t *testing.T) {
	n := newNode(t)
	n.attached("c1", of(`{"type":"alpha"}`, ""))
	n.mark("c1")
	n.must((&Plugin{}).Del(n.args))
	n.wantCalled("DEL", "DEL alpha net1")
	n.wantState("DEL")
}

// Another's mark is not its own.
func TestMarksAreOfOneAttachment(t *testing.T) {
	n := newNode(t)
	n.givenUp("c1")
	n.mark("c2")
	other := agentapi.Sandbox{ContainerID: "c1", Interface: "eth1"}
	n.must(os.WriteFile(journal.Dir(n.state).ForgetMark(&other), nil, 0o600))
	n.must((&Plugin{}).Del(n.args))
	n.wantCalled("DEL", "DEL alpha net1")
	if got := n.readAttached("c1"); got.FailedAttempts != journal.MaxAttempts+1 || got.Forgotten {
		t.Errorf("%+v", got)
	}
}

// An ADD begins anew: a mark that is left of what the container had before is not for what it gets now.
func TestAddDropsAnOldMark(t *testing.T) {
	n := newNode(t)
	n.mark("c1")
	n.plans(&agentapi.Plan{Delegates: n.attachments("c1", of(`{"type":"alpha"}`, "")).Plan.Delegates})
	n.fails("ADD", "alpha")
	n.fails("DEL", "alpha")
	args := n.argsOf("c1", `,"prevResult":`+prevResult)
	wantError(t, (&Plugin{}).Add(args), 119, "alpha cannot ADD")
	n.wantCalled("ADD", "ADD alpha net1", "DEL alpha net1")
	if got := n.readAttached("c1"); got.FailedAttempts != 1 || got.Forgotten {
		t.Errorf("%+v", got)
	}
	wantError(t, (&Plugin{}).Del(n.args), 119, "alpha cannot DEL") // it is asked
	n.wantCalled("DEL", "DEL alpha net1")
}

// What an operator gave up is taken up before what is tried again, however long that has waited.
func TestForgottenIsTakenUpFirst(t *testing.T) {
	n := newNode(t)
	containers := []string{"c1", "c2", "c3"}
	for _, container := range containers {
		n.givenUp(container)
	}
	old := time.Now().Add(-time.Hour)
	for i, container := range containers {
		at := old.Add(time.Duration(i) * time.Minute)
		n.must(os.Chtimes(n.entry(container)+journal.FailedSuffix, at, at))
	}
	n.mark("c2")
	for _, tt := range []struct {
		want   string
		called []string
	}{{"c2", []string{"DEL beta net1"}}, {"c1", []string{"DEL beta net1", "DEL alpha net1"}}} {
		n.attached("c9", of(`{"type":"beta"}`, ""))
		own := sandbox("c9")
		if got, _ := n.call.journal.NextFailed(&own); got == nil || got.ContainerID != tt.want {
			t.Fatalf("%+v is taken up, want %s", got, tt.want)
		}
		n.must((&Plugin{}).Del(n.argsOf("c9", "")))
		n.wantCalled("DEL of another container", tt.called...)
	}
	if left := files(t, n.state, "attached"); !slices.Equal(left, []string{"c1@eth0", "c1@eth0.left", "c3@eth0", "c3@eth0.left"}) {
		t.Errorf("the journal has %q", left)
	}
	if marks := files(t, n.state, journal.ReleaseDir); len(marks) > 0 {
		t.Errorf("release/ has %q", marks)
	}
}

// Its own is not another's: the DEL of a container takes up what others left.
func TestForgottenOfOnesOwn(t *testing.T) {
	n := newNode(t)
	n.givenUp("c1")
	n.mark("c1")
	own := sandbox("c1")
	if got, _ := n.call.journal.NextFailed(&own); got != nil {
		t.Errorf("it takes up %+v", got)
	}
}

// The attachment's OVN ports are the agent's to release, whatever becomes of the delegates.
func TestForgottenBesideOVN(t *testing.T) {
	n := newNode(t)
	e := n.attached("c1", of(`{"type":"alpha"}`, ""))
	e.Plan.Interfaces, e.FailedAttempts = onePort(), 1
	n.must(n.call.journal.Write(e))
	n.mark("c1")
	release := n.call.journal.Release(e)
	n.must(n.call.journal.HandOver(e, nil, false))
	want := []agentapi.Port{{Name: "shop/web/net1", UUID: "p-1", Claims: []string{"c-1"}}}
	if release == nil || !reflect.DeepEqual(release.Ports, want) || !reflect.DeepEqual(n.readRelease("c1").Ports, want) {
		t.Errorf("released: %+v", release)
	}
	if _, err := os.Lstat(journal.Dir(n.state).ForgetMark(&e.Sandbox)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the mark: %v", err)
	}
}

// CNI_ARGS have it once, whatever the runtime and the network say: some plugins refuse the runtime's pod without
// it, and what is there twice is whichever the plugin takes.
func TestIgnoreUnknown(t *testing.T) {
	for given, want := range map[string]string{
		"": "IgnoreUnknown=1;IP=192.0.2.9",
		"K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web":                    "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web;IP=192.0.2.9",
		"IgnoreUnknown=1;K8S_POD_NAME=web":                           "IgnoreUnknown=1;K8S_POD_NAME=web;IP=192.0.2.9",
		"K8S_POD_NAME=web;IgnoreUnknown=true":                        "IgnoreUnknown=1;K8S_POD_NAME=web;IP=192.0.2.9",
		"IgnoreUnknown=0;K8S_POD_NAME=web;IgnoreUnknown=false":       "IgnoreUnknown=1;K8S_POD_NAME=web;IP=192.0.2.9",
		"IgnoreUnknown;K8S_POD_NAME=web;;=x;A=b=c":                   "IgnoreUnknown=1;K8S_POD_NAME=web;=x;A=b=c;IP=192.0.2.9",
		"K8S_POD_NAME=web;IgnoreUnknown=;K8S_POD_INFRA_CONTAINER=c1": "IgnoreUnknown=1;K8S_POD_NAME=web;K8S_POD_INFRA_CONTAINER=c1;IP=192.0.2.9",
	} {
		n := newNode(t)
		e := n.attachments("c1", of(`{"type":"alpha"}`, ""))
		e.Args = given
		n.must(n.call.runner().Add(t.Context(), e))
		_, _, errs := n.call.runner().Del(t.Context(), e)
		n.must(errs)
		for _, command := range []string{"ADD", "DEL"} {
			if env := n.read(command + " alpha net1.env"); !strings.Contains(env, "\nCNI_ARGS="+want+"\n") && !strings.HasPrefix(env, "CNI_ARGS="+want+"\n") {
				t.Errorf("of %q, %s has not %s: %s", given, command, want, env)
			}
		}
	}
}

// The device is the capability deviceID's of plugins that declare it, at DEL as at ADD.
func TestDeviceIDAsCapability(t *testing.T) {
	n := newNode(t)
	e := n.attachments("c1", of(`{"type":"alpha","capabilities":{"deviceID":true},"deviceID":"d1","pciBusID":"d1"},{"type":"beta"}`, ""))
	e.Plan.Delegates[0].Capabilities = map[string]json.RawMessage{"deviceID": json.RawMessage(`"d1"`)}
	n.must(n.call.runner().Add(t.Context(), e))
	n.must(n.call.journal.Write(e))
	n.must((&Plugin{}).Del(n.args))
	for call, want := range map[string]string{"ADD alpha net1": `{"deviceID":"d1"}`, "DEL alpha net1": `{"deviceID":"d1"}`, "ADD beta net1": "", "DEL beta net1": ""} {
		var request map[string]json.RawMessage
		n.must(json.Unmarshal([]byte(n.read(call+".stdin")), &request))
		if got := string(request["runtimeConfig"]); got != want {
			t.Errorf("%s: runtimeConfig %s, want %s", call, got, want)
		}
		if got := string(request["deviceID"]) + string(request["pciBusID"]); (got == `"d1""d1"`) != strings.Contains(call, "alpha") {
			t.Errorf("%s: deviceID and pciBusID %s", call, got)
		}
	}
}
