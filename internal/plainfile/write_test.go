package plainfile

import (
	"os"
	"path/filepath"
	"testing"
)

// A file is replaced as a whole, with its mode, also over the temporary file of a killed writer.
func TestWrite(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	for _, tt := range []struct {
		text string
		mode os.FileMode
	}{{"first", 0o600}, {"", 0o755}, {"last", 0o644}} {
		if err := os.WriteFile(Temporary(path), []byte("half of what a killed writer wrote"), 0o400); err != nil {
			t.Fatal(err)
		}
		if err := Write(path, []byte(tt.text), tt.mode); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(path)
		if err != nil || string(text) != tt.text {
			t.Errorf("the file has %q, %v, want %q", text, err, tt.text)
		}
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode() != tt.mode {
			t.Errorf("the mode is %v, want %v", info.Mode(), tt.mode)
		}
		wantOnly(t, filepath.Dir(path), "f")
	}
}

// A write that fails leaves what stood at the path, and no temporary file.
func TestWriteFails(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	if err := os.MkdirAll(filepath.Join(path, "kept"), 0o700); err != nil { // no file can be renamed over a folder
		t.Fatal(err)
	}
	if err := Write(path, []byte("text"), 0o600); err == nil {
		t.Error("a folder was replaced")
	}
	wantOnly(t, dir, "f")
	wantOnly(t, path, "kept")
	if err := Write(filepath.Join(dir, "none", "f"), []byte("text"), 0o600); err == nil {
		t.Error("a file was written into a folder that does not exist")
	}
}

func wantOnly(t *testing.T, dir, name string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 || entries[0].Name() != name {
		t.Errorf("%s has %v, %v, want only %s", dir, entries, err, name)
	}
}
