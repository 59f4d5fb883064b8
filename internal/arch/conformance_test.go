package arch

import (
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

var (
	quoted   = regexp.MustCompile("`([^`]+)`")
	testName = regexp.MustCompile(`^([a-z0-9/-]+)\.((?:Test|Fuzz)\w+)(?:/.+)?$`)
)

// aTest is one by its folder and its name.
type aTest struct{ folder, name string }

// tests are all of the module, those for other build tags too.
func tests(t *testing.T) map[aTest]bool {
	t.Helper()
	all := map[aTest]bool{}
	for folder, p := range packages(t) {
		for _, f := range p.files {
			for _, d := range f.Decls {
				if fn, ok := d.(*ast.FuncDecl); ok && f.test && fn.Recv == nil {
					all[aTest{folder, fn.Name.Name}] = true
				}
			}
		}
	}
	return all
}

// namedIn are the tests that a cell of a table names, each of which must be there.
func namedIn(t *testing.T, row, cell string, there map[aTest]bool) (named []aTest) {
	t.Helper()
	for _, word := range quoted.FindAllStringSubmatch(cell, -1) {
		match := testName.FindStringSubmatch(word[1])
		if match == nil {
			continue
		}
		test := aTest{match[1], match[2]}
		if !there[test] {
			t.Errorf("%s: there is no test %s", row, word[1])
		}
		named = append(named, test)
	}
	return named
}

// finder says which tests are to find a mutation.
type finder struct {
	folder string
	tests  *regexp.Regexp
}

func (f *finder) fits(test aTest) bool {
	return f.folder == test.folder && f.tests.MatchString(test.name)
}

// finders reads them from the lists of mutations, by the mutations' names.
func finders(t *testing.T) map[string]*finder {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, "hack", "mutate", "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no mutations: %v", err)
	}
	all := map[string]*finder{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var list []struct{ Name, File, Package, Test string }
		if err := yaml.Unmarshal(text, &list); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		for _, m := range list {
			if m.Package == "" {
				m.Package = filepath.Dir(m.File)
			}
			top, _, _ := strings.Cut(m.Test, "/") // what comes behind is of subtests
			all[m.Name] = &finder{strings.TrimPrefix(m.Package, "./"), regexp.MustCompile(top)}
		}
	}
	return all
}

// TestConformance: the demands of each specification are numbered without a gap, the tests that show them exist, and each
// MUST that is ours has a mutation that is to be found by one of them.
func TestConformance(t *testing.T) {
	there, mutations := tests(t), finders(t)
	next := map[string]int{}
	for _, row := range rows(t, "conformance.md", `[A-Z]-\d+`) {
		if len(row) != 6 {
			t.Errorf("%s has %d cells", row[0], len(row))
			continue
		}
		level, what, shown := row[2], row[3], row[4]
		letter, number, _ := strings.Cut(row[0], "-")
		if next[letter]++; number != strconv.Itoa(next[letter]) {
			t.Fatalf("%s comes where %s-%d should", row[0], letter, next[letter])
		}
		if !slices.Contains([]string{"MUST", "SHOULD", "MAY"}, level) {
			t.Errorf("%s: level %q", row[0], level)
		}
		named, notOurs := namedIn(t, row[0], shown, there), strings.HasPrefix(shown, "not ours: ")
		if len(named) == 0 && !notOurs {
			t.Errorf("%s: no test is named", row[0])
		}
		names := quoted.FindAllStringSubmatch(row[5], -1)
		if level == "MUST" && len(names) == 0 && !notOurs && !strings.Contains(what, "differs: ") {
			t.Errorf("%s: a MUST without a mutation", row[0])
		}
		for _, name := range names {
			if m := mutations[name[1]]; m == nil || !slices.ContainsFunc(named, m.fits) {
				t.Errorf("%s: mutation %q is found by none of the tests named", row[0], name[1])
			}
		}
	}
	if next["N"] < 150 || next["C"] < 160 || next["D"] < 8 {
		t.Errorf("demands are read: %v", next)
	}
}

// TestFaultsOfOthers: each fault that others have is shown not to be ours.
func TestFaultsOfOthers(t *testing.T) {
	there, faults := tests(t), 0
	for _, row := range rows(t, "conformance.md", `.*`) {
		if len(row) != 3 || row[0] == "Fault" || strings.HasPrefix(row[0], "---") {
			continue
		}
		if faults++; len(namedIn(t, row[0], row[2], there)) == 0 {
			t.Errorf("%s: no test is named", row[0])
		}
	}
	if faults < 20 {
		t.Errorf("%d faults are read", faults)
	}
}
