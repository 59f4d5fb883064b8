package source

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
)

// What we write into the folder: a pod's network-status as "<pod uid>.status.json", and the state of a network as
// "<namespace>.<name>.network.json" (a namespace has no dot).
const (
	statusSuffix  = ".status.json"
	networkSuffix = ".network.json"
)

// Manifests is a flat folder of YAML files with Pods, NADs and Nodes, several documents to a file, watched. All agents
// of a host and the controller share it.
type Manifests struct {
	dir string
	log *slog.Logger

	mu    sync.Mutex
	files map[string]*file // by name
	pods  map[key]*Pod
	nads  map[key]*netmodel.NAD
	nodes map[string]netmodel.Node // by name; empty: the folder says nothing of nodes

	changes Changes
	ends    ends
}

// file is what one file held when it was read.
type file struct {
	info os.FileInfo
	// settled tells whether the file was older than what the clock of a file system distinguishes: if not, a later
	// change may have left its time as it was.
	settled bool
	// broken files keep what they held before: an editor's half-written file is no word that anything is gone.
	broken bool
	pods   []*Pod
	nads   []*netmodel.NAD
	nodes  []netmodel.Node
}

// clockTick is more than any file system's clock advances by at once: the kernel's tick, and FAT's two seconds.
const clockTick = 2 * time.Second

// NewManifests reads the folder, which must be there.
func NewManifests(dir string, changes Changes, log *slog.Logger) (*Manifests, error) {
	m := &Manifests{dir: dir, log: log, files: map[string]*file{}, changes: changes}
	return m, m.scan()
}

// Run keeps up with the folder until the end of ctx.
func (m *Manifests) Run(ctx context.Context) error {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch %s: %w", m.dir, err)
	}
	defer w.Close()
	for said := false; ; {
		// Each time, for a watch ends with its folder, and another may be in its place by now.
		err := w.Add(m.dir)
		if err == nil {
			// What changed before the watch stood, or while events were lost, is found by reading again.
			err = m.scan()
		}
		var again <-chan time.Time
		if err != nil {
			if !said {
				m.log.Error("read the manifests, what they held before counts on", "err", err)
			}
			again = time.After(folderPause)
		}
		said = err != nil
		select {
		case <-ctx.Done():
			return nil
		case <-again:
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

// folderPause is how long a folder that cannot be read is left alone: nobody tells when it is back.
const folderPause = 200 * time.Millisecond

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

// Pods returns all pods of the folder.
func (m *Manifests) Pods(context.Context) ([]*Pod, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Collect(maps.Values(m.pods)), nil
}

// LivePod reads the folder again first.
func (m *Manifests) LivePod(_ context.Context, namespace, name string) (*Pod, error) {
	if err := m.scan(); err != nil {
		return nil, err
	}
	if p := m.pod(namespace, name); p != nil {
		return p, nil
	}
	return nil, m.absent(namespace, name, ErrNotFound)
}

// WhenGone has call called when the folder has no manifest of the pod any more, or that of another pod of the name.
func (m *Manifests) WhenGone(p *Pod, call func()) (stop func()) { return m.ends.when(p, call) }

// absent says that something is not there, unless it may be in a file that does not parse.
func (m *Manifests) absent(namespace, name string, notFound error) error {
	if broken := m.broken(); broken != "" {
		return fmt.Errorf("%s/%s in %s: it may be in %s, which is not understood", namespace, name, m.dir, broken)
	}
	return fmt.Errorf("%s/%s in %s: %w", namespace, name, m.dir, notFound)
}

// broken names a file that does not parse, "" when there is none.
func (m *Manifests) broken() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(m.files)) {
		if m.files[name].broken {
			return name
		}
	}
	return ""
}

func (m *Manifests) pod(namespace, name string) *Pod {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.pods[key{namespace, name}]
}

// NAD returns the NAD; one that is not known yet is looked for in the folder.
func (m *Manifests) NAD(_ context.Context, namespace, name string) (*netmodel.NAD, error) {
	d := m.nad(namespace, name)
	if d == nil {
		if err := m.scan(); err != nil {
			return nil, err
		}
		d = m.nad(namespace, name)
	}
	if d == nil {
		return nil, m.absent(namespace, name, netmodel.ErrNotFound)
	}
	return m.withState(d)
}

