package journal

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/internal/plainfile"
)

func newJournal(t *testing.T) Dir {
	t.Helper()
	j := Dir(filepath.Join(t.TempDir(), "state"))
	if err := j.Prepare(); err != nil {
		t.Fatal(err)
	}
	return j
}

func sandbox(id string) agentapi.Sandbox {
	return agentapi.Sandbox{ContainerID: id, Interface: "eth0", Conflist: "cbr0", Namespace: "shop", Pod: "web", UID: "u-1"}
}

func onePort() *agentapi.Plan {
	return &agentapi.Plan{Interfaces: []agentapi.Interface{{Name: "net1", Port: agentapi.Port{Name: "shop/web/net1", UUID: "p-1", Claims: []string{"c-1"}}}}}
}

// files lists a folder of the state, hidden files too.
func files(t *testing.T, dir ...string) []string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(dir...))
	if err != nil {
		t.Fatal(err)
	}
	names := []string{}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestJournalKeepsAnAttachment(t *testing.T) {
	j, s := newJournal(t), sandbox("c1")
	if e, err := j.Read(&s); e != nil || err != nil {
		t.Fatalf("read of nothing = %v, %v", e, err)
	}
	for _, p := range []*agentapi.Plan{nil, onePort()} {
		if err := j.Write(&Entry{Summary: Summary{Sandbox: s, Plan: p}}); err != nil {
			t.Fatal(err)
		}
		e, err := j.Read(&s)
		if err != nil || e.Damaged || e.Sandbox != s || (e.Plan == nil) != (p == nil) {
			t.Fatalf("read back %+v, %v", e, err)
		}
	}
	if got := files(t, string(j), "attached"); !slices.Equal(got, []string{"c1@eth0"}) {
		t.Errorf("files %q, want the entry alone", got)
	}
	info, err := os.Stat(filepath.Join(string(j), "attached"))
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("attached/ has mode %v, want it closed to others (%v)", info.Mode(), err)
	}
	if err := j.Delete(&s); err != nil {
		t.Fatal(err)
	}
	if err := j.Delete(&s); err != nil {
		t.Errorf("forget a second time: %v", err)
	}
	if got := files(t, string(j), "attached"); len(got) != 0 {
		t.Errorf("files %q are left", got)
	}
}

