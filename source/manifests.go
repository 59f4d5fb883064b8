package source

import (
	"context"
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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
)

// The files that we write into the folder: the network-status of a pod as "<pod uid>.status.json", the state of a
// network as "<namespace>.<name>.network.json" (a namespace has no dot), the states of policies, of Services and of
// the outside addresses of pods as "<namespace>.<name>.policy.json", "….service.json" and "….outside.json", and the
// statuses of the operator's objects as "<kind>.<name>.entry.json". For long names see stateFile.
const (
	statusSuffix  = ".status.json"
	networkSuffix = ".network.json"
	policySuffix  = ".policy.json"
	serviceSuffix = ".service.json"
	outsideSuffix = ".outside.json"
	entrySuffix   = ".entry.json"
	claimSuffix   = ".ipamclaim.json"
)

var suffixes = []string{statusSuffix, networkSuffix, policySuffix, serviceSuffix, outsideSuffix, entrySuffix,
	claimSuffix}

// Manifests is the source that watches a folder without subfolders. A YAML file in it has one or several documents with
// Pods, NADs or Nodes. All agents of a host and the controller use the same folder.
type Manifests struct {
	dir string
	log *slog.Logger

	objects
	pods  *fed // of *corev1.Pod, as manifestPod keeps them
	nads  *fed // of *knownNAD
	nodes *fed // of *corev1.Node; empty: the nodes are unknown
	feeds map[manifestKind]*fed
	// controlled reports whether somebody needs the pods for policies and Services.
	controlled bool

	mu    sync.Mutex
	files map[string]*file // by name
	ends  ends
}

// manifestKind is a kind of objects in a folder.
type manifestKind int

const (
	podKind manifestKind = iota
	nadKind
	nodeKind
	policyKind
	clusterPolicyKind
	serviceObjectKind
	namespaceKind
	entryKind     // all kinds of the operator's objects
	claimKind     // IPAMClaims
	networkedKind // made of the pods
	manifestKinds
)

// file is the content of one file when it was read.
type file struct {
	info os.FileInfo
	// settled reports whether the file was older than clockTick. The modification time of a younger file may stay the
	// same after a further change.
	settled bool
	// broken tells that the file cannot be read or parsed. The lists then have the last valid content: a file that an
	// editor has written only partially does not mean that a pod or a NAD was deleted.
	broken  bool
	objects [manifestKinds][]any
}

// unknown reports whether nothing is known of the file.
func (f *file) unknown() bool {
	return !slices.ContainsFunc(f.objects[:], func(some []any) bool { return len(some) > 0 })
}

func (f *file) add(kind manifestKind, object any) { f.objects[kind] = append(f.objects[kind], object) }

// clockTick is the coarsest resolution of modification times: FAT's two seconds.
const clockTick = 2 * time.Second

// NewManifests reads the folder. The folder must exist.
func NewManifests(dir string, changes Changes, log *slog.Logger) (*Manifests, error) {
	m := &Manifests{dir: dir, log: log, files: map[string]*file{}, feeds: newFeeds(changes),
		controlled: changes.Policy != nil}
	m.pods, m.nads, m.nodes = m.feeds[podKind], m.feeds[nadKind], m.feeds[nodeKind]
	m.objects = objects{
		policies: stored{Indexer: m.feeds[policyKind]}, clusterPolicies: stored{Indexer: m.feeds[clusterPolicyKind]},
		services: stored{Indexer: m.feeds[serviceObjectKind]}, namespaces: stored{Indexer: m.feeds[namespaceKind]},
		networked: stored{Indexer: m.feeds[networkedKind]}, withPolicyState: m.withPolicy, withServiceState: m.withService,
		entries: []stored{{Indexer: m.feeds[entryKind]}}, withEntryState: m.withEntry,
		claims: stored{Indexer: m.feeds[claimKind]}, withClaimState: m.withClaim,
	}
	return m, m.scan()
}

