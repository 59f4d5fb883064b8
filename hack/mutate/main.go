// Command mutate owns the proof that tests can fail: it breaks the code in one place at a time and runs the tests. It
// does not change the work tree.
//
//	go run ./hack/mutate [-run REGEXP] [-within DURATION] [-j N] [LIST.yaml...]
//	go run ./hack/mutate -find [-within DURATION] [-j N] FOLDER...
//
// The first form applies the mutations of the lists (default: hack/mutate/*.yaml) and exits with 1 when one survives.
// It refuses a list with a mutation that does not compile. The second form finds the places itself, runs the package's
// own tests and reports the mutations that survive. A survivor is a hint and no defect, so the exit code stays 0.
//
// With -within, mutate starts no mutation after that time and takes them in random order. It remembers each mutation
// that a test found, until the code or the tests change.
package main

import (
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
)

func main() {
	only := flag.String("run", "", "apply only the mutations whose name matches")
	find := flag.Bool("find", false, "find places in the packages of these folders")
	within := flag.Duration("within", 0, "start no mutation after this time; 0: apply all")
	// Many tests find a mutation by waiting for a deadline, so more tests than cores run at once.
	jobs := flag.Int("j", 2*runtime.NumCPU(), "mutations at once")
	flag.Parse()
	mutations, err := choose(*find, *only, flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(2)
	}
	survivors, err := run(mutations, *within, *jobs)
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(2)
	}
	if survivors > 0 && !*find {
		os.Exit(1)
	}
}

// choose returns the mutations of the lists, or those of the folders.
func choose(find bool, only string, args []string) ([]mutation, error) {
	root, err := moduleRoot()
	if err != nil {
		return nil, err
	}
	if err := os.Chdir(root); err != nil {
		return nil, err
	}
	pattern, err := regexp.Compile(only)
	if err != nil {
		return nil, err
	}
	source := listed
	if find {
		source = places
	}
	mutations, err := source(args)
	if err != nil {
		return nil, err
	}
	mutations = slices.DeleteFunc(mutations, func(m mutation) bool { return !pattern.MatchString(m.Name) })
	if len(mutations) == 0 {
		return nil, errors.New("no mutation matches")
	}
	if find {
		return mutations, nil // some do not compile, which the run leaves out
	}
	return mutations, compile(mutations)
}

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

// run applies the mutations, prints one line for each and returns the number of survivors.
func run(mutations []mutation, within time.Duration, jobs int) (survivors int, err error) {
	until := time.Now().Add(within)
	if within > 0 {
		rand.Shuffle(len(mutations), func(i, j int) { mutations[i], mutations[j] = mutations[j], mutations[i] })
	}
	cache, err := openCache()
	if err != nil {
		return 0, err
	}
	var mu sync.Mutex // of the counters and of the output
	found, late, skipped := 0, 0, 0
	var g errgroup.Group
	g.SetLimit(jobs)
	for i := range mutations {
		g.Go(func() error {
			m, begin := &mutations[i], time.Now()
			if within > 0 && begin.After(until) {
				mu.Lock()
				defer mu.Unlock()
				skipped++
				return nil
			}
			verdict, err := m.try(cache)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case m.Found && errors.Is(err, errNoBuild):
			case err != nil:
				survivors++
				fmt.Printf("FAIL  %s: %v\n", m, err)
			default:
				found++
				if strings.HasSuffix(verdict, notAtFirst) {
					late++
				}
				fmt.Printf("ok    %s: %s (%.1fs)\n", m.Name, verdict, time.Since(begin).Seconds())
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return 0, err
	}
	fmt.Printf("%d found, %d not found", found, survivors)
	if late > 0 {
		fmt.Printf(", %d found at a later try", late)
	}
	if skipped > 0 {
		fmt.Printf(", %d of %d not tried within %v", skipped, len(mutations), within)
	}
	fmt.Println()
	return survivors, nil
}
