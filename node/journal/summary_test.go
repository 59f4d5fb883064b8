package journal

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
)

// state is a state folder with these files, by their paths in it.
func state(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for _, sub := range []string{EntryDir, ReleaseDir} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// oneEntry is a file of the journal, as a plugin writes it; keys goes into the object.
func oneEntry(container, keys string) string {
	return `{"version":1,"sandbox":{"containerID":"` + container + `","interface":"eth0","conflist":"cbr0","namespace":"shop","pod":"web","uid":"u-1"}` + keys + `,"of another version":[]}` + "\n"
}

func TestSummaries(t *testing.T) {
	s := func(container string) agentapi.Sandbox {
		return agentapi.Sandbox{ContainerID: container, Interface: "eth0", Conflist: "cbr0", Namespace: "shop", Pod: "web", UID: "u-1"}
	}
	const devices = `,"plan":{"interfaces":null,"delegates":[{"name":"net1","network":"shop/ext","conflist":{"a":1},"device":{"resource":"a.example/vf","id":"d1","info":{"type":"pci"}},"position":0},{"name":"net2","network":"shop/ext","conflist":{},"position":1}]},"begun":2`
	made := &agentapi.Plan{Delegates: []agentapi.Delegate{
		{Name: "net1", Network: "shop/ext", Device: &agentapi.Device{Resource: "a.example/vf", ID: "d1"}},
		{Name: "net2", Network: "shop/ext", Position: 1},
	}}
	const failed = `,"complaints":2,"complaint":"interface net1: no"`
	tests := []struct {
		name    string
		files   map[string]string
		want    []Summary
		damaged []string
	}{
		{"nothing", nil, nil, nil},
		{"an intent", map[string]string{"attached/c1@eth0": oneEntry("c1", "")}, []Summary{{Sandbox: s("c1")}}, nil},
		{"a device", map[string]string{"attached/c1@eth0": oneEntry("c1", devices)}, []Summary{{Sandbox: s("c1"), Plan: made}}, nil},
		{"complaints", map[string]string{"attached/c1@eth0": oneEntry("c1", devices+failed)},
			[]Summary{{Sandbox: s("c1"), Plan: made, FailedAttempts: 2, LastError: "interface net1: no"}}, nil},
		{"forgotten", map[string]string{"attached/c1@eth0": oneEntry("c1", failed), "release/.forget-c1@eth0": ""},
			[]Summary{{Sandbox: s("c1"), FailedAttempts: 2, LastError: "interface net1: no", Forgotten: true}}, nil},
		{"a mark of what is in no trouble", map[string]string{"attached/c1@eth0": oneEntry("c1", devices), "release/.forget-c1@eth0": ""}, []Summary{{Sandbox: s("c1"), Plan: made}}, nil},
		{"another's mark", map[string]string{"attached/c1@eth0": oneEntry("c1", failed), "release/.forget-c1@eth1": "", "release/.forget-c2@eth0": "", "release/c1@eth0": "{}", "attached/.forget-c1@eth0": ""},
			[]Summary{{Sandbox: s("c1"), FailedAttempts: 2, LastError: "interface net1: no"}}, nil},
		{"several", map[string]string{"attached/c2@eth0": oneEntry("c2", ""), "attached/c1@eth0": oneEntry("c1", devices)}, []Summary{{Sandbox: s("c1"), Plan: made}, {Sandbox: s("c2")}}, nil},
		{"what stands beside them", map[string]string{
			"attached/c1@eth0": oneEntry("c1", ""), "attached/c1@eth0.lock": "", "attached/c1@eth0.left": "", "attached/.c1@eth0.tmp": oneEntry("c1", ""), "attached/notes": "x", "attached/c2@eth0.lock": "",
		}, []Summary{{Sandbox: s("c1")}}, nil},
		{"damaged", map[string]string{
			"attached/c1@eth0": oneEntry("c1", ""), "attached/c2@eth0": "", "attached/c3@eth0": oneEntry("c3", devices)[:100], "attached/c4@eth0": "null", "attached/c5@eth0": "\x00\x01",
			"attached/c6@eth0": oneEntry("c1", devices), "attached/c7@eth1": oneEntry("c7", ""), "attached/c8@eth0": oneEntry("c8", `,"plan":7`),
		}, []Summary{{Sandbox: s("c1")}}, []string{"c2@eth0", "c3@eth0", "c4@eth0", "c5@eth0", "c6@eth0", "c7@eth1", "c8@eth0"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := state(t, tt.files)
			at := time.Unix(1_700_000_000, 0)
			for name := range tt.files {
				if err := os.Chtimes(filepath.Join(dir, name), at, at); err != nil {
					t.Fatal(err)
				}
			}
			got, damaged, err := Dir(dir).Summaries()
			if err != nil {
				t.Fatal(err)
			}
			for i := range tt.want {
				tt.want[i].Written = at
			}
			if !reflect.DeepEqual(got, tt.want) || !reflect.DeepEqual(damaged, tt.damaged) {
				t.Errorf("got  %+v, damaged %q\nwant %+v, damaged %q", got, damaged, tt.want, tt.damaged)
			}
		})
	}
}

// Before the first ADD there is no journal, which is no error. A journal that cannot be listed is: what it holds is
// not free.
func TestSummariesFails(t *testing.T) {
	if got, damaged, err := Dir(filepath.Join(t.TempDir(), "none")).Summaries(); got != nil || damaged != nil || err != nil {
		t.Errorf("without a folder: %+v, %q, %v", got, damaged, err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, EntryDir), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got, _, err := Dir(dir).Summaries(); got != nil || err == nil || !strings.HasSuffix(err.Error(), "attached: not a directory") {
		t.Errorf("of a file in its place: %+v, %v", got, err)
	}
}

// A file of the journal that the disk does not give back hides no other, and is named as damaged.
func TestBoundaryUnreadableEntryHidesNoOther(t *testing.T) {
	dir := state(t, map[string]string{"attached/c1@eth0": oneEntry("c1", ""), "attached/c3@eth0": oneEntry("c3", "")})
	if err := os.Mkdir(filepath.Join(dir, EntryDir, "c2@eth0"), 0o700); err != nil { // reading it fails
		t.Fatal(err)
	}
	got, damaged, err := Dir(dir).Summaries()
	if err != nil || len(got) != 2 || got[0].Sandbox.ContainerID != "c1" || got[1].Sandbox.ContainerID != "c3" {
		t.Errorf("%+v, %v", got, err)
	}
	if want := []string{"c2@eth0"}; !reflect.DeepEqual(damaged, want) {
		t.Errorf("damaged: %q, want %q", damaged, want)
	}
}

func TestParseID(t *testing.T) {
	for name, want := range map[string]string{
		"c1@eth0": "c1 eth0", "c1@eth0.7": "c1 eth0.7", "c1@eth0.lockx": "c1 eth0.lockx", "c1@": "c1 ",
		"c1": "", "": "", "c1@eth0.lock": "", "c1@eth0.left": "", ".c1@eth0.tmp": "", ".c1@eth0": "", ".forget-c1@eth0": "",
	} {
		s, ok := ParseID(name)
		if got := s.ContainerID + " " + s.Interface; ok != (want != "") || ok && got != want {
			t.Errorf("%q: %q, %t; want %q", name, got, ok, want)
		}
	}
}

// The mark is where the agent may write, and hidden: agents that do not know it pass it by.
func TestForgetMark(t *testing.T) {
	if got, want := Dir("/state").ForgetMark(&agentapi.Sandbox{ContainerID: "c1", Interface: "eth0"}), "/state/release/.forget-c1@eth0"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// The entries of a node's pods are more than an agent can hold; their summaries are not.
func TestBoundaryJournalIsReadInOutline(t *testing.T) {
	config := func(i int) json.RawMessage {
		return json.RawMessage(fmt.Sprintf(`{"n":%d,"x":"%s"}`, i, strings.Repeat("x", 100<<10)))
	}
	files := map[string]string{}
	for i := range 20 {
		e := Entry{Summary: Summary{Sandbox: agentapi.Sandbox{ContainerID: fmt.Sprint("c", i), Interface: "eth0"}, Plan: &agentapi.Plan{}}}
		for n := range 8 { // each configuration is written once
			e.Plan.Delegates = append(e.Plan.Delegates, agentapi.Delegate{Name: fmt.Sprint("net", n), Network: "shop/ext", Conflist: config(n % 2)})
		}
		text := mustJSON(t, e)
		if len(text) > 2*100<<10+20<<10 {
			t.Errorf("an entry has %d bytes, for two configurations of %d", len(text), 100<<10)
		}
		files[filepath.Join(EntryDir, e.Sandbox.ID())] = string(text)
	}
	all, damaged, err := Dir(state(t, files)).Summaries()
	if err != nil || len(all) != 20 || len(damaged) != 0 {
		t.Fatalf("%d entries, damaged %v, %v", len(all), damaged, err)
	}
	size := 0
	for i := range all {
		for _, d := range all[i].Plan.Delegates {
			size += len(d.Conflist)
		}
		size += len(mustJSON(t, all[i]))
	}
	t.Attr("boundary.bytes-held-per-entry-of-the-journal", fmt.Sprint(size/20))
	if size > 20*2000 {
		t.Errorf("%d bytes are held", size)
	}
}

func mustJSON(t *testing.T, v any) []byte {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
