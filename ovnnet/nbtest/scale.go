package nbtest

import (
	"os"
	"strings"
	"testing"
)

// File returns the content of the database's file. Every commit makes the file longer.
func (w *World) File(t *testing.T) []byte {
	t.Helper()
	data, err := os.ReadFile(strings.TrimSuffix(w.Socket, ".sock") + ".db")
	if err != nil {
		t.Fatal(err)
	}
	return data
}
