package source

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
	nadv1 "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	corev1 "k8s.io/api/core/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/ovn-multinet/ovn-multinet/nad"
)

// statusSuffix ends the name of the file with a pod's network-status: "<pod uid>.status.json".
const statusSuffix = ".status.json"

// Manifests is a flat folder of YAML files with Pods and NADs, several documents to a file, watched. All agents of
// a host and the controller share it.
type Manifests struct {
	dir string
	log *slog.Logger

	mu    sync.Mutex
	files map[string]*file // by name
	pods  map[key]*Pod
	nads  map[key]*nad.Definition
	// changed gets the name of every NAD that is new, different or gone; nil: nobody wants to know.
	changed func(namespace, name string)
}

// file is what one file held when it was read.
type file struct {
	info os.FileInfo
	// settled tells whether the file was older than what the clock of a file system distinguishes: if not, a later
	// change may have left its time as it was.
	settled bool
	broken  bool
	pods    []*Pod
	nads    []*nad.Definition
}

// clockTick is more than any file system's clock advances by at once: the kernel's tick, and FAT's two seconds.
const clockTick = 2 * time.Second

// NewManifests reads the folder, which must be there. changed may be nil; it is called for every NAD that is new,
// different or gone, and must not block.
func NewManifests(dir string, changed func(namespace, name string), log *slog.Logger) (*Manifests, error) {
	m := &Manifests{dir: dir, log: log, files: map[string]*file{}, changed: changed}
	return m, m.scan()
}

// Run keeps up with the folder until the end of ctx.
func (m *Manifests) Run(ctx context.Context) error {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch %s: %w", m.dir, err)
	}
	defer w.Close()
	if err := w.Add(m.dir); err != nil {
		return fmt.Errorf("watch %s: %w", m.dir, err)
	}
	for {
		// What changed before the watch stood, or while events were lost, is found by reading again.
		if err := m.scan(); err != nil {
			m.log.Error("read the manifests", "err", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case _, ok := <-w.Events:
			if !ok {
				return nil
			}
			drain(w.Events)
		case err := <-w.Errors:
			m.log.Warn("watch the manifests", "err", err)
		}
	}
}

// drain takes the events of one burst together.
func drain(events <-chan fsnotify.Event) {
	for {
		select {
		case <-events:
		default:
			return
		}
	}
}

// Pod returns the pod as its manifest is now.
func (m *Manifests) Pod(_ context.Context, namespace, name, uid string) (*Pod, error) {
	if p := m.pod(namespace, name); p != nil && p.Is(uid) {
		return p, nil
	}
	return m.LivePod(context.Background(), namespace, name)
}

// LivePod reads the folder again first.
func (m *Manifests) LivePod(_ context.Context, namespace, name string) (*Pod, error) {
	if err := m.scan(); err != nil {
		return nil, err
	}
	if p := m.pod(namespace, name); p != nil {
		return p, nil
	}
	return nil, fmt.Errorf("%s/%s in %s: %w", namespace, name, m.dir, ErrNotFound)
}

func (m *Manifests) pod(namespace, name string) *Pod {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.pods[key{namespace, name}]
}

// NAD returns the NAD; one that is not known yet is looked for in the folder.
func (m *Manifests) NAD(_ context.Context, namespace, name string) (*nad.Definition, error) {
	if d := m.nad(namespace, name); d != nil {
		return d, nil
	}
	if err := m.scan(); err != nil {
		return nil, err
	}
	if d := m.nad(namespace, name); d != nil {
		return d, nil
	}
	return nil, fmt.Errorf("%s/%s in %s: %w", namespace, name, m.dir, nad.ErrNotFound)
}

func (m *Manifests) nad(namespace, name string) *nad.Definition {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.nads[key{namespace, name}]
}

// podStatus is the file with a pod's network-status.
type podStatus struct {
	Namespace     string          `json:"namespace"`
	Name          string          `json:"name"`
	UID           string          `json:"uid"`
	NetworkStatus json.RawMessage `json:"network-status"`
}

// SetStatus writes a pod's network-status beside its manifest.
func (m *Manifests) SetStatus(_ context.Context, p *Pod, status []byte) error {
	text, err := json.MarshalIndent(podStatus{p.Namespace, p.Name, p.UID, status}, "", "  ")
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(m.dir, ".status-")
	if err != nil {
		return fmt.Errorf("network-status: %w", err)
	}
	_, err = f.Write(append(text, '\n'))
	err = errors.Join(err, f.Chmod(0o644), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), filepath.Join(m.dir, p.UID+statusSuffix))
	}
	if err != nil {
		return errors.Join(fmt.Errorf("network-status: %w", err), os.Remove(f.Name()))
	}
	return nil
}

// Event writes what would be an Event of the pod into the log: there is nobody else to tell.
func (m *Manifests) Event(p *Pod, kind EventKind, reason, message string) {
	m.log.Info("event", "pod", p.Namespace+"/"+p.Name, "kind", kind, "reason", reason, "message", message)
}

