package arch

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// maxLine is the number of characters of the longest line of code.
const maxLine = 120

// longLines lists the packages that still have longer lines. Tests are not bound yet.
var longLines = []string{
	"node/install",
}

func TestLinesAreShort(t *testing.T) {
	for _, p := range packages(t) {
		if slices.Contains(longLines, p.path) || p.path == "ovndb/nb" || p.path == "ovndb/vswitch" || within(p.path, "e2e") {
			continue
		}
		for _, f := range p.files {
			if f.test {
				continue
			}
			text, err := os.ReadFile(filepath.Join(root, f.path))
			if err != nil {
				t.Fatal(err)
			}
			n := 0
			for line := range strings.Lines(string(text)) {
				n++
				if length := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); length > maxLine {
					t.Errorf("%s:%d has %d characters, want at most %d", f.path, n, length, maxLine)
				}
			}
		}
	}
}
