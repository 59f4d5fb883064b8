package buildcache

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// TestEntry: an entry is built once by several who want it, a failed build leaves no entry, and another key replaces
// the entry.
func TestEntry(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	if dir, err := Entry("cni", "1", func(string) error { return errors.New("no network") }); err == nil {
		t.Errorf("a failed build made %s", dir)
	}
	var builds int
	build := func(dir string) error {
		builds++
		return os.WriteFile(filepath.Join(dir, "program"), nil, 0o755)
	}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			dir, err := Entry("cni", "1", build)
			if err != nil {
				t.Error(err)
			}
			if _, err := os.Stat(filepath.Join(dir, "program")); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if builds != 1 {
		t.Errorf("built %d times, want 1", builds)
	}
	second, err := Entry("cni", "2", build)
	if err != nil {
		t.Fatal(err)
	}
	if first := filepath.Join(filepath.Dir(second), "1"); exists(first) || !exists(second) {
		t.Errorf("%s must have replaced %s", second, first)
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
