package plugin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/internal/nettest"
	"github.com/ovn-multinet/ovn-multinet/internal/plainfile"
	"github.com/ovn-multinet/ovn-multinet/node/journal"
)

// agentOf is an agent that answers each request as a test says, and remembers the releases that it was asked for.
type agentOf struct {
	mu       sync.Mutex
	releases []agentapi.Release
}

// agent serves the node's socket: answer makes the body of an answer, or the error.
func (n *node) agent(answer func(r *agentapi.Request) (any, []agentapi.Garbage, error)) *agentOf {
	n.t.Helper()
	a := &agentOf{}
	socket := filepath.Join(n.dir, "sock")
	n.socket = socket
	l, err := net.Listen("unix", socket)
	n.must(err)
	n.t.Cleanup(func() { _ = l.Close() })
	go func() {
		for conn, err := l.Accept(); err == nil; conn, err = l.Accept() {
			requests := agentapi.NewReader(conn)
			for r := (agentapi.Request{}); requests.Read(&r) == nil; r = (agentapi.Request{}) {
				if r.Op == agentapi.OpRelease {
					release := agentapi.Release{}
					_ = json.Unmarshal(r.Body, &release)
					a.mu.Lock()
					a.releases = append(a.releases, release)
					a.mu.Unlock()
				}
				body, dead, err := answer(&r)
				response := agentapi.Response{Version: agentapi.Version, Garbage: dead}
				if err != nil {
					response.Error = agentapi.NewError(err)
					response.Error.Clean = r.Op == agentapi.OpPlan
				} else {
					response.Body, _ = json.Marshal(body)
				}
				_ = agentapi.Write(conn, response)
			}
			_ = conn.Close()
		}
	}()
	return a
}

func (a *agentOf) asked() []agentapi.Release {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.releases)
}

// onSmallDisk is a node whose state is on a file system of its own.
func onSmallDisk(t *testing.T) *node {
	t.Helper()
	n := newNode(t)
	n.must(unix.Mount("tmpfs", n.state, "tmpfs", 0, "size=256k,nr_inodes=64"))
	t.Cleanup(func() { _ = unix.Unmount(n.state, unix.MNT_DETACH) })
	n.must(n.call.journal.Prepare())
	return n
}

// fill uses up all space of the node's disk, or all inodes, and returns what frees it again.
func (n *node) fill(what string) (free func()) {
	n.t.Helper()
	dir, probe := filepath.Join(n.state, "filler"), filepath.Join(n.state, "attached", "probe")
	n.must(os.Mkdir(dir, 0o700))
	if what == "space" {
		f, err := os.Create(filepath.Join(dir, "0"))
		n.must(err)
		for err == nil {
			_, err = f.Write(make([]byte, 512))
		}
		n.must(f.Close())
		if err := os.WriteFile(probe, []byte("x"), 0o600); !errors.Is(err, unix.ENOSPC) {
			n.t.Fatalf("the disk has space left: %v", err)
		}
		n.must(os.Remove(probe))
	} else {
		var err error
		for i := 0; err == nil; i++ {
			err = os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), nil, 0o600)
		}
		if err := os.WriteFile(probe, nil, 0o600); !errors.Is(err, unix.ENOSPC) {
			n.t.Fatalf("the disk has inodes left: %v", err)
		}
	}
	return func() { n.must(os.RemoveAll(dir)) }
}

// journalFiles are the files of attached/ and release/, hidden files too.
func (n *node) journalFiles() (names []string) {
	n.t.Helper()
	for _, dir := range []string{"attached", journal.ReleaseDir} {
		for _, name := range files(n.t, n.state, dir) {
			names = append(names, dir+"/"+name)
		}
	}
	return names
}

// wantFiles compares the files of the journal.
func (n *node) wantFiles(want ...string) {
	n.t.Helper()
	if got := n.journalFiles(); !slices.Equal(got, want) {
		n.t.Errorf("files %q, want %q", got, want)
	}
}

// withPort gives an attachment a port on an OVN network beside its delegates.
func (n *node) withPort(e *journal.Entry) *journal.Entry {
	n.t.Helper()
	e.Plan.Interfaces = onePort()
	n.must(n.call.journal.Write(e))
	return e
}