// LiveNAD reads the NAD's file again, with the text of its configuration. The NAD may move to another file between the
// scan and the reading: then the folder is scanned once more.
func (m *Manifests) LiveNAD(_ context.Context, namespace, name string) (*netmodel.NAD, error) {
	for last := false; ; last = true {
		if err := m.scan(); err != nil {
			return nil, err
		}
		file := m.fileOf(namespace, name)
		if file != "" {
			d, err := m.readNAD(file, namespace, name)
			if !errors.Is(err, fs.ErrNotExist) {
				return d, err
			}
		}
		if file == "" || last {
			return nil, m.absent(namespace, name, netmodel.ErrNotFound)
		}
	}
}

// fileOf names the file that counts for a NAD, the first that has it; "": none has it.
func (m *Manifests) fileOf(namespace, name string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, file := range slices.Sorted(maps.Keys(m.files)) {
		if findNAD(m.files[file].nads, namespace, name) != nil {
			return file
		}
	}
	return ""
}

// readNAD reads a NAD from a file, with its whole text. It answers fs.ErrNotExist if the file or the NAD is not there.
func (m *Manifests) readNAD(name, namespace, nad string) (*netmodel.NAD, error) {
	path := filepath.Join(m.dir, name)
	text, err := os.ReadFile(path)
	f := &file{}
	if err == nil {
		err = f.parse(text, wholeConfig)
	}
	if err != nil {
		return nil, fmt.Errorf("manifest %s: %w", path, err)
	}
	d := findNAD(f.nads, namespace, nad)
	if d == nil {
		return nil, fs.ErrNotExist
	}
	return m.withState(d)
}

// findNAD returns the NAD of that name; nil: it is not there.
func findNAD(nads []*netmodel.NAD, namespace, name string) *netmodel.NAD {
	i := slices.IndexFunc(nads, func(d *netmodel.NAD) bool { return d.Namespace == namespace && d.Name == name })
	if i < 0 {
		return nil
	}
	return nads[i]
}

func (m *Manifests) nad(namespace, name string) *netmodel.NAD {
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
	if err := m.write(p.UID+statusSuffix, podStatus{p.Namespace, p.Name, p.UID, status}); err != nil {
		return fmt.Errorf("network-status: %w", err)
	}
	return nil
}

// write puts a JSON file into the folder, whole or not at all.
func (m *Manifests) write(name string, content any) error {
	text, err := json.MarshalIndent(content, "", "  ")
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(m.dir, ".status-")
	if err != nil {
		return err
	}
	_, err = f.Write(append(text, '\n'))
	err = errors.Join(err, f.Chmod(0o644), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), filepath.Join(m.dir, name))
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// Event writes what would be an Event of the pod into the log: there is nobody else to tell.
func (m *Manifests) Event(p *Pod, kind EventKind, reason, message string) {
	m.log.Info("event", "pod", p.Namespace+"/"+p.Name, "kind", kind, "reason", reason, "message", conf.OneLine(message, conf.MaxReason))
}

// scan reads what changed in the folder since the last time. A file that does not parse counts as it was before and is
// named in the log; its neighbours are not affected.
func (m *Manifests) scan() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	entries, err := os.ReadDir(m.dir)
	if err != nil {
		return fmt.Errorf("manifests: %w", err)
	}
	statuses := statusFiles(entries)
	// A status is written after its pod's or NAD's manifest: if a second look finds that in no manifest, it is gone.
	if err := m.loadAll(); err != nil {
		return fmt.Errorf("manifests: %w", err)
	}
	nads, nodes := m.nads, m.nodes
	m.index()
	m.tellNADs(nads)
	m.tellNodes(nodes)
	m.ends.tell(func(p *Pod) bool {
		now := m.pods[key{p.Namespace, p.Name}]
		return now == nil || !now.Is(p.UID)
	})
	m.dropStatuses(statuses)
	return nil
}

// loadAll reads the files that changed. One that goes while this runs may have got another name, so the folder is read
// again then.
func (m *Manifests) loadAll() error {
	const tries = 3
	for try := 1; ; try++ {
		entries, err := os.ReadDir(m.dir)
		if err != nil {
			return err
		}
		seen, gone := map[string]bool{}, false
		for _, e := range entries {
			if name := e.Name(); isManifest(name) {
				seen[name] = m.load(name)
				gone = gone || !seen[name]
			}
		}
		if gone && try < tries {
			continue
		}
		maps.DeleteFunc(m.files, func(name string, _ *file) bool { return !seen[name] })
		return nil
	}
}

