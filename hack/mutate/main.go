// Command mutate owns the proof that the tests can fail: it breaks the code in one place at a time and demands that a
// test goes red; it may not change the work tree.
//
//	go run ./hack/mutate [-run REGEXP] [-named-in PAGE] [-within DURATION] [-j N] [FILE.yaml...]
//
// With -within it begins no more when the time is over, and says how many it left out: a sample, another one each time.
// What was found once is not tried again before something changes that the test is made of: see known. With -named-in it
// tries those alone whose names stand on a page in backticks. It reads lists of mutations, hack/mutate/*.yaml when none is
// named, and exits with 1 when one survived.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"sigs.k8s.io/yaml"
)

// mutation is one thing to break.
type mutation struct {
	Name    string `json:"name"`
	File    string `json:"file"`    // from the module's root
	Old     string `json:"old"`     // occurs exactly once in the file
	New     string `json:"new"`     // takes its place
	Package string `json:"package"` // whose tests are run; empty: the file's own
	Test    string `json:"test"`    // regexp of the tests that are to find it
}

func main() {
	only := flag.String("run", "", "run only the mutations whose name matches")
	page := flag.String("named-in", "", "run only the mutations whose names stand in this file in backticks")
	within := flag.Duration("within", 0, "begin no more after that time, in an order that is another each time; 0: try all")
	// A test that finds a mutation often does so by waiting in vain: more of them than there are cores.
	jobs := flag.Int("j", 2*runtime.NumCPU(), "how many to try at once")
	flag.Parse()
	survived, err := run(*only, *page, *within, *jobs, flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(2)
	}
	if survived {
		os.Exit(1)
	}
}

func run(only, page string, within time.Duration, jobs int, files []string) (survived bool, err error) {
	until := time.Now().Add(within)
	pattern, err := regexp.Compile(only)
	if err != nil {
		return false, err
	}
	root, err := moduleRoot()
	if err != nil {
		return false, err
	}
	mutations, err := choose(root, pattern, page, files)
	if err != nil {
		return false, err
	}
	if within > 0 {
		rand.Shuffle(len(mutations), func(i, j int) { mutations[i], mutations[j] = mutations[j], mutations[i] })
	}
	before, err := openKnown(root)
	if err != nil {
		return false, err
	}
	passed, failed, late, left := 0, 0, 0, 0
	var mu sync.Mutex // of all, and of the output
	try := func(m mutation) {
		begin := time.Now()
		if within > 0 && begin.After(until) {
			mu.Lock()
			defer mu.Unlock()
			left++
			return
		}
		verdict, err := m.tryOnce(root, before)
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			failed++
			fmt.Printf("FAIL  %s: %v\n", m.Name, err)
			return
		}
		passed++
		if strings.HasSuffix(verdict, notAtFirst) {
			late++
		}
		fmt.Printf("ok    %s: %s (%.1fs)\n", m.Name, verdict, time.Since(begin).Seconds())
	}
	// The scenarios' programs are built into one folder: one after the other, beside all else.
	var scenarios sync.WaitGroup
	scenarios.Go(func() {
		for _, m := range mutations {
			if m.Package == labTests {
				try(m)
			}
		}
	})
	g := &errgroup.Group{}
	g.SetLimit(jobs)
	for _, m := range mutations {
		if m.Package != labTests {
			g.Go(func() error { try(m); return nil })
		}
	}
	_ = g.Wait() // each says for itself what went wrong
	scenarios.Wait()
	fmt.Printf("%d passed, %d failed", passed, failed)
	if late > 0 {
		fmt.Printf(", %d not at the first try", late)
	}
	if within > 0 {
		fmt.Printf(", %d of %d not tried within %v", left, len(mutations), within)
	}
	fmt.Println()
	return failed > 0, nil
}

// choose reads the lists and keeps what is asked for. Each must still fit the code, whether it will be tried or not.
func choose(root string, pattern *regexp.Regexp, page string, files []string) (mutations []mutation, err error) {
	if len(files) == 0 {
		if files, err = filepath.Glob(filepath.Join(root, "hack/mutate/*.yaml")); err != nil {
			return nil, err
		}
	}
	mutations, err = load(files)
	if err != nil {
		return nil, err
	}
	mutations = slices.DeleteFunc(mutations, func(m mutation) bool { return !pattern.MatchString(m.Name) })
	if page != "" {
		text, err := os.ReadFile(page)
		if err != nil {
			return nil, err
		}
		mutations = slices.DeleteFunc(mutations, func(m mutation) bool { return !bytes.Contains(text, []byte("`"+m.Name+"`")) })
	}
	if len(mutations) == 0 {
		return nil, errors.New("no mutation has such a name")
	}
	for i := range mutations {
		if err := mutations[i].fits(root); err != nil {
			return nil, err
		}
	}
	return mutations, nil
}