// A DEL on a full disk succeeds, without an agent too: nothing is written, and what is to be released waits for the
// agent.
func TestBoundaryDelOnAFullDisk(t *testing.T) {
	if !nettest.InOwn(t) {
		return
	}
	for _, what := range []string{"space", "inodes"} {
		for _, tt := range []struct {
			name    string
			prepare func(n *node)
			release string // of what: "ports", "owner", "" for nothing
			called  []string
		}{
			{"ports", func(n *node) { n.withPort(n.attachments("c1")) }, "ports", nil},
			{"ports and a delegate", func(n *node) { n.withPort(n.attached("c1", of(`{"type":"alpha"}`, ""))) }, "ports", []string{"DEL alpha net1"}},
			{"a delegate", func(n *node) { n.attached("c1", of(`{"type":"alpha"}`, "")) }, "", []string{"DEL alpha net1"}},
			{"an intent", func(n *node) {
				n.must(n.call.journal.Write(&journal.Entry{Summary: journal.Summary{Sandbox: sandbox("c1")}}))
			}, "owner", nil},
			{"a damaged entry", func(n *node) {
				n.must(os.WriteFile(n.entry("c1"), []byte("{"), 0o600))
			}, "owner", nil},
			{"an older release waits", func(n *node) {
				n.withPort(n.attachments("c1"))
				n.must(os.WriteFile(n.release("c1"), []byte(`{"containerID":"c1","interface":"eth0","planned":true}`), 0o600))
			}, "owner", nil},
			{"what a killed call left", func(n *node) {
				n.withPort(n.attachments("c1"))
				for _, path := range []string{plainfile.Temporary(n.entry("c1")), plainfile.Temporary(n.release("c1")), n.entry("c1") + journal.LockSuffix} {
					n.must(os.WriteFile(path, nil, 0o600))
				}
			}, "ports", nil},
		} {
			t.Run(what+", "+tt.name, func(t *testing.T) {
				n := onSmallDisk(t)
				tt.prepare(n)
				n.called()
				free := n.fill(what)
				n.must((&Plugin{}).Del(n.args))
				n.wantCalled("DEL", tt.called...)
				want := []string{"release/c1@eth0"}
				if tt.release == "" {
					want = nil
				}
				if got := n.journalFiles(); !slices.Equal(got, want) {
					t.Errorf("files %q, want %q", got, want)
				}
				n.must((&Plugin{}).Del(n.args)) // the runtime repeats it
				free()
				if tt.release == "" {
					return
				}
				text, err := os.ReadFile(n.release("c1"))
				n.must(err)
				r, _ := journal.ParseRelease("c1@eth0", text)
				if ports := r.Planned && len(r.Ports) == 1 && r.Ports[0].UUID == "p-1"; ports != (tt.release == "ports") || r.Planned != ports {
					t.Errorf("to be released: %+v, want by %s", r, tt.release)
				}
			})
		}
	}
}

// Where a full disk would lose something, the DEL says so, with a code, and the entry stays as it is for the retry. The
// ports are handed to the agent itself, if it is there.
func TestBoundaryDelOnAFullDiskWithWhatIsLeft(t *testing.T) {
	if !nettest.InOwn(t) {
		return
	}
	for _, what := range []string{"space", "inodes"} {
		for _, agent := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, agent %t", what, agent), func(t *testing.T) {
				n := onSmallDisk(t)
				released := &agentOf{}
				if agent {
					released = n.agent(func(*agentapi.Request) (any, []agentapi.Garbage, error) {
						return agentapi.Released{Done: true}, nil, nil
					})
				}
				n.withPort(n.attached("c1", of(`{"type":"alpha"}`, "")))
				n.fails("DEL", "alpha")
				n.called()
				before, err := os.ReadFile(n.entry("c1"))
				n.must(err)
				free := n.fill(what)
				for range 2 * journal.MaxAttempts {
					err := (&Plugin{}).Funcs().Del(n.argsOf("c1", ""))
					if err == nil || !strings.Contains(err.Error(), "no space left on device") || !strings.Contains(err.Error(), "alpha cannot DEL") {
						t.Fatalf("got %v", err)
					}
				}
				after, err := os.ReadFile(n.entry("c1"))
				n.must(err)
				if !bytes.Equal(before, after) {
					t.Errorf("the entry changed from\n%s\nto\n%s", before, after)
				}
				asked := released.asked()
				if agent != (len(asked) > 0) || agent && (!asked[0].Planned || asked[0].Ports[0].UUID != "p-1") {
					t.Errorf("the agent was asked for %+v", asked)
				}
				free()
				n.called()
				wantError(t, (&Plugin{}).Del(n.argsOf("c1", "")), 119, "alpha cannot DEL")
				n.wantCalled("DEL when there is room", "DEL alpha net1")
				if got := n.readAttached("c1"); got.FailedAttempts != 1 || len(got.Plan.Delegates) != 1 || len(got.Plan.Interfaces) != 0 {
					t.Errorf("the entry is %+v", got)
				}
				if agent { // it has released everything
					n.wantFiles("attached/c1@eth0")
				} else if r := n.readRelease("c1"); !r.Planned || len(r.Ports) != 1 {
					t.Errorf("to be released: %+v", r)
				}
			})
		}
	}
}

