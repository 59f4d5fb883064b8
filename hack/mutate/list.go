package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// mutation is one change of the source, with the tests that must find it.
type mutation struct {
	Name       string
	File       string // from the module's root
	Begin, End int    // the bytes of the file that New replaces
	New        string
	Runs       []testRun // one of them must fail
	Found      bool      // found by -find: skipped tests are allowed
}

// testRun is one call of go test.
type testRun struct{ Folder, Tests string }

// String is the name with the change, for a reader who has to find the place.
func (m *mutation) String() string {
	if m.Found {
		return m.Name
	}
	return fmt.Sprintf("%s (%s: %.60q)", m.Name, m.File, m.New)
}

// list is a file of mutations: by the file or folder of the code, then by the demands of docs/conformance.md or by the
// tests that must find them. The texts are matched without regard to white space.
type list map[string]map[string][]struct{ Old, New string }

var demandKey = regexp.MustCompile(`^[A-Z]-\d+( [A-Z]-\d+)*$`)

// listed reads the lists.
func listed(files []string) (all []mutation, err error) {
	if len(files) == 0 {
		if files, err = filepath.Glob("hack/mutate/*.yaml"); err != nil {
			return nil, err
		}
	}
	shown, err := testsOfDemands()
	if err != nil {
		return nil, err
	}
	var misfits []error
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		var l list
		if err := yaml.UnmarshalStrict(text, &l); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		for where, byKey := range l {
			for key, changes := range byKey {
				runs := runsOf(where, key, shown)
				if len(runs) == 0 {
					misfits = append(misfits, fmt.Errorf("%s: %s: there is no test for %s", file, where, key))
				}
				for i, c := range changes {
					m := mutation{Name: fmt.Sprintf("%s %s #%d", where, key, i+1), New: c.New, Runs: runs}
					if err := m.place(where, c.Old); err != nil {
						misfits = append(misfits, fmt.Errorf("%s: %s: %w", file, m.Name, err))
					}
					all = append(all, m)
				}
			}
		}
	}
	slices.SortFunc(all, func(a, b mutation) int { return cmp.Compare(a.Name, b.Name) })
	return all, errors.Join(misfits...)
}

// place finds the only occurrence of the text in the file or folder.
func (m *mutation) place(where, old string) error {
	words := strings.Fields(old)
	for i, w := range words {
		words[i] = regexp.QuoteMeta(w)
	}
	pattern, err := regexp.Compile(strings.Join(words, `\s+`))
	if err != nil {
		return err
	}
	files := []string{where}
	if !strings.HasSuffix(where, ".go") {
		if files, err = filepath.Glob(where + "/*.go"); err != nil {
			return err
		}
	}
	n := 0
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		source, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		for _, at := range pattern.FindAllIndex(source, -1) {
			m.File, m.Begin, m.End = file, at[0], at[1]
			n++
		}
	}
	if n != 1 {
		return fmt.Errorf("%q occurs %d times, want once", old, n)
	}
	return nil
}

// runsOf returns the calls of go test: the tests in the code's folder first, the scenarios last.
func runsOf(where, key string, shown map[string][]testRun) (runs []testRun) {
	folder := where
	if strings.HasSuffix(where, ".go") {
		folder = filepath.Dir(where)
	}
	var tests []testRun
	if demandKey.MatchString(key) {
		for demand := range strings.FieldsSeq(key) {
			tests = append(tests, shown[demand]...)
		}
	} else {
		if other, names, ok := strings.Cut(key, "."); ok {
			folder, key = other, names
		}
		for name := range strings.SplitSeq(key, "|") {
			if !slices.Contains(shown[""], testRun{folder, name}) {
				return nil
			}
			tests = append(tests, testRun{folder, name})
		}
	}
	byFolder := map[string][]string{}
	for _, t := range tests {
		byFolder[t.Folder] = append(byFolder[t.Folder], t.Tests)
	}
	for f, tests := range byFolder {
		slices.Sort(tests)
		runs = append(runs, testRun{f, "^(" + strings.Join(slices.Compact(tests), "|") + ")$"})
	}
	rank := func(r testRun) int {
		switch r.Folder {
		case folder:
			return 0
		case scenarios:
			return 2
		}
		return 1
	}
	slices.SortFunc(runs, func(a, b testRun) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.Folder, b.Folder))
	})
	return runs
}

var (
	testWithComment = regexp.MustCompile(`(?m)((?:^//.*\n)*)^func ((?:Test|Fuzz)\w+)\(`)
	annotation      = regexp.MustCompile(`(?m)^// Conformance: ([A-Z0-9 -]+)$`)
)

// testsOfDemands reads which tests show a demand: comments above test functions such as "Conformance: N-14 N-15". All
// tests are at "".
func testsOfDemands() (map[string][]testRun, error) {
	shown := map[string][]testRun{}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, test := range testWithComment.FindAllStringSubmatch(string(text), -1) {
			shown[""] = append(shown[""], testRun{filepath.Dir(path), test[2]})
			for _, line := range annotation.FindAllStringSubmatch(test[1], -1) {
				for _, demand := range strings.Fields(line[1]) {
					shown[demand] = append(shown[demand], testRun{filepath.Dir(path), test[2]})
				}
			}
		}
		return err
	})
	return shown, err
}
