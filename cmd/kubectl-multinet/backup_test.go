package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
)

// TestWriteWhole: a backup that ends early is no file, and the former one stays.
func TestWriteWhole(t *testing.T) {
	file := filepath.Join(t.TempDir(), "nb.backup")
	half := errors.New("the connection ended")
	for _, tt := range []struct {
		text string
		err  error
		want string
	}{{"whole", nil, "whole"}, {"hal", half, "whole"}, {"newer", nil, "newer"}} {
		err := writeWhole(file, func(w io.Writer) error {
			_, err := io.WriteString(w, tt.text)
			return errors.Join(err, tt.err)
		})
		got, readErr := os.ReadFile(file)
		if !errors.Is(err, tt.err) || readErr != nil || string(got) != tt.want {
			t.Errorf("%s: error %v; the file has %q, %v", tt.text, err, got, readErr)
		}
	}
	files, err := os.ReadDir(filepath.Dir(file))
	if err != nil || len(files) != 1 {
		t.Errorf("files %v, %v", files, err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file is %v, %v", info, err)
	}
}
