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

var conformanceComment = regexp.MustCompile(`(?m)^Conformance: ([A-Z0-9 -]+)$`)

// shownBy maps each demand to the tests whose comment names the demand.
func shownBy(t *testing.T) map[string][]string {
	t.Helper()
	shown := map[string][]string{}
	for folder, p := range packages(t) {
		for _, f := range p.files {
			for _, d := range f.Decls {
				fn, ok := d.(*ast.FuncDecl)
				if !ok {
					continue
				}
				for _, line := range conformanceComment.FindAllStringSubmatch(fn.Doc.Text(), -1) {
					for demand := range strings.FieldsSeq(line[1]) {
						shown[demand] = append(shown[demand], folder+"."+fn.Name.Name)
					}
				}
			}
		}
	}
	return shown
}

// mutated lists the demands that have a mutation.
func mutated(t *testing.T) map[string]bool {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "hack", "mutate", "conformance.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var list map[string]map[string]any
	if err := yaml.Unmarshal(text, &list); err != nil {
		t.Fatal(err)
	}
	all := map[string]bool{}
	for _, byDemands := range list {
		for demands := range byDemands {
			for demand := range strings.FieldsSeq(demands) {
				all[demand] = true
			}
		}
	}
	return all
}

// TestConformance: the demands are numbered without a gap, each that is ours is shown by a test, and each MUST that we
// follow to the letter has a mutation.
func TestConformance(t *testing.T) {
	shown, mutations := shownBy(t), mutated(t)
	last := map[string]int{}
	for _, row := range rows(t, "conformance.md", `[A-Z]-\d+`) {
		letter, number, _ := strings.Cut(row[0], "-")
		if last[letter]++; number != strconv.Itoa(last[letter]) {
			t.Fatalf("row %s: want %s-%d", row[0], letter, last[letter])
		}
		what := row[len(row)-1]
		ours := !strings.Contains(what, "Not ours: ")
		if ours && len(shown[row[0]]) == 0 {
			t.Errorf("%s: no test shows this demand", row[0])
		}
		if letter != "F" && (len(row) != 4 || !slices.Contains([]string{"MUST", "SHOULD", "MAY"}, row[2])) {
			t.Errorf("row %v: want number, section, level and text", row)
			continue
		}
		if letter != "F" && row[2] == "MUST" && ours && !mutations[row[0]] && !strings.Contains(what, "iffers: ") {
			t.Errorf("%s: no mutation breaks this demand", row[0])
		}
		delete(shown, row[0])
		delete(mutations, row[0])
	}
	for demand, tests := range shown {
		t.Errorf("%v show %s, which docs/conformance.md does not have", tests, demand)
	}
	for demand := range mutations {
		t.Errorf("hack/mutate/conformance.yaml breaks %s, which docs/conformance.md does not have", demand)
	}
	if last["N"] < 150 || last["C"] < 160 || last["D"] < 8 || last["F"] < 20 {
		t.Errorf("demands read: %v", last)
	}
}
