package ovnrun

import (
	"os"
	"path/filepath"
	"testing"
)

func TestTruncateLarge(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	if err := truncateLarge(path, 4); !os.IsNotExist(err) {
		t.Errorf("no file: %v", err)
	}
	writer, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	for _, want := range []string{"1234", "12341234", "1234"} { // the limit is checked before the third line
		if _, err := writer.WriteString("1234"); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != want {
			t.Errorf("the file has %q, want %q, %v", got, want, err)
		}
		if err := truncateLarge(path, 4); err != nil {
			t.Fatal(err)
		}
	}
}
