package main

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func numbered(name string, n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprint(name, i))
	}
	return names
}

// Of a tree, N turns in a row run each test once, and the changed tests each time that they fit.
func TestChoose(t *testing.T) {
	for _, c := range []struct{ changed, others, shares, turns, largest int }{
		{0, 224, 2, 2, 112},
		{0, 225, 4, 4, 57},
		{0, 3, 2, 2, 2},
		{0, 2, 4, 2, 1}, // no share is empty
		{4, 220, 2, 2, 114},
		{10, 214, 8, 12, 28},
		{112, 112, 2, 0, 112}, // no room for others
		{150, 74, 2, 2, 112},
		{224, 0, 4, 4, 56},
	} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			changed, others := numbered("Changed", c.changed), numbered("Other", c.others)
			ran := map[string]int{}
			for turn := 20784; turn < 20784+max(c.turns, 1); turn++ {
				chosen := choose(changed, others, c.shares, turn)
				if !slices.Equal(chosen, choose(changed, others, c.shares, turn)) {
					t.Error("the same turn chose other tests")
				}
				if len(chosen) > c.largest {
					t.Errorf("turn %d has %d tests, want at most %d", turn, len(chosen), c.largest)
				}
				if first := min(c.changed, c.largest*2/3); first > 0 && !strings.HasPrefix(chosen[0], "Changed") {
					t.Errorf("turn %d begins with %s", turn, chosen[0])
				}
				for _, name := range chosen {
					ran[name]++
				}
			}
			each := map[string]int{}
			for _, name := range others {
				if c.turns > 0 {
					each[name] = 1
				}
			}
			for _, name := range changed {
				each[name] = max(c.turns, 1)
				if c.changed > c.largest {
					each[name] = 1
				}
			}
			if !maps.Equal(ran, each) {
				t.Errorf("%d turns ran %v, want %v", c.turns, ran, each)
			}
		})
	}
}

func TestChooseTurn(t *testing.T) {
	const tree = "00ff5330878a3000000000000000000000000000"
	for _, c := range []struct {
		name, byHand, tree string
		day                int64
		want               int
	}{
		{"a day", "", tree, 20784, 20784 + 255},
		{"the next day is the next turn", "", tree, 20785, 20785 + 255},
		{"other content", "", "0100" + tree[4:], 20784, 20784 + 256},
		{"by hand", "7", tree, 20784, 7},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got, err := chooseTurn(c.byHand, c.day, c.tree); err != nil || got != c.want {
				t.Errorf("%d, %v, want %d", got, err, c.want)
			}
		})
	}
	for _, wrong := range []string{"-1", "x", "99999999999"} {
		if turn, err := chooseTurn(wrong, 20784, tree); err == nil {
			t.Errorf("SHARE=%s is turn %d", wrong, turn)
		}
	}
}

// A tree of three tests, in clones that know more or less of its past.
func TestTestsOfClones(t *testing.T) {
	t.Setenv("GIT_CONFIG_GLOBAL", os.DevNull)
	origin, clone := t.TempDir(), filepath.Join(t.TempDir(), "clone")
	git := func(dir string, args ...string) {
		t.Helper()
		args = append([]string{"-c", "user.name=x", "-c", "user.email=x@example.org"}, args...)
		cmd := exec.Command("git", args...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %s: %v: %s", args, err, out)
		}
	}
	commit := func(dir, file, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		git(dir, "add", ".")
		git(dir, "commit", "-m", file)
	}
	test := func(name string) string {
		return "package p\n\nimport \"testing\"\n\nfunc Test" + name + "(t *testing.T) {}\n"
	}
	git(origin, "init", "-b", "main")
	commit(origin, "go.mod", "module example.org/p\n\ngo 1.26\n")
	commit(origin, "a_test.go", test("A")+"func TestMain(m *testing.M) { m.Run() }\n")
	commit(origin, "b_test.go", "//go:build slow\n\n"+test("B"))
	commit(origin, "c_test.go", test("C"))
	want := func(dir, tags, changed, others string) {
		t.Helper()
		t.Chdir(dir)
		gotChanged, gotOthers, err := tests(".", tags, base())
		if err != nil || fmt.Sprint(gotChanged) != changed || fmt.Sprint(gotOthers) != others {
			t.Errorf("changed %v, others %v, %v, want %s and %s", gotChanged, gotOthers, err, changed, others)
		}
	}
	want(origin, "slow", "[TestC]", "[TestA TestB]")
	want(origin, "", "[TestC]", "[TestA]")
	git(origin, "clone", "--depth=1", "file://"+origin, clone)
	want(clone, "slow", "[]", "[TestA TestB TestC]")
	git(clone, "fetch", "--unshallow")
	want(clone, "slow", "[TestC]", "[TestA TestB]")
	commit(clone, "a_test.go", test("A"))
	commit(clone, "other.go", "package p\n")
	want(clone, "slow", "[TestA]", "[TestB TestC]")
	git(clone, "checkout", "--detach")
	git(clone, "remote", "remove", "origin")
	git(clone, "branch", "-D", "main")
	want(clone, "slow", "[]", "[TestA TestB TestC]")
}
