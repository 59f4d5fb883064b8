package controller_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/controller/networks"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/source"
)

// TestToyKind runs the smallest kind with an API and with a folder as the source.
func TestToyKind(t *testing.T) {
	t.Run("api", func(t *testing.T) { runToy(t, newAPI()) })
	t.Run("folder", func(t *testing.T) { runToy(t, newToyFolder(t)) })
}

// toySource is a source of NADs that a test changes.
type toySource interface {
	networks.Source
	watch(changed func(namespace, name string))
	apply(id, config string)
	deleteNAD(t *testing.T, id string)
	state(id string) string
	eventLines() string
}

func (a *api) watch(changed func(namespace, name string)) { a.watchers = append(a.watchers, changed) }

// toyFolder has NADs in a folder, each in a file of its own.
type toyFolder struct {
	*source.Manifests
	t      *testing.T
	dir    string
	events *api // records them, and has who is told of changes
	run    sync.Once
}

func newToyFolder(t *testing.T) *toyFolder {
	f := &toyFolder{t: t, dir: t.TempDir(), events: newAPI()}
	m, err := source.NewManifests(f.dir, source.Changes{NAD: func(namespace, name string) {
		f.events.tell(f.events.watchers, namespace+"/"+name)
	}}, quiet)
	if err != nil {
		t.Fatal(err)
	}
	f.Manifests = m
	return f
}

func (f *toyFolder) watch(changed func(namespace, name string)) { f.events.watch(changed) }

func (f *toyFolder) apply(id, config string) {
	f.run.Do(func() { go f.Run(f.t.Context()) })
	namespace, name, _ := strings.Cut(id, "/")
	text := fmt.Sprintf("apiVersion: k8s.cni.cncf.io/v1\nkind: NetworkAttachmentDefinition\n"+
		"metadata: {namespace: %s, name: %s}\nspec: {config: %q}\n", namespace, name, config)
	temp := filepath.Join(f.t.TempDir(), "new")
	if err := errors.Join(os.WriteFile(temp, []byte(text), 0o600), os.Rename(temp, f.path(id))); err != nil {
		f.t.Error(err)
	}
}

func (f *toyFolder) deleteNAD(t *testing.T, id string) {
	if err := os.Remove(f.path(id)); err != nil {
		t.Error(err)
	}
}

func (f *toyFolder) path(id string) string {
	return filepath.Join(f.dir, strings.ReplaceAll(id, "/", ".")+".yaml")
}

func (f *toyFolder) state(id string) string {
	namespace, name, _ := strings.Cut(id, "/")
	n, err := f.NAD(f.t.Context(), namespace, name)
	if err != nil {
		return err.Error()
	}
	return stateInWords(n)
}

func (f *toyFolder) NetworkEvent(n *netmodel.NAD, warning bool, reason, message string) {
	f.events.NetworkEvent(n, warning, reason, message)
}

func (f *toyFolder) eventLines() string { return f.events.eventLines() }