func isManifest(name string) bool {
	return !strings.HasPrefix(name, ".") && (strings.HasSuffix(name, ".yaml") || strings.HasSuffix(name, ".yml"))
}

func statusFiles(entries []fs.DirEntry) []string {
	var names []string
	for _, e := range entries {
		if name := e.Name(); strings.HasSuffix(name, statusSuffix) || strings.HasSuffix(name, networkSuffix) {
			names = append(names, name)
		}
	}
	return names
}

// load reads a file, unless it has it as it is; false: the file is gone.
func (m *Manifests) load(name string) bool {
	path := filepath.Join(m.dir, name)
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false
	}
	if err != nil {
		m.spoilt(name, &file{}, err)
		return true
	}
	if old := m.files[name]; old != nil && old.settled && os.SameFile(old.info, info) && old.info.ModTime().Equal(info.ModTime()) && old.info.Size() == info.Size() {
		return true
	}
	settled := time.Since(info.ModTime()) > clockTick
	f := &file{info: info, settled: settled}
	text, err := os.ReadFile(path)
	if err == nil {
		err = f.parse(text, m.configOf)
	}
	if err != nil {
		m.spoilt(name, &file{info: info, settled: settled}, err)
		return true
	}
	m.files[name] = f
	return true
}

// configOf parses the configuration of a NAD, unless the NAD had the same one before.
func (m *Manifests) configOf(n *nadv1.NetworkAttachmentDefinition) *netmodel.Config {
	if before := m.nads[key{namespaceOr(n.Namespace), n.Name}]; before != nil {
		return configOf(n, before.Config)
	}
	return configOf(n, nil)
}

// spoilt notes a file that cannot be read. What it held before counts on.
func (m *Manifests) spoilt(name string, f *file, err error) {
	m.log.Error("manifest not understood, what it held before counts on", "file", filepath.Join(m.dir, name), "err", conf.Brief(err))
	f.broken = true
	if old := m.files[name]; old != nil {
		f.pods, f.nads, f.nodes = old.pods, old.nads, old.nodes
	}
	m.files[name] = f
}

func namespaceOr(namespace string) string {
	if namespace == "" {
		return corev1.NamespaceDefault
	}
	return namespace
}

// running tells whether a container of the pod runs: kubelet leaves the phase as it was while it makes a sandbox anew.
func running(p *corev1.Pod) bool {
	containers := p.Status.ContainerStatuses
	return p.DeletionTimestamp == nil && p.Status.Phase == corev1.PodRunning &&
		(len(containers) == 0 || slices.ContainsFunc(containers, func(c corev1.ContainerStatus) bool { return c.State.Running != nil }))
}

func fromPod(p *corev1.Pod) *Pod {
	return &Pod{Namespace: namespaceOr(p.Namespace), Name: p.Name, UID: string(p.UID), NodeName: p.Spec.NodeName, Annotations: p.Annotations, Running: running(p)}
}

// index builds the maps anew; of two manifests of one name, that in the file that sorts first counts.
func (m *Manifests) index() {
	m.pods, m.nads, m.nodes = map[key]*Pod{}, map[key]*netmodel.NAD{}, map[string]netmodel.Node{}
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
		for _, n := range m.files[name].nodes {
			if _, known := m.nodes[n.Name]; !known {
				m.nodes[n.Name] = n
			}
		}
	}
}

// tellNADs names the NADs that differ from before.
func (m *Manifests) tellNADs(before map[key]*netmodel.NAD) {
	if m.changes.NAD == nil {
		return
	}
	for k, d := range m.nads {
		if old := before[k]; old == nil || !old.Equal(d) {
			m.changes.NAD(k.namespace, k.name)
		}
	}
	for k := range before {
		if m.nads[k] == nil {
			m.changes.NAD(k.namespace, k.name)
		}
	}
}

func (m *Manifests) dropStatuses(names []string) {
	for _, f := range m.files {
		if f.broken {
			return // whose pods and NADs are there is not known
		}
	}
	alive := map[string]bool{}
	for _, p := range m.pods {
		alive[p.UID+statusSuffix] = true
	}
	for k := range m.nads {
		alive[networkFile(k.namespace, k.name)] = true
	}
	for _, name := range names {
		if !alive[name] {
			if err := os.Remove(filepath.Join(m.dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				m.log.Warn("drop the status of what is gone", "file", name, "err", err)
			}
		}
	}
}