// labTests is the package of the scenarios.
const labTests = "./e2e"

func moduleRoot() (string, error) {
	out, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("go env GOMOD: %w", err)
	}
	mod := strings.TrimSpace(string(out))
	if mod == "" || mod == os.DevNull {
		return "", errors.New("run it inside the module")
	}
	return filepath.Dir(mod), nil
}

// load reads the lists. Two mutations of one name could not be told apart.
func load(files []string) ([]mutation, error) {
	var all []mutation
	names := map[string]bool{}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		var list []mutation
		if err := yaml.UnmarshalStrict(data, &list); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		for _, m := range list {
			if m.Name == "" || m.File == "" || m.Old == "" || m.Test == "" || names[m.Name] {
				return nil, fmt.Errorf("%s: mutation %q lacks a name of its own, file, old or test", file, m.Name)
			}
			names[m.Name] = true
			if m.Package == "" {
				m.Package = "./" + filepath.Dir(m.File)
			}
			all = append(all, m)
		}
	}
	return all, nil
}

// fits tells whether the mutation still says which place it means.
func (m *mutation) fits(root string) error {
	source, err := os.ReadFile(filepath.Join(root, m.File))
	if err != nil {
		return fmt.Errorf("%s: %w", m.Name, err)
	}
	if n := bytes.Count(source, []byte(m.Old)); n != 1 {
		return fmt.Errorf("%s: old occurs %d times in %s, want once", m.Name, n, m.File)
	}
	return nil
}

// tryOnce tries what is not known.
func (m *mutation) tryOnce(root string, before *known) (verdict string, err error) {
	file, err := before.file(m)
	if err != nil {
		return "", err
	}
	if verdict := before.verdict(file); verdict != "" {
		return verdict + ", as before", nil
	}
	if verdict, err = m.try(root); err == nil {
		before.keep(file, verdict)
	}
	for again := 1; errors.Is(err, errSurvived) && again < maxTries; again++ {
		if verdict, err = m.try(root); err == nil {
			verdict += notAtFirst
		}
	}
	return verdict, err
}

// maxTries is for mutations that a test finds when things happen at once, which a machine under load may not let them.
// One that was not found at first is said to be, is tried again each time, and asks for a test that sets the moment itself.
const (
	maxTries   = 3
	notAtFirst = ", but not at the first try"
)

var errSurvived = errors.New("survived")

// try runs the tests on the mutated code. nil: they failed, and not because it does not compile.
func (m *mutation) try(root string) (verdict string, err error) {
	path := filepath.Join(root, m.File)
	source, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp("", "ovn-multinet-mutate-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	mutated, overlay := filepath.Join(dir, filepath.Base(path)), filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(mutated, bytes.Replace(source, []byte(m.Old), []byte(m.New), 1), 0o600); err != nil {
		return "", err
	}
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{path: mutated}})
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(overlay, replace, 0o600); err != nil {
		return "", err
	}
	// Without vet and the symbols for a debugger: half of the time goes into building.
	cmd := exec.Command("go", "test", "-json", "-vet=off", "-ldflags=-s -w", "-run", m.Test, "-count=1", "-failfast", "-timeout=120s", m.Package)
	cmd.Dir = root
	// By the environment, so that programs that a test builds are broken too.
	// A scenario finds most of them by waiting in vain for what comes about by itself.
	cmd.Env = append(os.Environ(), "OVN_MULTINET_MUTATION="+m.Name, "OVN_MULTINET_SOON=10s", strings.TrimSpace("GOFLAGS="+os.Getenv("GOFLAGS")+" -overlay="+overlay))
	out, err := cmd.Output()
	return judge(out, err)
}

// judge tells from go test's JSON lines whether a test found the mutation.
func judge(out []byte, exit error) (string, error) {
	if _, ok := errors.AsType[*exec.ExitError](exit); exit != nil && !ok {
		return "", exit
	}
	ran := 0
	var text strings.Builder
	for line := range bytes.Lines(out) {
		var event struct{ Action, Test, Output, FailedBuild string }
		if json.Unmarshal(line, &event) != nil {
			continue
		}
		text.WriteString(event.Output)
		switch {
		case event.Action == "run":
			ran++
		case event.FailedBuild != "":
			return "", errors.New("it does not compile:\n" + text.String())
		case event.Action == "skip" && event.Test != "":
			return "", fmt.Errorf("%s was skipped:\n%s", event.Test, text.String())
		case event.Action == "fail" && event.Test != "":
			return "found by " + event.Test, nil
		case event.Action == "fail" && ran > 0:
			return "found by a panic or by the time limit", nil
		}
	}
	if ran == 0 {
		return "", errors.New("no test ran:\n" + text.String())
	}
	return "", errSurvived
}
