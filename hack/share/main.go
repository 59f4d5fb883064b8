// Command share owns which of a package's tests run this time, where all of them take too long:
//
//	go run ./hack/share N PACKAGE [TAGS]
//
// It prints a -run pattern for about one test in N. The tests in files that changed come first. The
// others take turns by the day and by the content of the tree, so N days on one tree run all. It
// prints to stderr what it took. SHARE=TURN in the environment repeats a turn on the same tree.
package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

func main() {
	pattern, err := run(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "share:", err)
		os.Exit(1)
	}
	fmt.Println(pattern)
}

func run(args []string) (string, error) {
	if len(args) < 2 {
		return "", errors.New("usage: share N PACKAGE [TAGS]")
	}
	shares, err := strconv.Atoi(args[0])
	if err != nil || shares < 1 {
		return "", fmt.Errorf("%q is no number of shares", args[0])
	}
	tree, err := output("git", "rev-parse", "HEAD^{tree}")
	if err != nil {
		return "", err
	}
	day := time.Now().Unix() / (24 * 60 * 60)
	turn, err := chooseTurn(os.Getenv("SHARE"), day, tree)
	if err != nil {
		return "", err
	}
	from := base()
	changed, others, err := tests(args[1], strings.Join(args[2:], ","), from)
	if err != nil {
		return "", err
	}
	chosen := choose(changed, others, shares, turn)
	if len(chosen) == 0 {
		return "", fmt.Errorf("%s has too few tests for %d shares", args[1], shares)
	}
	fmt.Fprintf(os.Stderr, "share: %d of %d tests of %s, of which %d changed since %s; SHARE=%d (day %d, tree %.12s)\n",
		len(chosen), len(changed)+len(others), args[1], len(changed), cmp.Or(from, "no base"), turn, day, tree)
	// make reads a $ as a variable.
	return "^(" + strings.Join(chosen, "|") + `)\z`, nil
}

// chooseTurn returns the turn of a day and a tree, or the one that was set by hand. The next day is the next turn.
func chooseTurn(byHand string, day int64, tree string) (int, error) {
	if byHand != "" {
		turn, err := strconv.ParseUint(byHand, 10, 31)
		return int(turn), err
	}
	content, err := strconv.ParseUint(tree[:4], 16, 31)
	return int(day) + int(content), err
}

// choose returns the tests of a turn, about one in shares of them all. The changed tests come first,
// the others have the room beside them. Few changes are rounded away: they cost the others no turn.
func choose(changed, others []string, shares, turn int) []string {
	size := (len(changed) + len(others) + shares - 1) / shares
	chosen := oneIn((len(changed)+size-1)/max(size, 1), changed, turn)
	if room := size - len(chosen); room > 0 {
		chosen = append(chosen, oneIn((len(others)+room/2)/room, others, turn)...)
	}
	return chosen
}

// oneIn returns one in n of the tests. Each test has its turn once in n turns.
func oneIn(n int, all []string, turn int) (chosen []string) {
	for i, name := range all {
		if (i-turn)%max(n, 1) == 0 {
			chosen = append(chosen, name)
		}
	}
	return chosen
}

// base returns the commit that the tree is compared with: the last one that the upstream has too,
// or else the one before this commit. A clone of depth 1 has neither, which is "".
func base() string {
	head, _ := output("git", "rev-parse", "HEAD")
	for _, upstream := range []string{"@{upstream}", "origin/HEAD"} {
		if from, err := output("git", "merge-base", "HEAD", upstream); err == nil && from != head {
			return from
		}
	}
	before, _ := output("git", "rev-parse", "--verify", "--quiet", "HEAD~1")
	return before
}

var testFunc = regexp.MustCompile(`(?m)^func (Test\w*)\(\w+ \*testing\.T\)`)

// tests returns the names of a package's tests: those in files that changed since a commit, and the others.
func tests(pkg, tags, from string) (changed, others []string, err error) {
	list, err := output("go", "list", "-tags", tags, "-f",
		`{{.Dir}}{{range .TestGoFiles}}{{"\n"}}{{.}}{{end}}{{range .XTestGoFiles}}{{"\n"}}{{.}}{{end}}`, pkg)
	if err != nil {
		return nil, nil, err
	}
	dir, files, _ := strings.Cut(list, "\n")
	var edited []string
	if from != "" {
		names, err := output("git", "-C", dir, "diff", "--name-only", "--relative", from, "--", ".")
		if err != nil {
			return nil, nil, err
		}
		edited = strings.Fields(names)
	}
	for _, file := range strings.Fields(files) {
		text, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			return nil, nil, err
		}
		for _, found := range testFunc.FindAllSubmatch(text, -1) {
			if slices.Contains(edited, file) {
				changed = append(changed, string(found[1]))
			} else {
				others = append(others, string(found[1]))
			}
		}
	}
	return changed, others, nil
}

func output(name string, args ...string) (string, error) {
	out, err := exec.Command(name, args...).Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return "", fmt.Errorf("%s %s: %s", name, args[0], strings.TrimSpace(string(exit.Stderr)))
	}
	return strings.TrimSpace(string(out)), err
}
