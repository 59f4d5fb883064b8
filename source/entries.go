package source

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/yaml"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/netmodel/entry"
)

// keptEntry is what is kept of an object of the operator. Its namespace is its kind: the objects have none, and a
// folder has all kinds in one list.
type keptEntry = kept[entry.Object]

// rawEntry is an object of the operator as the API server sends it.
type rawEntry struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              json.RawMessage `json:"spec"`
	Status            json.RawMessage `json:"status"`
}

func keepEntry(kind *entry.Kind) func(*rawEntry) *keptEntry {
	return func(raw *rawEntry) *keptEntry {
		spec := entry.Canonical(raw.Spec)
		known := &keptEntry{owners: string(spec), object: &entry.Object{
			Kind: kind, Name: raw.Name, UID: string(raw.UID), Created: raw.CreationTimestamp.Unix(),
			Generation: raw.Generation, Version: raw.ResourceVersion, Spec: spec, Status: entry.DecodeStatus(raw.Status),
			Finalizers: raw.Finalizers, Deleting: raw.DeletionTimestamp != nil,
		}}
		if known.object.Deleting {
			known.owners += " deleting"
		}
		raw.Namespace = kind.Name
		known.setMeta(&raw.ObjectMeta)
		return known
	}
}

// Entries returns the operator's objects.
func (o *objects) Entries(ctx context.Context) (all []*entry.Object, err error) {
	for _, s := range o.entries {
		known, err := s.all(ctx)
		if err != nil {
			return nil, err
		}
		some, _ := objectsOf(known, nil, o.withEntryState)
		all = append(all, some...)
	}
	return all, nil
}

func entryKindOf(kind *entry.Kind) apiKind {
	return apiKind{group: entry.Group, version: entry.Version, resource: kind.Plural}
}

func (k *Kube) entryReader(kind *entry.Kind) rawReader[rawEntry, entry.Object] {
	return rawReader[rawEntry, entry.Object]{k, entryKindOf(kind), keepEntry(kind)}
}

// watchEntries creates the informers of the operator's objects.
func (k *Kube) watchEntries(changed func()) error {
	var errs []error
	for _, kind := range entry.Kinds {
		informer := k.entryReader(kind).informer(cache.Indexers{})
		k.entries = append(k.entries, informed(kind.Plural, informer))
		k.run = append(k.run, informer.Run)
		errs = append(errs, listen(informer, onKept(func(*keptEntry) { changed() })))
	}
	return errors.Join(errs...)
}

// AllEntries lists the operator's objects. Unlike Entries it always asks the API server.
func (k *Kube) AllEntries(ctx context.Context) (all []*entry.Object, err error) {
	for _, kind := range entry.Kinds {
		list, err := k.entryReader(kind).list(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", kind.Plural, err)
		}
		for _, known := range list.Items {
			all = append(all, known.object)
		}
	}
	return all, nil
}

// SetEntryFinalizer gives an object of the operator our finalizer, or removes it. The API server refuses the patch if
// the object has changed since it was read: a patch can only replace the complete list of finalizers.
func (k *Kube) SetEntryFinalizer(ctx context.Context, o *entry.Object, with bool) error {
	finalizers := slices.DeleteFunc(slices.Clone(o.Finalizers), func(f string) bool { return f == entry.Finalizer })
	if with {
		finalizers = append(finalizers, entry.Finalizer)
	}
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": o.UID, "resourceVersion": o.Version, "finalizers": finalizers,
	}})
	if err != nil {
		return err
	}
	return k.patchEntry(ctx, o, body)
}

// patchEntry sends a merge patch (RFC 7386) for an object of the operator.
func (k *Kube) patchEntry(ctx context.Context, o *entry.Object, body []byte, subresource ...string) error {
	err := k.api(http.MethodPatch, entryKindOf(o.Kind)).Suffix(append([]string{o.Kind.Plural, o.Name}, subresource...)...).
		SetHeader("Content-Type", string(types.MergePatchType)).Body(body).Do(ctx).Error()
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("%s: %w", o.ID(), netmodel.ErrNotFound)
	}
	return err
}