// Run watches the folder until the end of ctx.
func (m *Manifests) Run(ctx context.Context) error {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch %s: %w", m.dir, err)
	}
	defer w.Close()
	for said := false; ; {
		// Add the watch each time: a watch ends when its folder is deleted, and a new folder may have the same path.
		err := w.Add(m.dir)
		if err == nil {
			// Read the folder again: files may have changed before the watch began or while events were lost.
			err = m.scan()
		}
		var again <-chan time.Time
		if err != nil {
			if !said {
				m.log.Error("read the manifests; keeping their last valid content", "err", err)
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

// folderPause is the pause before an unreadable folder is read again: no event tells that the folder is readable.
const folderPause = 200 * time.Millisecond

// drain discards the events that are waiting, so that one scan serves a burst of events.
func drain(events <-chan fsnotify.Event) {
	for {
		select {
		case <-events:
		default:
			return
		}
	}
}

// Pod returns the pod. If no known pod matches, it reads the folder again.
func (m *Manifests) Pod(_ context.Context, namespace, name, uid string) (*netmodel.Pod, error) {
	if p := m.pod(namespace, name); p != nil && p.Is(uid) {
		return p, nil
	}
	return m.LivePod(context.Background(), namespace, name)
}

// Pods returns all pods of the folder.
func (m *Manifests) Pods(context.Context) ([]*netmodel.Pod, error) {
	var pods []*netmodel.Pod
	for _, obj := range m.pods.List() {
		pods = append(pods, fromPod(obj.(*corev1.Pod)))
	}
	return pods, nil
}

// LivePod reads the folder again and returns the pod.
func (m *Manifests) LivePod(_ context.Context, namespace, name string) (*netmodel.Pod, error) {
	if err := m.scan(); err != nil {
		return nil, err
	}
	if p := m.pod(namespace, name); p != nil {
		return p, nil
	}
	return nil, m.absent(namespace, name, ErrNotFound)
}

// WhenGone calls a function once, when the pod's manifest is deleted or has a pod with another UID.
func (m *Manifests) WhenGone(p *netmodel.Pod, call func()) (stop func()) { return m.ends.when(p, call) }

// absent returns the error for a missing pod or NAD: notFound, unless the pod or NAD may be in a broken file.
func (m *Manifests) absent(namespace, name string, notFound error) error {
	if broken := m.broken(); broken != "" {
		return fmt.Errorf("%s/%s in %s: it may be in %s, which is not understood", namespace, name, m.dir, broken)
	}
	return fmt.Errorf("%s/%s in %s: %w", namespace, name, m.dir, notFound)
}

// broken returns the name of the first broken file, or "".
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

func (m *Manifests) pod(namespace, name string) *netmodel.Pod {
	obj, there, _ := m.pods.GetByKey(namespace + "/" + name)
	if !there {
		return nil
	}
	return fromPod(obj.(*corev1.Pod))
}

// NAD returns the NAD. If the NAD is not known, it reads the folder again.
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

// LiveNAD reads the NAD's file again and returns the NAD with the text of its configuration. The NAD may move to
// another file between the scan and the reading: then LiveNAD scans the folder once more.
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

// fileOf returns the name of the first file that has the NAD, or "".
func (m *Manifests) fileOf(namespace, name string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, file := range slices.Sorted(maps.Keys(m.files)) {
		if findNAD(m.files[file], namespace, name) != nil {
			return file
		}
	}
	return ""
}

// readNAD reads a NAD from a file, with the text of its configuration. The error is fs.ErrNotExist if the file does not
// exist or does not have the NAD.
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
	d := findNAD(f, namespace, nad)
	if d == nil {
		return nil, fs.ErrNotExist
	}
	return m.withState(d)
}

// findNAD returns the NAD of that name, or nil.
func findNAD(f *file, namespace, name string) *netmodel.NAD {
	for _, obj := range f.objects[nadKind] {
		if d := &obj.(*knownNAD).nad; d.Namespace == namespace && d.Name == name {
			return d
		}
	}
	return nil
}

func (m *Manifests) nad(namespace, name string) *netmodel.NAD {
	obj, there, _ := m.nads.GetByKey(namespace + "/" + name)
	if !there {
		return nil
	}
	return &obj.(*knownNAD).nad
}

// Event logs an event of a pod.
func (m *Manifests) Event(p *netmodel.Pod, kind EventKind, reason, message string) {
	m.log.Info("event", "pod", p.Namespace+"/"+p.Name, "kind", kind, "reason", reason,
		"message", conf.OneLine(message, conf.MaxReason))
}

// scan reads the files that changed since the last scan. A file that cannot be parsed keeps its last valid content, and
// the error is logged. Other files are not affected.
func (m *Manifests) scan() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	entries, err := os.ReadDir(m.dir)
	if err != nil {
		return fmt.Errorf("manifests: %w", err)
	}
	statuses := statusFiles(entries)
	// The list of status files is read before the manifests. A status file is written after the manifest of its pod or
	// NAD. So a listed status file without a manifest belongs to a deleted pod or NAD.
	if err := m.loadAll(); err != nil {
		return fmt.Errorf("manifests: %w", err)
	}
	m.feed(statuses)
	m.ends.tell(func(p *netmodel.Pod) bool {
		now := m.pod(p.Namespace, p.Name)
		return now == nil || !now.Is(p.UID)
	})
	m.deleteStatuses(statuses)
	return nil
}

// loadAll reads the files that changed. A file that disappears meanwhile may have been renamed: then loadAll reads the
// folder again.
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
		name := e.Name()
		if slices.ContainsFunc(suffixes, func(suffix string) bool { return strings.HasSuffix(name, suffix) }) {
			names = append(names, name)
		}
	}
	return names
}

