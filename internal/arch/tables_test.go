package arch

import (
	"cmp"
	"fmt"
	"go/ast"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/delegate/delegateconf"
	"github.com/ovn-multinet/ovn-multinet/kubectl/check"
)

// constants reads the CNI error codes from the declarations in conf/errors.go.
func constants(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, f := range packages(t)["conf"].files {
		if f.path != filepath.Join("conf", "errors.go") {
			continue
		}
		for _, d := range f.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok {
				continue
			}
			for _, spec := range g.Specs {
				v, ok := spec.(*ast.ValueSpec)
				if !ok || !strings.HasPrefix(v.Names[0].Name, "Code") || len(v.Values) != 1 {
					continue
				}
				if lit, ok := v.Values[0].(*ast.BasicLit); ok {
					out[v.Names[0].Name] = lit.Value
				}
			}
		}
	}
	if len(out) < 10 {
		t.Fatalf("constants found: %v", out)
	}
	return out
}

func TestTableOfCodes(t *testing.T) {
	var table, declared []string
	for _, c := range conf.Codes {
		table = append(table, fmt.Sprint(c.Code))
		if c.Meaning == "" || strings.TrimSpace(c.Meaning) != c.Meaning {
			t.Errorf("code %d: meaning %q", c.Code, c.Meaning)
		}
	}
	if !slices.IsSortedFunc(conf.Codes, func(a, b struct {
		Code    uint
		Meaning string
	}) int {
		return cmp.Compare(a.Code, b.Code)
	}) {
		t.Errorf("conf.Codes is not in the order of the numbers: %v", table)
	}
	declared = slices.Collect(maps.Values(constants(t)))
	slices.Sort(table)
	slices.Sort(declared)
	if !slices.Equal(table, declared) {
		t.Errorf("conf.Codes has %v, the constants are %v", table, declared)
	}
}

// rows reads a Markdown table whose rows begin with the pattern.
func rows(t *testing.T, name, first string) [][]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "docs", name))
	if err != nil {
		t.Fatal(err)
	}
	begins := regexp.MustCompile("^" + first + "$")
	var out [][]string
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if len(cells) > 1 && begins.MatchString(cells[0]) {
			out = append(out, cells)
		}
	}
	return out
}

func TestErrorsAreDocumented(t *testing.T) {
	table := rows(t, "errors.md", `\d+`)
	if len(table) != len(conf.Codes) {
		t.Fatalf("docs/errors.md has %d codes, conf.Codes %d", len(table), len(conf.Codes))
	}
	for i, c := range conf.Codes {
		if table[i][0] != fmt.Sprint(c.Code) || table[i][1] != c.Meaning {
			t.Errorf("row %d is %s, %q; want %d, %q", i, table[i][0], table[i][1], c.Code, c.Meaning)
		}
		if len(table[i]) != 3 || len(table[i][2]) < 20 {
			t.Errorf("code %d: what is one to do? %q", c.Code, table[i][2:])
		}
	}
}

// TestChecksAreDocumented: the table of docs/install.md has each check of kubectl multinet check, and what to do.
func TestChecksAreDocumented(t *testing.T) {
	table := rows(t, "install.md", "`[a-z]+(-[a-z]+)*`")
	table = slices.DeleteFunc(table, func(cells []string) bool { return len(cells) != 3 }) // other tables
	if len(table) != len(check.Checks) {
		t.Fatalf("docs/install.md has %d checks, check.Checks %d", len(table), len(check.Checks))
	}
	for i, c := range check.Checks {
		if table[i][0] != "`"+c.What+"`" || table[i][1] != c.Meaning || len(table[i][2]) < 15 {
			t.Errorf("row %d is %q; want `%s`, %q, and what to do", i, table[i], c.What, c.Meaning)
		}
	}
}

var (
	metricName = regexp.MustCompile(`^ovn_multinet_[a-z_]+$`)
	labelName  = regexp.MustCompile("`([a-z_]+)`")
)

