package source

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
)

// limit bounds everything that is waited for here.
const limit = 2 * time.Minute

// eventually polls, for what watches a folder or an API announces nothing to a test, until it is as wanted.
func eventually(t *testing.T, want string, got func() string) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(limit); ; <-tick.C {
		now := got()
		if now == want {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("it is %q after %v, want %q", now, limit, want)
		}
	}
}

// start runs something until the end of the test.
func start(t *testing.T, run func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run ended with %v", err)
		}
	})
}

// folder is a folder of manifests.
type folder struct {
	t   *testing.T
	dir string
}

func newFolder(t *testing.T) folder { return folder{t, t.TempDir()} }

// write renames a file in, as an atomic writer does.
func (f folder) write(name, text string) {
	f.t.Helper()
	temp := filepath.Join(f.t.TempDir(), name)
	for _, err := range []error{os.WriteFile(temp, []byte(text), 0o600), os.Rename(temp, filepath.Join(f.dir, name))} {
		if err != nil {
			f.t.Fatal(err)
		}
	}
}

// overwrite writes into a file where it lies.
func (f folder) overwrite(name, text string) {
	f.t.Helper()
	if err := os.WriteFile(filepath.Join(f.dir, name), []byte(text), 0o600); err != nil {
		f.t.Fatal(err)
	}
}

func (f folder) remove(name string) {
	f.t.Helper()
	if err := os.Remove(filepath.Join(f.dir, name)); err != nil {
		f.t.Fatal(err)
	}
}

// read returns a file's text, "" when there is none.
func (f folder) read(name string) string {
	text, err := os.ReadFile(filepath.Join(f.dir, name))
	if err != nil && !os.IsNotExist(err) {
		f.t.Error(err)
	}
	return string(text)
}

// list returns the names of all files, hidden ones too.
func (f folder) list() string {
	entries, err := os.ReadDir(f.dir)
	if err != nil {
		f.t.Error(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return strings.Join(names, " ")
}

// absent is want, with the words for what is not there, or cannot be told because of a broken file, made whole.
func (f folder) absent(want, name, notFound string) string {
	if file, ok := strings.CutSuffix(want, " is broken"); ok {
		return name + " in " + f.dir + ": it may be in " + file + ", which is not understood"
	}
	if want == "not found" {
		return name + " in " + f.dir + ": " + notFound
	}
	return want
}

// manifests opens the folder.
func (f folder) manifests(changed func(namespace, name string)) *Manifests {
	f.t.Helper()
	m, err := NewManifests(f.dir, Changes{NAD: changed}, slog.New(slog.DiscardHandler))
	if err != nil {
		f.t.Fatal(err)
	}
	return m
}

// names records what changed is called with.
type names struct {
	mu  sync.Mutex
	all []string
}

func (n *names) changed(namespace, name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.all = append(n.all, namespace+"/"+name)
}

// take returns what was recorded since the last time, sorted.
func (n *names) take() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	out := slices.Sorted(slices.Values(n.all))
	n.all = nil
	return strings.Join(out, " ")
}

// ended is the context of a caller that has no time left.
func ended() context.Context {
	ctx, cancel := context.WithCancel(background)
	cancel()
	return ctx
}

// calls counts.
type calls struct{ n atomic.Int64 }

func (c *calls) changed() { c.n.Add(1) }

// take returns how many there were since the last time.
func (c *calls) take() int64 { return c.n.Swap(0) }

// logged is a logger and what it wrote.
func logged() (*slog.Logger, func() string) {
	b := &buffer{}
	return slog.New(slog.NewTextHandler(b, nil)), b.String
}

type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// podYAML and nadYAML are manifests as users write them.
func podYAML(name, uid, networks string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata:
  name: %s
  namespace: shop
  uid: %q
  annotations:
    k8s.v1.cni.cncf.io/networks: %q
spec:
  nodeName: node-1
  containers: [{name: c, image: i}]
`, name, uid, networks)
}

func nadYAML(name, config string) string {
	return fmt.Sprintf(`apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: %s, namespace: shop}
spec:
  config: %q
`, name, config)
}

// show writes a pod in one line.
func show(p *netmodel.Pod, err error) string {
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%s/%s %s on %s: %s", p.Namespace, p.Name, p.UID, p.Node, p.Annotations["k8s.v1.cni.cncf.io/networks"])
}

func showNAD(d *netmodel.NAD, err error) string {
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%s/%s: %s", d.Namespace, d.Name, d.Config.Text())
}

// showNodes writes nodes in their order, "unknown" when the source knows none.
func showNodes(all []netmodel.Node, err error) string {
	if err != nil {
		return err.Error()
	}
	if all == nil {
		return "unknown"
	}
	words := make([]string, len(all))
	for i, n := range all {
		words[i] = n.Name
		for _, label := range slices.Sorted(maps.Keys(n.Labels)) {
			words[i] += " " + label + "=" + n.Labels[label]
		}
	}
	return strings.Join(words, "; ")
}

// showNADs writes NADs with all that is known of them, sorted.
func showNADs(all []*netmodel.NAD, err error) string {
	if err != nil {
		return err.Error()
	}
	words := make([]string, len(all))
	for i, d := range all {
		words[i] = fmt.Sprintf("%s: %s, created %d, state %q", d.ID(), d.Config.Text(), d.Created, d.State)
		if d.Resource != "" {
			words[i] += ", devices of " + d.Resource
		}
		for _, is := range []struct {
			so   bool
			word string
		}{{d.Deleting, "deleting"}, {d.HasFinalizer, "held"}, {d.ForceDelete, "force"}} {
			if is.so {
				words[i] += ", " + is.word
			}
		}
	}
	slices.Sort(words)
	return strings.Join(words, "; ")
}
