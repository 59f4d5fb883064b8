package arch

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the table of packages in docs/design.md")

// TestPackagesAreListed: the table of packages in docs/design.md has the first sentence of each package's comment.
func TestPackagesAreListed(t *testing.T) {
	const head = "| folder | owns |\n|---|---|\n"
	page := filepath.Join(root, "docs", "design.md")
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, _, found := strings.Cut(string(text), head)
	if !found {
		t.Fatalf("%s has no table of packages", page)
	}
	want := before + head
	all := packages(t)
	for _, path := range slices.Sorted(maps.Keys(all)) {
		if p := all[path]; p.name != "main" {
			if owns := p.owns(); owns != "" {
				want += fmt.Sprintf("| `%s` | %s |\n", path, owns)
			}
		}
	}
	if *update {
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if string(text) != want {
		t.Errorf("docs/design.md differs from the packages' comments: run go test ./internal/arch -run TestPackagesAreListed -update")
	}
}

// owns is the first sentence of the package's comment, without its beginning "Package name owns".
func (p *pkg) owns() string {
	for _, f := range p.files {
		if owns, found := strings.CutPrefix(f.Doc.Text(), "Package "+p.name+" owns "); found {
			owns, _, _ = strings.Cut(strings.Join(strings.Fields(owns), " "), ". ")
			return strings.TrimSuffix(owns, ".")
		}
	}
	return ""
}
