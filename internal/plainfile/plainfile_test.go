package plainfile

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestRead(t *testing.T) {
	const limit = 8
	put := func(text string) func(string) error {
		return func(path string) error { return os.WriteFile(path, []byte(text), 0o600) }
	}
	link := func(target string) func(string) error {
		return func(path string) error {
			if err := os.WriteFile(path+".good", []byte("good"), 0o600); err != nil {
				return err
			}
			return os.Symlink(target, path)
		}
	}
	tests := []struct {
		name string
		make func(path string) error
		want string
		err  string // PATH stands for the file
	}{
		{"a file", put("good"), "good", ""},
		{"of as many bytes as may be", put("12345678"), "12345678", ""},
		{"of one more", put("123456789"), "", "PATH has more than 8 bytes"},
		{"of many more", put(strings.Repeat("x", 1<<20)), "", "PATH has more than 8 bytes"},
		{"a link to a good one", link("f.good"), "", "open PATH: too many levels of symbolic links"},
		{"a link to nothing", link("nowhere"), "", "open PATH: too many levels of symbolic links"},
		{"a link to itself", link("f"), "", "open PATH: too many levels of symbolic links"},
		{"a folder", func(path string) error { return os.Mkdir(path, 0o700) }, "", "PATH is no plain file"},
		{"a pipe that nobody writes to", func(path string) error { return syscall.Mkfifo(path, 0o600) }, "", "PATH is no plain file"},
		{"a socket", func(path string) error {
			l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
			if err == nil {
				l.SetUnlinkOnClose(false)
				err = l.Close()
			}
			return err
		}, "", "open PATH: no such device or address"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir, err := os.MkdirTemp("", "plainfile-") // a path that a socket bears
			if err != nil {
				t.Fatal(err)
			}
			defer os.RemoveAll(dir)
			path := filepath.Join(dir, "f")
			if err := tt.make(path); err != nil {
				t.Fatal(err)
			}
			got, err := Read(path, limit)
			if tt.err != "" {
				if want := strings.ReplaceAll(tt.err, "PATH", path); got != nil || err == nil || err.Error() != want {
					t.Errorf("got %q, %v; want %s", got, err, want)
				}
			} else if err != nil || string(got) != tt.want {
				t.Errorf("got %q, %v; want %q", got, err, tt.want)
			}
		})
	}
}

// What is not there is no error; what is there and empty is something else.
func TestReadNothing(t *testing.T) {
	dir := t.TempDir()
	for name, path := range map[string]string{"no file": filepath.Join(dir, "f"), "no folder": filepath.Join(dir, "a", "f")} {
		if got, err := Read(path, 8); got != nil || err != nil {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	path := filepath.Join(dir, "empty")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := Read(path, 8); got == nil || len(got) != 0 || err != nil {
		t.Errorf("an empty file: %v, %v", got, err)
	}
	if got, err := Read(filepath.Join(path, "f"), 8); got != nil || err == nil || !strings.HasSuffix(err.Error(), "not a directory") {
		t.Errorf("below a file: %q, %v", got, err)
	}
}