// SetEntryStatus writes the status of an object of the operator.
func (k *Kube) SetEntryStatus(ctx context.Context, o *entry.Object, status entry.Status) error {
	text, err := status.Encode()
	if err != nil {
		return err
	}
	// With the UID, the patch does not change another object that has the same name.
	body, err := json.Marshal(map[string]any{
		"metadata": map[string]string{"uid": o.UID}, "status": json.RawMessage(text),
	})
	if err != nil {
		return err
	}
	return k.patchEntry(ctx, o, body, "status")
}

// EntryEvent records an Event of an object of the operator. It does not wait: an Event that the API server refuses is
// lost.
func (k *Kube) EntryEvent(o *entry.Object, warning bool, reason, message string) {
	ref := &corev1.ObjectReference{
		Kind: o.Kind.Name, APIVersion: entry.APIVersion, Name: o.Name, UID: types.UID(o.UID),
	}
	k.record.Event(ref, string(eventKind(warning)), reason, conf.OneLine(message, conf.MaxReason))
}

// parseEntry reads an object of the operator. Objects of other groups that have the same kind are not read.
func (f *file) parseEntry(kind *entry.Kind, apiVersion string, doc []byte) error {
	if group, _, _ := strings.Cut(apiVersion, "/"); group != entry.Group {
		return nil
	}
	if apiVersion != entry.APIVersion {
		return fmt.Errorf("%s: apiVersion is %q, not %s", kind.Name, apiVersion, entry.APIVersion)
	}
	text, err := yaml.YAMLToJSONStrict(doc)
	raw := &rawEntry{}
	if err == nil {
		err = utiljson.Unmarshal(text, raw)
	}
	if err != nil {
		return err
	}
	if raw.Name == "" {
		return fmt.Errorf("%s without metadata.name", kind.Name)
	}
	known := keepEntry(kind)(raw)
	// A folder has no generations: a hash of the spec stands for it.
	sum := fnv.New32a()
	_, _ = sum.Write(known.object.Spec) // it never fails
	known.object.Generation, known.object.Status = int64(sum.Sum32())+1, entry.Status{}
	f.add(entryKind, known)
	return nil
}

func entryFile(kind, name string) string { return stateFile(kind, name, entrySuffix) }

// withEntry adds the status that the controller wrote for an object of the operator.
func (m *Manifests) withEntry(o *entry.Object) *entry.Object {
	with := *o
	text, err := os.ReadFile(filepath.Join(m.dir, entryFile(o.Kind.Name, o.Name)))
	var state struct {
		Status json.RawMessage `json:"status"`
	}
	if err == nil && json.Unmarshal(text, &state) == nil {
		with.Status = entry.DecodeStatus(state.Status)
	}
	return &with
}

// Entries returns the operator's objects. It fails while a file has never been understood: an object in it would count
// as deleted.
func (m *Manifests) Entries(ctx context.Context) ([]*entry.Object, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, f := range m.files {
		if f.broken && f.unknown() {
			return nil, fmt.Errorf("manifest %s is not understood: it may have an object of the operator",
				filepath.Join(m.dir, name))
		}
	}
	return m.objects.Entries(ctx)
}

// SetEntryFinalizer does nothing: a file can be deleted at any time.
func (m *Manifests) SetEntryFinalizer(context.Context, *entry.Object, bool) error { return nil }

// SetEntryStatus writes the file with the status of an object of the operator into the folder.
func (m *Manifests) SetEntryStatus(_ context.Context, o *entry.Object, status entry.Status) error {
	if !m.entries[0].has(o.ID()) {
		return fmt.Errorf("%s: %w", o.ID(), netmodel.ErrNotFound)
	}
	text, err := status.Encode()
	err = cmp.Or(err, m.write(entryFile(o.Kind.Name, o.Name), map[string]any{
		"kind": o.Kind.Name, "name": o.Name, "status": json.RawMessage(text),
	}))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("status of %s: %w", o.ID(), err)
	}
	return nil
}

// EntryEvent logs an event of an object of the operator.
func (m *Manifests) EntryEvent(o *entry.Object, warning bool, reason, message string) {
	m.log.Info("event", "object", o.ID(), "kind", eventKind(warning), "reason", reason,
		"message", conf.OneLine(message, conf.MaxReason))
}