// TestJournalDamaged: an entry that does not parse, or is another container's, still says that there was one.
func TestJournalDamaged(t *testing.T) {
	for name, text := range map[string]string{
		"empty": "", "half": `{"version":1,"sandbox":{"contai`, "null": "null", "another interface's": `{"sandbox":{"containerID":"c1","interface":"net9"}}`, "another's": `{"sandbox":{"containerID":"c2"}}`, "binary": "\x00\x01",
	} {
		t.Run(name, func(t *testing.T) {
			j, s := newJournal(t), sandbox("c1")
			if err := os.WriteFile(j.Entry(&s), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			e, err := j.Read(&s)
			if err != nil || e == nil || !e.Damaged || e.Plan != nil || e.Sandbox != s {
				t.Fatalf("read = %+v, %v", e, err)
			}
			asked := j.Release(e)
			if err := j.HandOver(e, nil, false); err != nil {
				t.Fatal(err)
			}
			if r, _, err := j.ReadRelease(s.ID()); err != nil || r == nil || r.Planned || asked.Planned {
				t.Errorf("asked for %+v, handed over as %+v, %v; want a release by owner", asked, r, err)
			}
		})
	}
}

func TestHandOver(t *testing.T) {
	j, s := newJournal(t), sandbox("c1")
	e := &Entry{Summary: Summary{Sandbox: s, Plan: onePort()}}
	if err := j.Write(e); err != nil {
		t.Fatal(err)
	}
	if err := j.HandOver(e, nil, false); err != nil {
		t.Fatal(err)
	}
	if got := files(t, string(j), "attached"); len(got) != 0 {
		t.Errorf("attached/ still has %q", got)
	}
	r := readRelease(t, j, s)
	if !r.Planned || len(r.Ports) != 1 || r.Ports[0].UUID != "p-1" || r.Sandbox != s || r.Version != agentapi.Version {
		t.Errorf("release is %+v", r)
	}
	// A second attachment of the sandbox ends before the agent has released the first: both are to be released.
	again := &Entry{Summary: Summary{Sandbox: s, Plan: onePort()}}
	if r := j.Release(again); r.Planned || len(r.Ports) != 0 {
		t.Errorf("the agent is asked for %+v, want a release by owner", r)
	}
	if err := j.HandOver(again, nil, false); err != nil {
		t.Fatal(err)
	}
	if r := readRelease(t, j, s); r.Planned || len(r.Ports) != 0 {
		t.Errorf("release is %+v, want one by owner", r)
	}
}

// readRelease reads a file of release/ as the agent does.
func readRelease(t *testing.T, j Dir, s agentapi.Sandbox) agentapi.Release {
	t.Helper()
	text, err := os.ReadFile(j.release(s.ID()))
	if err != nil {
		t.Fatal(err)
	}
	r, damaged := ParseRelease(s.ID(), text)
	if damaged {
		t.Fatalf("the release of %s does not parse: %s", s.ID(), text)
	}
	return *r
}

// TestJournalLists: GC sees its own conflist's entries alone, and no locks, temporary or damaged files.
func TestJournalLists(t *testing.T) {
	j := newJournal(t)
	for _, id := range []string{"c1", "c2", "c3"} {
		s := sandbox(id)
		if id == "c3" {
			s.Conflist = "another"
		}
		if err := j.Write(&Entry{Summary: Summary{Sandbox: s}}); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"c1@eth0.lock", ".c9@eth0.tmp", "c4@eth0", "stray"} {
		if err := os.WriteFile(filepath.Join(string(j), "attached", name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	entries, err := j.Entries()
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, e := range entries {
		ids = append(ids, fmt.Sprintf("%s of %q, damaged: %t", e.Sandbox.ContainerID, e.Sandbox.Conflist, e.Damaged))
	}
	if want := []string{`c1 of "cbr0", damaged: false`, `c2 of "cbr0", damaged: false`, `c3 of "another", damaged: false`, `c4 of "", damaged: true`}; !slices.Equal(ids, want) {
		t.Errorf("lists %q, want %q", ids, want)
	}
}

// TestWriteFileIsWhole: what a killed writer left under the temporary name is overwritten, and a reader never sees
// half a file.
// Conformance: F-19
func TestWriteFileIsWhole(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	if err := os.WriteFile(plainfile.Temporary(path), []byte("left by a killed writer, and longer than what follows"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := writeJSON(path, map[string]int{"a": 1}, plainfile.Write); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil || string(text) != "{\"a\":1}\n" {
		t.Errorf("file has %q, %v", text, err)
	}
	if got := files(t, dir); !slices.Equal(got, []string{"f"}) {
		t.Errorf("files %q", got)
	}
}

// Whatever a disk made of an entry, it is read as one of its own sandbox, all of whose ports are released.
func FuzzJournal(f *testing.F) {
	f.Add([]byte(`{"version":1,"sandbox":{"containerID":"c1","interface":"eth0"},"plan":{"interfaces":[{"name":"net1","port":{"uuid":"u"}}],"delegates":[{"name":"net2","conflist":{}}]},"begun":1}`))
	f.Add([]byte(`{"sandbox":{"containerID":"c1","interface":"eth0"},"plan":null,"results":[null],"begun":-7,"complaints":2}`))
	f.Add([]byte(`{"sandbox":{"containerID":"c1"}}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, text []byte) {
		s := sandbox("c1")
		e := parseEntry(text, &s)
		if e.Sandbox.ID() != s.ID() || e.Damaged && e.Plan != nil {
			t.Fatalf("it is read as %+v", e)
		}
		for i := range e.BegunDelegates() {
			if r := e.Result(i); r != nil && string(r) != string(e.Results[i]) {
				t.Errorf("result %d is %s", i, r)
			}
		}
		r := e.Release()
		switch {
		case e.Plan == nil:
			if r == nil || r.Planned || len(r.Ports) != 0 {
				t.Errorf("release %+v without a plan, want one by owner", r)
			}
		case r == nil && len(e.Plan.Interfaces) > 0 || r != nil && len(r.Ports) != len(e.Plan.Interfaces):
			t.Errorf("release %+v of %+v", r, e.Plan)
		}
	})
}
