package source

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/netmodel/entry"
)

const coreRouter = `{"kind":"Router","apiVersion":"ovn-multinet.io/v1alpha1","metadata":{"generation":1},"spec":{"router":"/core","vlanID":7}}`

// TestEntryChanges: a spec and a deletion are changes that are told, and a status of ours is none.
func TestEntryChanges(t *testing.T) {
	of := func(more string) string {
		raw := &rawEntry{}
		if err := json.Unmarshal([]byte(`{"metadata":{"name":"a"`+more), raw); err != nil {
			t.Fatal(err)
		}
		return keepEntry(entry.Kinds[0])(raw).owners
	}
	const plain = `},"spec":{"a":1}}`
	if of(plain) != of(`},"spec":{"a":1},"status":{"users":1}}`) {
		t.Error("a status is a change")
	}
	if of(plain) == of(`},"spec":{"a":2}}`) || of(plain) == of(`,"deletionTimestamp":"2026-01-01T00:00:00Z"`+plain) {
		t.Error("a spec, or a deletion, is no change")
	}
}

// TestKubeEntries: objects of all kinds are read, and each change is told.
func TestKubeEntries(t *testing.T) {
	s := newAPIServer()
	s.put("routers", "", "core", object(t, coreRouter))
	s.put("addresspools", "", "core", object(t, `{"spec":{"router":"/core"}}`))
	k := s.start(t)
	all, err := k.Entries(background)
	if err != nil || len(all) != 2 || all[0].ID() != "Router/core" || all[1].ID() != "AddressPool/core" {
		t.Fatalf("objects %v, %v", all, err)
	}
	if got := string(all[0].Spec); got != `{"router":"/core","vlanID":7}` || all[0].Generation != 1 {
		t.Errorf("spec %s of generation %d", got, all[0].Generation)
	}
	told(t, s.entries, "")
	told(t, s.entries, "")
	if now, err := k.AllEntries(background); err != nil || len(now) != 2 || now[1].ID() != "AddressPool/core" {
		t.Errorf("the API server has %v, %v", now, err)
	}
	want := entry.Status{Observed: 1, Problem: "no node", Users: 1, UsedBy: []string{"network shop/blue"}, Since: time.Unix(7, 0).UTC()}
	if err := k.SetEntryStatus(background, all[0], want); err != nil {
		t.Fatal(err)
	}
	status := func() string {
		all, err := k.Entries(background)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("%+v", all[0].Status)
	}
	eventually(t, fmt.Sprintf("%+v", want), status)
	s.edit("routers", "", "core", func(o *unstructured.Unstructured) {
		if err := unstructured.SetNestedField(o.Object, int64(8), "spec", "vlanID"); err != nil {
			t.Error(err)
		}
	})
	told(t, s.entries, "")
	s.put("routers", "", "core", nil)
	told(t, s.entries, "")
	if err := k.SetEntryStatus(background, all[0], want); !errors.Is(err, netmodel.ErrNotFound) {
		t.Errorf("the status of an object that is gone: %v", err)
	}
}

// TestManifestEntries: a folder has the same objects, each with its status, and a file that was never understood may have
// one more.
func TestManifestEntries(t *testing.T) {
	f, told := newFolder(t), 0
	f.write("core.yaml", "apiVersion: ovn-multinet.io/v1alpha1\nkind: Router\nmetadata: {name: core}\nspec: {vlanID: 7, router: /core}\n"+
		"---\napiVersion: metallb.io/v1beta1\nkind: AddressPool\nmetadata: {name: other}\nspec: {a: 1, a: 2}\n"+
		"---\napiVersion: ovn-multinet.io/v1alpha1\nkind: SecurityProfile\nmetadata: {name: core}\nspec: {namespaces: [shop]}\n")
	m, err := NewManifests(f.dir, Changes{Entries: func() { told++ }}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	read := func() map[string]*entry.Object {
		t.Helper()
		if err := m.scan(); err != nil {
			t.Fatal(err)
		}
		all, err := m.Entries(background)
		if err != nil {
			t.Fatal(err)
		}
		by := map[string]*entry.Object{}
		for _, o := range all {
			by[o.ID()] = o
		}
		return by
	}
	all := read()
	core := all["Router/core"]
	if len(all) != 2 || core == nil || string(core.Spec) != `{"router":"/core","vlanID":7}` || told != 2 {
		t.Fatalf("objects %v, told %d times", all, told)
	}
	want := entry.Status{Observed: core.Generation, Reason: "no", Accepted: []byte(`{"router":"/core","vlanID":6}`)}
	if err := m.SetEntryStatus(background, core, want); err != nil {
		t.Fatal(err)
	}
	if got := read()["Router/core"].Status; fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) || told != 2 {
		t.Errorf("status %+v, told %d times", got, told)
	}
	f.write("core.yaml", "apiVersion: ovn-multinet.io/v1alpha1\nkind: Router\nmetadata: {name: core}\nspec: {vlanID: 8, router: /core}\n")
	if now := read()["Router/core"]; now.Generation == core.Generation || told != 4 {
		t.Errorf("another spec has generation %d, told %d times", now.Generation, told)
	}
	f.write("bad.yaml", "apiVersion: ovn-multinet.io/v1\nkind: Router\nmetadata: {name: bad}\n")
	if err := m.scan(); err != nil {
		t.Fatal(err)
	}
	if all, err := m.Entries(background); err == nil || !strings.Contains(err.Error(), "bad.yaml is not understood") {
		t.Errorf("objects %v, %v", all, err)
	}
	for _, name := range []string{"bad.yaml", "core.yaml"} {
		if err := os.Remove(filepath.Join(f.dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if all := read(); len(all) != 0 {
		t.Errorf("objects %v", all)
	}
	if _, err := os.Stat(filepath.Join(f.dir, entryFile("Router", "core"))); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the status of an object that is gone: %v", err)
	}
}
