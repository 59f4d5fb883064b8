package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// places finds the mutations of the packages in these folders, on lines that their own tests reach.
func places(folders []string) (all []mutation, err error) {
	for _, folder := range folders {
		folder = filepath.Clean(folder)
		files, err := filepath.Glob(folder + "/*.go")
		if err != nil {
			return nil, err
		}
		reached, err := coverage(folder)
		if err != nil {
			return nil, err
		}
		unreached := 0
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			found, err := placesIn(file)
			if err != nil {
				return nil, err
			}
			for _, p := range found {
				if !reached[p.at] {
					unreached++
					continue
				}
				p.Runs, p.Found = []testRun{{folder, "."}}, true
				all = append(all, p.mutation)
			}
		}
		fmt.Printf("%s: %d places are on lines that no test of the package reaches\n", folder, unreached)
	}
	return all, nil
}

// line is a line of a file, by the file's base name.
type line struct {
	file   string
	number int
}

type placed struct {
	mutation
	at line
}

// coverage runs the tests once, which must pass, and returns the lines that they reach.
func coverage(folder string) (map[line]bool, error) {
	profile, err := os.CreateTemp("", "ovn-multinet-mutate-")
	if err != nil {
		return nil, err
	}
	defer os.Remove(profile.Name())
	defer profile.Close()
	cmd := exec.Command("go", "test", "-vet=off", "-count=1", "-coverprofile="+profile.Name(), "./"+folder)
	cmd.Stderr = os.Stderr
	if out, err := cmd.Output(); err != nil {
		return nil, fmt.Errorf("the tests of %s fail without a mutation: %w\n%s", folder, err, out)
	}
	text, err := os.ReadFile(profile.Name())
	if err != nil {
		return nil, err
	}
	reached := map[line]bool{}
	for row := range strings.Lines(string(text)) { // path/file.go:first.column,last.column statements count
		path, rest, _ := strings.Cut(row, ":")
		var first, last, column, statements, count int
		n, _ := fmt.Sscanf(rest, "%d.%d,%d.%d %d %d", &first, &column, &last, &column, &statements, &count)
		for number := first; n == 6 && count > 0 && number <= last; number++ {
			reached[line{filepath.Base(path), number}] = true
		}
	}
	return reached, nil
}

// placesIn finds the mutations of a file: a condition that is never or always true, one operand of && and || without
// the other, a call whose results nobody uses left out, and an append that appends nothing.
func placesIn(file string) (all []placed, err error) {
	source, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	set := token.NewFileSet()
	tree, err := parser.ParseFile(set, file, source, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	text := func(n ast.Node) string {
		return string(source[set.Position(n.Pos()).Offset:set.Position(n.End()).Offset])
	}
	add := func(what string, n ast.Node, with string) {
		p := set.Position(n.Pos())
		name := fmt.Sprintf("%s:%d:%d %s: %s", file, p.Line, p.Column, what, strconv.Quote(text(n)))
		all = append(all, placed{mutation{Name: name, File: file, Begin: p.Offset, End: set.Position(n.End()).Offset,
			New: with}, line{filepath.Base(file), p.Line}})
	}
	ast.Inspect(tree, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.IfStmt:
			if errCheck.MatchString(text(n.Cond)) {
				break // most errors come from outside, and a test for each would prove little
			}
			add("never", n.Cond, "false && ("+text(n.Cond)+")")
			add("always", n.Cond, "true || ("+text(n.Cond)+")")
		case *ast.BinaryExpr:
			if n.Op == token.LAND || n.Op == token.LOR {
				neutral := strconv.FormatBool(n.Op == token.LAND)
				add("no left side", n, "("+neutral+" "+n.Op.String()+" "+text(n.Y)+")")
				add("no right side", n, "("+text(n.X)+" "+n.Op.String()+" "+neutral+")")
			}
		case *ast.ExprStmt:
			if !isLog(text(n)) {
				add("left out", n, "if false { "+text(n)+" }")
			}
		case *ast.CallExpr:
			if f, ok := n.Fun.(*ast.Ident); ok && f.Name == "append" && len(n.Args) > 1 {
				add("nothing appended", n, text(n.Args[0]))
			}
		}
		return true
	})
	return all, nil
}

var errCheck = regexp.MustCompile(`^err [!=]= nil$`)

// isLog reports whether a statement writes a log line.
func isLog(text string) bool {
	for _, call := range []string{".Debug(", ".Info(", ".Warn(", ".Error("} {
		if strings.Contains(text, call) {
			return true
		}
	}
	return false
}
