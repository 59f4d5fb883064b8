package nbtest

import (
	"os"
	"strings"
	"testing"
)

// File is the database's, which every commit makes longer.
func (w *World) File(t *testing.T) []byte {
	t.Helper()
	data, err := os.ReadFile(strings.TrimSuffix(w.Socket, ".sock") + ".db")
	if err != nil {
		t.Fatal(err)
	}
	return data
}
