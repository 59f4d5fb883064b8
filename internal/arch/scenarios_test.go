package arch

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestScenariosHaveASubject: e2e/README.md says of each file of scenarios which subject it has, and of no other.
func TestScenariosHaveASubject(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "e2e/README.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "| file names begin with |")
	var words []string
	for row := range strings.Lines(table) {
		column, _, _ := strings.Cut(strings.TrimPrefix(row, "|"), "|")
		for _, m := range regexp.MustCompile("`([a-z0-9]+)`").FindAllStringSubmatch(column, -1) {
			words = append(words, m[1])
		}
	}
	files, err := filepath.Glob(filepath.Join(root, "e2e/*_test.go"))
	if err != nil || len(files) < 50 {
		t.Fatalf("%d files, error %v", len(files), err)
	}
	used := map[string]bool{"": true}
	for _, file := range files {
		name := filepath.Base(file)
		longest := ""
		for _, word := range words {
			if strings.HasPrefix(name, word) && len(word) > len(longest) {
				longest = word
			}
		}
		if used[longest] = true; longest == "" && name != "world_test.go" {
			t.Errorf("e2e/README.md has no subject for %s", name)
		}
	}
	for _, word := range words {
		if !used[word] {
			t.Errorf("e2e/README.md has %q, and no file begins with it", word)
		}
	}
}
