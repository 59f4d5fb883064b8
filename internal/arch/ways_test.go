package arch

import (
	"fmt"
	"go/ast"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// function names a function: "package.Function" or "package.Type.method".
type function = string

// calls has, for each function of the product, the functions that it names, in the order of the text. Types are not known
// here: the call of a method stands for all methods of that name in the file's package and in those that it imports.
type calls map[function][]function

func callsOf(t *testing.T) calls {
	type declared struct {
		*ast.FuncDecl
		pkg  *pkg
		file *file
	}
	all := map[function][]declared{}   // packages of the same name may have functions of the same name
	methods := map[string][]function{} // by package and name
	for _, p := range packages(t) {
		if !product(p.path) {
			continue
		}
		for _, f := range p.files {
			for _, d := range f.Decls {
				if d, ok := d.(*ast.FuncDecl); ok && !f.test {
					name := p.name + "." + d.Name.Name
					if of := receiver(d); of != "" {
						name = p.name + "." + of + "." + d.Name.Name
						methods[p.path+"."+d.Name.Name] = append(methods[p.path+"."+d.Name.Name], name)
					}
					all[name] = append(all[name], declared{d, p, f})
				}
			}
		}
	}
	c := calls{}
	add := func(name function, d declared) {
		if d.Body == nil {
			return
		}
		ast.Inspect(d.Body, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.SelectorExpr:
				if x, ok := n.X.(*ast.Ident); ok {
					if called := x.Name + "." + n.Sel.Name; all[called] != nil {
						c[name] = append(c[name], called)
						return true
					}
				}
				c[name] = append(c[name], methods[d.pkg.path+"."+n.Sel.Name]...)
				for _, imported := range d.file.imports() {
					if path, ours := own(imported); ours {
						c[name] = append(c[name], methods[path+"."+n.Sel.Name]...)
					}
				}
			case *ast.Ident:
				if called := d.pkg.name + "." + n.Name; all[called] != nil {
					c[name] = append(c[name], called)
				}
			}
			return true
		})
	}
	for name, functions := range all {
		c[name] = nil
		for _, d := range functions {
			add(name, d)
		}
	}
	return c
}

// receiver is the name of the type whose method a function is.
func receiver(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return ""
	}
	of := d.Recv.List[0].Type
	if star, ok := of.(*ast.StarExpr); ok {
		of = star.X
	}
	if generic, ok := of.(*ast.IndexExpr); ok {
		of = generic.X
	}
	name, _ := of.(*ast.Ident)
	if name == nil {
		return ""
	}
	return name.Name
}

// named returns the function that a page names. A page may leave out the package of a method whose type's name no other
// package has.
func (c calls) named(name string) (function, error) {
	if _, exists := c[name]; exists {
		return name, nil
	}
	var all []function
	for f := range c {
		if strings.HasSuffix(f, "."+name) {
			all = append(all, f)
		}
	}
	if len(all) != 1 {
		return "", fmt.Errorf("%s names the functions %q, want one", name, all)
	}
	return all[0], nil
}

// reaches reports whether a function is another one, or calls it through at most some others.
func (c calls) reaches(from, to function, deep int) bool {
	return from == to || deep > 0 && slices.ContainsFunc(c[from], func(next function) bool {
		return next != from && c.reaches(next, to, deep-1)
	})
}

// inOrder reports whether a function calls another one, or whether some function calls first the one and then the other.
func (c calls) inOrder(first, second function) bool {
	const deep = 3
	if c.reaches(first, second, deep) {
		return true
	}
	for _, called := range c {
		i := slices.IndexFunc(called, func(f function) bool { return c.reaches(f, first, deep) })
		if i >= 0 && slices.ContainsFunc(called[i+1:], func(f function) bool { return c.reaches(f, second, deep) }) {
			return true
		}
	}
	return false
}

var (
	step  = regexp.MustCompile(`(?m)^\d\. `)
	named = regexp.MustCompile("\\*\\*(Source|Plugin|Agent|Controller)\\*\\*|`([A-Za-z]+(?:\\.[A-Za-z]+){1,2})\\(\\)`")
)

// TestWays: each way of docs/design has six steps before its first heading. Each function that they name exists, and each
// program calls its functions in the order of the page.
func TestWays(t *testing.T) {
	c := callsOf(t)
	ways := 0
	for page, text := range pages(t) {
		title, rest, _ := strings.Cut(text, "\n")
		if filepath.Dir(page) != "docs/design" || !strings.HasPrefix(title, "# The way of ") {
			continue
		}
		ways++
		way, _, _ := strings.Cut(rest, "\n## ")
		if steps := step.FindAllString(way, -1); fmt.Sprint(steps) != "[1.  2.  3.  4.  5.  6. ]" {
			t.Errorf("%s has the steps %q", page, steps)
		}
		program, last := "", map[string]function{}
		for _, m := range named.FindAllStringSubmatch(way, -1) {
			if m[1] != "" {
				program = m[1]
				continue
			}
			f, err := c.named(m[2])
			if err != nil {
				t.Errorf("%s: %v", page, err)
				continue
			}
			if before := last[program]; before != "" && !c.inOrder(before, f) {
				t.Errorf("%s: nothing calls %s after %s", page, f, before)
			}
			last[program] = f
		}
		if len(last) == 0 {
			t.Errorf("%s names no function", page)
		}
	}
	if ways < 6 {
		t.Errorf("%d ways", ways)
	}
}