// An ADD on a full disk is refused before the agent hears of it, with a code and the disk's name, and leaves nothing.
func TestBoundaryAddOnAFullDisk(t *testing.T) {
	if !nettest.InOwn(t) {
		return
	}
	for _, what := range []string{"space", "inodes"} {
		t.Run(what, func(t *testing.T) {
			n := onSmallDisk(t)
			requests := 0
			n.agent(func(*agentapi.Request) (any, []agentapi.Garbage, error) {
				requests++
				return &agentapi.Plan{}, nil, nil
			})
			free := n.fill(what)
			err := (&Plugin{}).Add(n.argsOf("c1", `,"prevResult":`+prevResult))
			wantError(t, err, conf.CodeTryAgain, n.state, "no space left on device")
			if _, _, details := conf.Describe(err); !strings.Contains(details, "the node's disk has no space or no inodes left") {
				t.Errorf("details %q", details)
			}
			if requests > 0 {
				t.Errorf("the agent was asked %d times", requests)
			}
			free()
			n.wantState("after the ADD")
			n.wantCalled("ADD")
		})
	}
}

// A disk that becomes full in the middle of an ADD fails it, and everything is undone: the ports are released by
// the plan that the plugin has in memory, or by their owner, if the agent is away.
func TestBoundaryDiskFullInTheMiddleOfAnAdd(t *testing.T) {
	if !nettest.InOwn(t) {
		return
	}
	for _, what := range []string{"space", "inodes"} {
		n := onSmallDisk(t)
		p := n.attachments("c1", of(`{"type":"alpha"}`, "")).Plan
		p.Interfaces = []agentapi.Interface{{Name: "net9", MAC: "0a:58:0a:01:00:02", MTU: 1400, Port: onePort()[0].Port}}
		var free func()
		a := n.agent(func(r *agentapi.Request) (any, []agentapi.Garbage, error) {
			if r.Op == agentapi.OpPlan {
				free = n.fill(what)
				return p, nil, nil
			}
			return nil, nil, errors.New("the databases are away")
		})
		wantError(t, (&Plugin{}).Add(n.argsOf("c1", `,"prevResult":`+prevResult)), conf.CodeTryAgain, "no space left on device")
		n.wantCalled("ADD")
		if got := n.journalFiles(); !slices.Equal(got, []string{"release/c1@eth0"}) {
			t.Errorf("%s: files %q", what, got)
		}
		if asked := a.asked(); len(asked) != 1 || !asked[0].Planned || asked[0].Ports[0].UUID != "p-1" {
			t.Errorf("%s: the agent was asked for %+v", what, asked)
		}
		free()
		if r := n.readRelease("c1"); r.Planned {
			t.Errorf("%s: to be released: %+v, want by owner", what, r)
		}
	}
}

// A call without a file for its lock excludes the calls that have one, of every container, and they exclude it.
func TestBoundaryLockWithoutAFile(t *testing.T) {
	if !nettest.InOwn(t) {
		return
	}
	n := onSmallDisk(t)
	d, folder := n.call.journal, filepath.Dir(n.entry("c1"))
	other, err := d.Lock(t.Context(), pointer("c2")) // has a file
	n.must(err)
	free := n.fill("inodes")
	over, cancel := context.WithCancel(t.Context())
	cancel() // a call that has to wait is refused at once
	_, err = d.LockForDelete(over, pointer("c1"))
	wantError(t, err, conf.CodeTryAgain, "lock "+folder)
	if _, _, details := conf.Describe(err); details != "a call on this node holds the lock" {
		t.Errorf("the error blames %q", details)
	}
	other.Unlock()
	n.must(os.WriteFile(filepath.Join(n.state, "filler", "last"), nil, 0o600)) // takes the inode of the other's file
	// A call that was refused still waits in the background, and releases the lock as soon as it gets it.
	soon := func(take func(context.Context, *agentapi.Sandbox) (*journal.Lock, error)) *journal.Lock {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); ; runtime.Gosched() {
			l, err := take(over, pointer("c1"))
			if err == nil {
				return l
			}
			if time.Now().After(deadline) {
				t.Fatal(err)
			}
		}
	}
	undo := soon(d.LockForDelete)
	if d.HasLock(pointer("c1")) {
		t.Error("the lock has a file")
	}
	free()
	_, err = d.Lock(over, pointer("c1"))
	wantError(t, err, conf.CodeTryAgain, "lock "+folder)
	undo.Unlock()
	soon(d.Lock).Unlock()
	if got := n.journalFiles(); len(got) > 0 {
		t.Errorf("files %q are left", got)
	}
}