// metrics reads the names of the metrics from the code, with their labels where they have any.
func metrics(t *testing.T) map[string][]string {
	t.Helper()
	out := map[string][]string{}
	for _, p := range packages(t) {
		for _, f := range p.files {
			if f.test || within(p.path, "e2e") || within(p.path, "hack") {
				continue
			}
			for _, text := range f.strings() {
				if _, has := out[text]; !has && metricName.MatchString(text) { // another file may only read it
					out[text] = nil
				}
			}
			ast.Inspect(f.File, func(n ast.Node) bool {
				if call, ok := n.(*ast.CallExpr); ok && len(call.Args) == 2 {
					if name := firstMetric(call.Args[0]); name != "" {
						out[name] = literals(call.Args[1])
					}
				}
				return true
			})
		}
	}
	if len(out) == 0 {
		t.Fatal("no metrics found")
	}
	return out
}

// firstMetric is the name of the metric in the options of prometheus.New….
func firstMetric(e ast.Expr) string {
	if _, ok := e.(*ast.CompositeLit); !ok {
		return ""
	}
	for _, text := range literals(e) {
		if metricName.MatchString(text) {
			return text
		}
	}
	return ""
}

func literals(e ast.Expr) []string {
	if list, ok := e.(*ast.CompositeLit); ok {
		return (&file{File: &ast.File{Name: &ast.Ident{}, Decls: []ast.Decl{&ast.GenDecl{Specs: []ast.Spec{&ast.ValueSpec{Values: []ast.Expr{list}}}}}}}).strings()
	}
	return nil
}

func TestMetricsAreDocumented(t *testing.T) {
	want := metrics(t)
	documented := map[string][]string{}
	for _, cells := range rows(t, "metrics.md", "`ovn_multinet_[a-z_]+`") {
		if len(cells) != 4 || cells[3] == "" {
			t.Errorf("docs/metrics.md: row %v, want name, type, labels and meaning", cells)
			continue
		}
		var labels []string
		for _, m := range labelName.FindAllStringSubmatch(cells[2], -1) {
			labels = append(labels, m[1])
		}
		documented[strings.Trim(cells[0], "`")] = labels
	}
	for name, labels := range want {
		got, found := documented[name]
		if !found {
			t.Errorf("docs/metrics.md does not have %s", name)
		} else if !slices.Equal(got, labels) {
			t.Errorf("docs/metrics.md: %s has the labels %v, want %v", name, got, labels)
		}
	}
	for name := range documented {
		if _, used := want[name]; !used {
			t.Errorf("docs/metrics.md has %s, which no code has", name)
		}
	}
}

// TestShippedDelegates: the manifests let run what the documentation says is safe, and nothing else.
func TestShippedDelegates(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "images", "install.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	shipped := regexp.MustCompile(`"--allowed-delegates=([a-z,-]*)"`).FindStringSubmatch(string(text))
	if shipped == nil {
		t.Fatal("the manifest has no --allowed-delegates")
	}
	page, err := os.ReadFile(filepath.Join(root, "docs", "networks.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "| shipped |")
	table, _, _ = strings.Cut(table, "\n\n")
	var documented []string
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z-]+)` \\|").FindAllStringSubmatch(table, -1) {
		documented = append(documented, row[1])
	}
	ipam := regexp.MustCompile(`"--allowed-ipam=([a-z-]+(?:,[a-z-]+)*)"`).FindStringSubmatch(string(text))
	if ipam == nil {
		t.Fatal("the manifest has no --allowed-ipam")
	}
	if got := strings.Join(documented, ","); got == "" || got != shipped[1]+","+ipam[1] {
		t.Errorf("documented are %q, shipped %q and %q", got, shipped[1], ipam[1])
	}
	delegates, addresses := delegateconf.Shipped()
	if got := strings.Join(delegates, ",") + " " + strings.Join(addresses, ","); got != shipped[1]+" "+ipam[1] {
		t.Errorf("a schema have %q, shipped are %q and %q", got, shipped[1], ipam[1])
	}
}
