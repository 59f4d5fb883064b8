// Command again owns the second attempt at tests that failed while a program of their lab had a known fault:
// ovs-vswitchd 3.1 aborts by an assertion of its connection tracking, about once in an hour of policy tests, and
// ovn-controller 23.03 loses OpenFlow rules, which come when it computes all of them anew.
//
//	go run ./hack/again go test -run REGEXP ./e2e
//
// It runs the command and shows its output. If each failed test says that it has to be repeated, the command runs once
// more with these tests alone, and its exit code is that of the second run.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"time"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout)) }

func run(command []string, out io.Writer) int {
	code, text := once(command, out)
	if tests := repeated(text); code != 0 && len(tests) > 0 {
		fmt.Fprintln(out, "again: a known fault of OVN or Open vSwitch; repeating", strings.Join(tests, ", "))
		code, _ = once(append(slices.Clone(command), "-run", "^("+strings.Join(tests, "|")+")$"), out)
	}
	return code
}

// waitDelay is how long the output may stay open after the command has ended. A process that a test has left behind
// would keep it open for ever.
var waitDelay = time.Minute

// once runs a command, and returns its exit code and its output.
func once(command []string, out io.Writer) (code int, text string) {
	var copied bytes.Buffer
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, io.MultiWriter(out, &copied), os.Stderr
	cmd.WaitDelay = waitDelay
	err := cmd.Run()
	if errors.Is(err, exec.ErrWaitDelay) {
		err = fmt.Errorf("a process that the tests have left behind keeps their output open: %w", err)
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode(), copied.String()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "again:", err)
		return 2, ""
	}
	return 0, copied.String()
}

var (
	failed = regexp.MustCompile(`(?m)^--- FAIL: (\w+)`)
	again  = regexp.MustCompile(`repeat (\w+): it failed, and `) // e2e/lab writes this
	// cutOff matches what go test says if not all tests have run to their end.
	cutOff = regexp.MustCompile(
		`(?m)^(panic: |fatal error: |signal: |exit status ([2-9]|\d\d))|\[(build|setup) failed\]`)
)

// repeated returns the failed tests, if each of them has to be repeated, and all tests have run.
func repeated(text string) (tests []string) {
	if cutOff.MatchString(text) {
		return nil
	}
	for _, m := range failed.FindAllStringSubmatch(text, -1) {
		tests = append(tests, m[1])
	}
	slices.Sort(tests)
	tests = slices.Compact(tests)
	marked := map[string]bool{}
	for _, m := range again.FindAllStringSubmatch(text, -1) {
		marked[m[1]] = true
	}
	if slices.ContainsFunc(tests, func(name string) bool { return !marked[name] }) {
		return nil
	}
	return tests
}
