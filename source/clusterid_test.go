package source

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func identity(t *testing.T, id, dir string) (string, error) {
	t.Helper()
	ask, err := Cluster(id, dir, nil)
	if err != nil {
		return "", err
	}
	return ask(background)
}

// Of all programs that come to a folder at once, one gives the folder its identity, and all go by that one. It is in one
// hidden file, and nothing else is left.
func TestBoundaryFolderHasOneIdentity(t *testing.T) {
	dir := t.TempDir()
	ids := make([]string, 32)
	var all sync.WaitGroup
	for i := range ids {
		all.Go(func() {
			var err error
			if ids[i], err = folderOf(dir); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if _, err := uuid.Parse(ids[0]); err != nil || len(slices.Compact(slices.Sorted(slices.Values(ids)))) != 1 {
		t.Errorf("identities %v", ids)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 || entries[0].Name() != ".cluster-id" || isManifest(entries[0].Name()) {
		t.Errorf("the folder has %v, %v", entries, err)
	}
	if again, err := identity(t, "", dir); err != nil || again != ids[0] {
		t.Errorf("later it is %s, %v", again, err)
	}
	if other, err := folderOf(t.TempDir()); err != nil || other == ids[0] {
		t.Errorf("another folder is %s, %v", other, err)
	}
	if given, err := identity(t, "given", dir); err != nil || given != "given" {
		t.Errorf("with the flag it is %s, %v", given, err)
	}
}

func TestBoundaryFolderWithoutAnIdentity(t *testing.T) {
	for name, tt := range map[string]struct {
		content *string
		want    string
	}{
		"written by hand": {text("prod-1\n"), ""},
		"empty":           {text(""), `is no identity of a cluster`},
		"two lines":       {text("a\nb\n"), `is no identity of a cluster`},
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, ".cluster-id")
		if err := os.WriteFile(path, []byte(*tt.content), 0o600); err != nil {
			t.Fatal(err)
		}
		id, err := identity(t, "", dir)
		switch {
		case tt.want == "" && (err != nil || id != "prod-1"):
			t.Errorf("%s: %s, %v", name, id, err)
		case tt.want != "" && (err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n")):
			t.Errorf("%s: %s, %v", name, id, err)
		}
		if now, _ := os.ReadFile(path); string(now) != *tt.content {
			t.Errorf("%s: the file is %q", name, now)
		}
	}
	// Nobody can write there, not even root.
	_, err := identity(t, "", "/proc")
	if err == nil || !strings.HasPrefix(err.Error(), "identity of this folder: write a UUID into the file /proc/.cluster-id, for it cannot be made: ") {
		t.Errorf("a folder that cannot be written: %v", err)
	}
}

func text(s string) *string { return &s }

// A cluster's identity is the UID of a namespace that nobody can delete.
func TestBoundaryIdentityOfACluster(t *testing.T) {
	c := newCluster(t, "")
	ask, err := Cluster("", "", c.core)
	if err != nil {
		t.Fatal(err)
	}
	if id, err := ask(background); err == nil || id != "" || !strings.HasPrefix(err.Error(), "identity of this cluster: UID of namespace kube-system: ") {
		t.Errorf("without the namespace: %s, %v", id, err)
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system", UID: "u-1"}}
	if _, err := c.core.CoreV1().Namespaces().Create(context.Background(), ns, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if id, err := ask(background); err != nil || id != "u-1" {
		t.Errorf("%s, %v", id, err)
	}
}
