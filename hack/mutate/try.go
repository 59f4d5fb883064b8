package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
)

// scenarios is the folder of the tests that build the programs. The programs share one folder, so the tests run one
// after the other.
const scenarios = "e2e"

var oneScenario sync.Mutex

// Some tests find a mutation only when two events coincide, which a busy machine may prevent. Such a mutation is tried
// again and reported: its test should set the moment itself.
const (
	maxTries   = 3
	notAtFirst = ", at a later try"
)

var errSurvived = errors.New("survived")

// try returns what found the mutation, or why nothing did.
func (m *mutation) try(c *cache) (verdict string, err error) {
	file, err := c.file(m)
	if err != nil {
		return "", err
	}
	if verdict := c.verdict(file); verdict != "" {
		return verdict + ", cached", nil
	}
	tries := maxTries
	if m.Found {
		tries = 1
	}
	for n := range tries {
		if verdict, err = m.tryOnce(); err == nil && n == 0 {
			c.keep(file, verdict)
		} else if err == nil {
			verdict += notAtFirst
		}
		if !errors.Is(err, errSurvived) {
			break
		}
	}
	return verdict, err
}

// tryOnce runs the tests on the mutated code until one fails. Code that does not compile is an error.
func (m *mutation) tryOnce() (verdict string, err error) {
	source, err := os.ReadFile(m.File)
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp("", "ovn-multinet-mutate-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	path, err := filepath.Abs(m.File)
	if err != nil {
		return "", err
	}
	mutated, overlay := filepath.Join(dir, filepath.Base(path)), filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(mutated, m.mutated(source), 0o600); err != nil {
		return "", err
	}
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{path: mutated}})
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(overlay, replace, 0o600); err != nil {
		return "", err
	}
	for _, r := range m.Runs {
		if verdict, err = m.test(r, overlay); !errors.Is(err, errSurvived) {
			break
		}
	}
	return verdict, err
}

// test runs go test on the mutated code.
func (m *mutation) test(r testRun, overlay string) (string, error) {
	if r.Folder == scenarios {
		oneScenario.Lock()
		defer oneScenario.Unlock()
	}
	// Half of the time goes into building, so vet and debug symbols are off.
	cmd := exec.Command("go", "test", "-json", "-vet=off", "-ldflags=-s -w", "-run", r.Tests, "-count=1", "-failfast",
		"-timeout=180s", "./"+r.Folder)
	// The overlay is in GOFLAGS, so that programs that a test builds are mutated too. Most scenarios find a mutation by
	// waiting for a state that does not come, so they wait for a shorter time.
	cmd.Env = append(os.Environ(), "OVN_MULTINET_MUTATION="+m.Name, "OVN_MULTINET_SOON=10s",
		strings.TrimSpace("GOFLAGS="+os.Getenv("GOFLAGS")+" -overlay="+overlay))
	out, err := cmd.Output()
	if _, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok {
		return "", err
	}
	return judge(out, m.Found)
}

// judge reads go test's JSON lines and reports whether a test failed.
func judge(out []byte, maySkip bool) (string, error) {
	ran := 0
	var text strings.Builder
	for line := range strings.Lines(string(out)) {
		var event struct{ Action, Test, Output, FailedBuild string }
		if json.Unmarshal([]byte(line), &event) != nil {
			continue
		}
		text.WriteString(event.Output)
		switch {
		case event.Action == "run":
			ran++
		case event.FailedBuild != "":
			return "", fmt.Errorf("%w:\n%s", errNoBuild, text.String())
		case event.Action == "skip" && event.Test != "" && !maySkip:
			return "", fmt.Errorf("%s was skipped:\n%s", event.Test, text.String())
		case event.Action == "fail" && event.Test != "":
			return "found by " + event.Test, nil
		case event.Action == "fail" && ran > 0:
			return "found by a panic or by the time limit", nil
		}
	}
	if ran == 0 {
		return "", fmt.Errorf("no test ran:\n%s", text.String())
	}
	return "", errSurvived
}

var errNoBuild = errors.New("the mutated code does not compile")