// scan reads what changed in the folder since the last time. A file that does not parse counts as empty and is
// named in the log; its neighbours are not affected.
func (m *Manifests) scan() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	entries, err := os.ReadDir(m.dir)
	if err != nil {
		return fmt.Errorf("manifests: %w", err)
	}
	statuses := statusFiles(entries)
	// A status is written after its pod's manifest: if a second look finds the status' pod in no manifest, the pod
	// is gone.
	if entries, err = os.ReadDir(m.dir); err != nil {
		return fmt.Errorf("manifests: %w", err)
	}
	seen := map[string]bool{}
	for _, e := range entries {
		if name := e.Name(); isManifest(name) {
			seen[name] = true
			m.load(name)
		}
	}
	maps.DeleteFunc(m.files, func(name string, _ *file) bool { return !seen[name] })
	before := m.nads
	m.index()
	m.tell(before)
	m.dropStatuses(statuses)
	return nil
}

func isManifest(name string) bool {
	return !strings.HasPrefix(name, ".") && (strings.HasSuffix(name, ".yaml") || strings.HasSuffix(name, ".yml"))
}

func statusFiles(entries []fs.DirEntry) []string {
	var uids []string
	for _, e := range entries {
		if uid, ok := strings.CutSuffix(e.Name(), statusSuffix); ok {
			uids = append(uids, uid)
		}
	}
	return uids
}

func (m *Manifests) load(name string) {
	path := filepath.Join(m.dir, name)
	info, err := os.Stat(path)
	if err != nil {
		delete(m.files, name)
		return
	}
	if old := m.files[name]; old != nil && old.settled && os.SameFile(old.info, info) && old.info.ModTime().Equal(info.ModTime()) && old.info.Size() == info.Size() {
		return
	}
	settled := time.Since(info.ModTime()) > clockTick
	f := &file{info: info, settled: settled}
	text, err := os.ReadFile(path)
	if err == nil {
		err = f.parse(text)
	}
	if err != nil {
		m.log.Error("manifest not understood, left out", "file", path, "err", err)
		f = &file{info: info, settled: settled, broken: true}
	}
	m.files[name] = f
}

func (f *file) parse(text []byte) error {
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for i := 0; ; i++ {
		doc, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = f.parseDocument(doc)
		}
		if err != nil {
			return fmt.Errorf("document %d: %w", i, err)
		}
	}
}

func (f *file) parseDocument(doc []byte) error {
	var kind struct {
		Kind string `json:"kind"`
	}
	if err := yaml.Unmarshal(doc, &kind); err != nil {
		return err
	}
	switch kind.Kind {
	case "":
		if len(bytes.TrimSpace(doc)) > 0 && !onlyComments(doc) {
			return errors.New("no \"kind\"")
		}
	case "Pod":
		var p corev1.Pod
		if err := yaml.UnmarshalStrict(doc, &p); err != nil {
			return err
		}
		if p.Name == "" {
			return errors.New("Pod without metadata.name")
		}
		f.pods = append(f.pods, fromPod(&p))
	case "NetworkAttachmentDefinition":
		var n nadv1.NetworkAttachmentDefinition
		if err := yaml.UnmarshalStrict(doc, &n); err != nil {
			return err
		}
		if n.Name == "" {
			return errors.New("NetworkAttachmentDefinition without metadata.name")
		}
		f.nads = append(f.nads, fromNAD(&n))
	}
	return nil
}

func onlyComments(doc []byte) bool {
	for line := range bytes.Lines(doc) {
		line = bytes.TrimSpace(line)
		if len(line) > 0 && line[0] != '#' && !bytes.Equal(line, []byte("---")) {
			return false
		}
	}
	return true
}

func namespaceOr(namespace string) string {
	if namespace == "" {
		return corev1.NamespaceDefault
	}
	return namespace
}

func fromPod(p *corev1.Pod) *Pod {
	return &Pod{Namespace: namespaceOr(p.Namespace), Name: p.Name, UID: string(p.UID), NodeName: p.Spec.NodeName, Annotations: p.Annotations}
}

func fromNAD(n *nadv1.NetworkAttachmentDefinition) *nad.Definition {
	return &nad.Definition{Namespace: namespaceOr(n.Namespace), Name: n.Name, Config: n.Spec.Config}
}

// index builds the maps anew; of two manifests of one name, that in the file that sorts first counts.
func (m *Manifests) index() {
	m.pods, m.nads = map[key]*Pod{}, map[key]*nad.Definition{}
	for _, name := range slices.Sorted(maps.Keys(m.files)) {
		for _, p := range m.files[name].pods {
			if k := (key{p.Namespace, p.Name}); m.pods[k] == nil {
				m.pods[k] = p
			}
		}
		for _, d := range m.files[name].nads {
			if k := (key{d.Namespace, d.Name}); m.nads[k] == nil {
				m.nads[k] = d
			}
		}
	}
}

// tell names the NADs that differ from before.
func (m *Manifests) tell(before map[key]*nad.Definition) {
	if m.changed == nil {
		return
	}
	for k, d := range m.nads {
		if old := before[k]; old == nil || *old != *d {
			m.changed(k.namespace, k.name)
		}
	}
	for k := range before {
		if m.nads[k] == nil {
			m.changed(k.namespace, k.name)
		}
	}
}

func (m *Manifests) dropStatuses(uids []string) {
	for _, f := range m.files {
		if f.broken {
			return // whose pods are alive is not known
		}
	}
	alive := map[string]bool{}
	for _, p := range m.pods {
		alive[p.UID] = true
	}
	for _, uid := range uids {
		if !alive[uid] {
			if err := os.Remove(filepath.Join(m.dir, uid+statusSuffix)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				m.log.Warn("drop the network-status of a pod that is gone", "uid", uid, "err", err)
			}
		}
	}
}
