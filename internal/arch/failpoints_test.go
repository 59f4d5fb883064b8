package arch

import (
	"cmp"
	"go/ast"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
)

// writers are the calls after which a killed process leaves something behind, by the name of the function and of the
// field or package before it; true: the function has a failpoint of its own after its last write. nb.Release, which is
// the other branch before the same failpoint, is not in the list.
var writers = map[string]bool{
	"nb.Ensure": true, "nb.ReleaseSandbox": false, "group.commit": false,
	"ovs.Add": true, "ovs.Delete": false, "source.SetStatus": false, "source.DeleteStatus": false,
	"journal.Write": false, "journal.Delete": false, "journal.HandOver": false, "journal.DeleteRelease": false,
	"wiring.Create": true, "wiring.Delete": false, "wiring.SetRoutes": false, "wiring.RestoreRoutes": false,
	"cni.AddNetworkList": false, "cni.DelNetworkList": false,
}

// onTheWay are the files that an ADD and a DEL pass. What other calls and the passes of the agent write is read anew
// by the next pass.
var onTheWay = []string{
	"plugin/plugin.go", "plugin/garbage.go", "delegate/runner.go", "node/wiring/veth.go", "ovnport/ensure.go",
	"agent/plan.go", "agent/bind.go", "agent/release.go",
}

// withoutFailpoint are functions that write and have no failpoint after it, and why.
var withoutFailpoint = map[string]string{
	"undo":         "the entry keeps the routes until the end of the rollback, and the next call restores them again",
	"deleteStatus": "the plugin is about to roll back, and a later bind writes the status anew",
}

// TestSideEffectsHaveFailpoints: wherever an ADD or a DEL writes something, the tests that kill plugin and agent can
// kill them before the next write. A write in a return statement is the function's last one; its caller goes on.
func TestSideEffectsHaveFailpoints(t *testing.T) {
	excused := maps.Clone(withoutFailpoint)
	for _, p := range packages(t) {
		for _, f := range p.files {
			if !slices.Contains(onTheWay, f.path) {
				continue
			}
			for _, d := range f.Decls {
				fn, ok := d.(*ast.FuncDecl)
				if !ok || fn.Body == nil {
					continue
				}
				for _, write := range unprotected(fn.Body) {
					if withoutFailpoint[fn.Name.Name] == "" {
						t.Errorf("%s: %s has no failpoint between %s and the next write", f.path, fn.Name.Name, write)
					}
					delete(excused, fn.Name.Name)
				}
			}
		}
	}
	for name := range excused {
		t.Errorf("%s needs no exemption", name)
	}
}

// unprotected lists the writes of a function that no failpoint follows before the next write.
func unprotected(body *ast.BlockStmt) (writes []string) {
	type event struct {
		pos   token.Pos
		write string // "": a failpoint
	}
	var events []event
	returned := map[ast.Node]bool{}
	ast.Inspect(body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ReturnStmt:
			for _, result := range n.Results {
				ast.Inspect(result, func(n ast.Node) bool {
					returned[n] = true
					return true
				})
			}
		case *ast.CallExpr:
			name := callee(n)
			own, write := writers[name]
			if name == "failpoint.Hit" {
				events = append(events, event{pos: n.Pos()})
			} else if write && !own && !returned[n] {
				events = append(events, event{n.Pos(), name})
			}
		}
		return true
	})
	slices.SortFunc(events, func(a, b event) int { return cmp.Compare(a.pos, b.pos) })
	for i, e := range events {
		if e.write != "" && (i+1 == len(events) || events[i+1].write != "") {
			writes = append(writes, e.write)
		}
	}
	return writes
}

// TestFailuresNameTests: each test that docs/failures.md names is there.
func TestFailuresNameTests(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "docs", "failures.md"))
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]bool{}
	for _, p := range packages(t) {
		for _, f := range p.files {
			for _, d := range f.Decls {
				if fn, ok := d.(*ast.FuncDecl); ok && f.test {
					tests[fn.Name.Name] = true
				}
			}
		}
	}
	named := regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(string(text), -1)
	if len(named) == 0 {
		t.Error("docs/failures.md names no test")
	}
	for _, m := range named {
		if !tests[m[1]] {
			t.Errorf("docs/failures.md names %s, which is no test", m[1])
		}
	}
}

// callee is a call's function with the name before it: "nb.Ensure" for a.nb.Ensure(…).
func callee(call *ast.CallExpr) string {
	f, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	switch x := f.X.(type) {
	case *ast.Ident:
		return x.Name + "." + f.Sel.Name
	case *ast.SelectorExpr:
		return x.Sel.Name + "." + f.Sel.Name
	}
	return ""
}