// load reads a file if the file has changed. It returns false if the file does not exist.
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
	if old := m.files[name]; old != nil && old.settled && os.SameFile(old.info, info) &&
		old.info.ModTime().Equal(info.ModTime()) && old.info.Size() == info.Size() {
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

// configOf parses the configuration of a NAD. It does not parse an unchanged configuration again.
func (m *Manifests) configOf(n *nadv1.NetworkAttachmentDefinition) *netmodel.Config {
	if before := m.nad(n.Namespace, n.Name); before != nil {
		return configOf(n, before.Config)
	}
	return configOf(n, nil)
}

// spoilt marks a file as broken. The file keeps its last valid content.
func (m *Manifests) spoilt(name string, f *file, err error) {
	m.log.Error("manifest not understood; keeping its last valid content",
		"file", filepath.Join(m.dir, name), "err", conf.Brief(err))
	f.broken = true
	if old := m.files[name]; old != nil {
		f.objects = old.objects
	}
	m.files[name] = f
}

func namespaceOr(namespace string) string {
	if namespace == "" {
		return corev1.NamespaceDefault
	}
	return namespace
}

// running reports whether a container of the pod runs, or ends again and again, and the pod is not being deleted: then
// it has a sandbox. The phase alone does not tell: it stays Running while kubelet replaces the sandbox, and Pending
// while the pod's init containers run.
func running(p *corev1.Pod) bool {
	containers := append(slices.Clip(p.Status.InitContainerStatuses), p.Status.ContainerStatuses...)
	switch {
	case p.DeletionTimestamp != nil, p.Status.Phase != corev1.PodRunning && p.Status.Phase != corev1.PodPending:
		return false
	case len(containers) == 0:
		return p.Status.Phase == corev1.PodRunning
	}
	return slices.ContainsFunc(containers, func(c corev1.ContainerStatus) bool {
		return c.State.Running != nil || c.State.Waiting != nil && c.State.Waiting.Reason == crashLoop
	})
}

// crashLoop is the reason for which kubelet waits before it starts a container of a sandbox again.
const crashLoop = "CrashLoopBackOff"

// fromPod converts what knownPod or policyPod has kept.
func fromPod(p *corev1.Pod) *netmodel.Pod {
	return &netmodel.Pod{
		Namespace: namespaceOr(p.Namespace), Name: p.Name, UID: string(p.UID), Mirror: p.Annotations[mirrorAnnotation],
		Node: p.Spec.NodeName, Annotations: p.Annotations, Labels: p.Labels, ManyLabels: hasManyLabels(p),
		Ports: portsOf(p), Version: p.ResourceVersion, Ready: ready(p), Running: running(p), Ending: isEnding(p),
		Controller: p.Annotations[controllerOf], Outside: p.Annotations[conf.OutsideAnnotation],
		OutsideState: outsideOf(p), Hostname: p.Spec.Hostname, Subdomain: p.Spec.Subdomain,
		Requests:   strings.Fields(p.Annotations[requestedNADs]),
		IPAMClaims: strings.Fields(p.Annotations[namedClaims]), Ended: endedForGood(p),
	}
}

// deleteStatuses deletes the status files of pods and NADs that no longer have a manifest.
func (m *Manifests) deleteStatuses(names []string) {
	for _, f := range m.files {
		if f.broken {
			return // the broken file may have any pod or NAD
		}
	}
	alive := map[string]bool{}
	for _, of := range []struct {
		kind manifestKind
		file func(metav1.Object) string
	}{
		{podKind, func(o metav1.Object) string { return string(o.GetUID()) + statusSuffix }},
		{podKind, func(o metav1.Object) string { return stateFile(o.GetNamespace(), o.GetName(), outsideSuffix) }},
		{nadKind, func(o metav1.Object) string { return networkFile(o.GetNamespace(), o.GetName()) }},
		{policyKind, func(o metav1.Object) string { return policyFile(o.GetNamespace(), o.GetName()) }},
		{clusterPolicyKind, func(o metav1.Object) string { return policyFile("", o.GetName()) }},
		{serviceObjectKind, func(o metav1.Object) string { return serviceFile(o.GetNamespace(), o.GetName()) }},
		{claimKind, func(o metav1.Object) string { return claimFile(o.GetNamespace(), o.GetName()) }},
		{entryKind, func(o metav1.Object) string { return entryFile(o.GetNamespace(), o.GetName()) }},
	} {
		for _, obj := range m.feeds[of.kind].List() {
			alive[of.file(obj.(metav1.Object))] = true
		}
	}
	for _, name := range names {
		if !alive[name] {
			if err := os.Remove(filepath.Join(m.dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				m.log.Warn("delete a stale status file", "file", name, "err", err)
			}
		}
	}
}
