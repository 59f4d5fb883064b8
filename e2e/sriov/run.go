package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/dsnet/try"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
	"github.com/ovn-multinet/ovn-multinet/images/trixie"
)

type options struct {
	run      string
	verbose  bool
	timeout  time.Duration
	shell    string
	sriovCNI string // path of the sriov plugin; "" for none
}

// first is the guest's first process.
//
//go:embed init.sh
var first []byte

func (o options) main(ctx context.Context) (_ int, err error) {
	defer try.Handle(&err)
	began := time.Now()
	b := try.E1(prepare(ctx))
	initrd := try.E1(o.initrd(ctx, b))
	defer initrd.Close()
	fmt.Printf("the guest: %s; built in %.1f s\n", b.versions, time.Since(began).Seconds())
	ctx, cancel := context.WithTimeoutCause(ctx, o.timeout, fmt.Errorf("it took more than %v", o.timeout))
	defer cancel()
	s := &summary{verbose: o.verbose, out: os.Stdout}
	code, err := boot(ctx, b.tree, b.kernel, initrd, s.line)
	if err != nil || o.shell != "" {
		return code, err
	}
	return s.end(code, time.Since(began)), nil
}

// initrd is the guest's first file system: the cached part, and after it what this run adds.
func (o options) initrd(ctx context.Context, b *base) (_ *os.File, err error) {
	defer try.Handle(&err)
	files := try.E1(build(ctx))
	if o.sriovCNI != "" {
		files["e2e/cni/sriov"] = o.sriovCNI
	}
	f := try.E1(memoryFile("initrd"))
	if err := errors.Join(appendFile(f, b.image), appendRun(f, files, o.order())); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func appendFile(to io.Writer, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(to, f)
	return err
}

// appendRun adds an archive with the files, by their names in the guest, and the order.
func appendRun(to io.Writer, files map[string]string, order []byte) error {
	a := newArchive(to)
	for name, from := range files {
		content, err := os.ReadFile(from)
		if err != nil {
			return err
		}
		a.file(name, 0o755, content)
	}
	a.file("init", 0o755, first)
	a.file("e2e/order", 0o644, order)
	return a.close()
}

// order is a script that runs in the guest once the virtual functions are there.
func (o options) order() []byte {
	words := []string{
		"exec", "env", "-i", "HOME=/root", "PATH=/usr/local/bin:/usr/bin:/usr/sbin",
		"OVN_MULTINET_BIN=/e2e/bin", "OVN_MULTINET_LAB_CNI=/e2e/cni",
	}
	if o.sriovCNI != "" {
		words = append(words, "SRIOV_CNI=/e2e/cni/sriov")
	}
	if o.shell != "" {
		words = append(words, "/usr/bin/busybox", "sh", "-c", o.shell)
	} else {
		words = append(words, "/e2e/scenarios", "-test.v", "-test.timeout="+o.timeout.String(), "-test.run="+o.run)
	}
	for i, word := range words {
		words[i] = "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
	}
	return []byte(strings.Join(words, " ") + " 2>&1\n")
}

// unused programs of ours need not take the guest's memory.
var unused = []string{"kubectl-multinet", "ovn-multinet-install"}

// build brings what the guest runs of ours up to date. It returns the files by their names in the guest.
func build(ctx context.Context) (_ map[string]string, err error) {
	defer try.Handle(&err)
	bins := try.E1(lab.Build(ctx, lab.BuildOptions{}))
	root := try.E1(lab.ModuleRoot())
	// Beside the project's own, which is a folder per clone.
	dir := bins.Ours + "-sriov"
	try.E(os.MkdirAll(dir, 0o755))
	files := map[string]string{"e2e/scenarios": filepath.Join(dir, "scenarios")}
	try.E(buildTest(ctx, root, files["e2e/scenarios"]))
	for folder, from := range map[string]string{"e2e/bin": bins.Ours, "e2e/cni": bins.CNI} {
		entries := try.E1(os.ReadDir(from))
		for _, e := range entries {
			if slices.Contains(unused, e.Name()) {
				continue
			}
			files[path.Join(folder, e.Name())] = filepath.Join(from, e.Name())
		}
	}
	return files, nil
}

func buildTest(ctx context.Context, root, to string) error {
	_, err := trixie.Run(ctx, []string{"CGO_ENABLED=0", "GOWORK=off"}, "go", "-C", root, "test", "-c", "-buildvcs=false", "-tags", "sriov", "-ldflags=-s -w",
		"-o", to, "./e2e/sriov/scenarios")
	if err != nil {
		return fmt.Errorf("build the scenarios: %w", err)
	}
	return nil
}

// summary counts what a test binary prints with -test.v. Of scenarios that consist of parts the parts count.
type summary struct {
	verbose        bool
	out            io.Writer
	passed, failed int
	notRun         []string
	last           string // result line, not counted yet: the next one may be of a part of it
}

func (s *summary) line(text string) {
	trimmed := strings.TrimLeft(text, " ")
	switch {
	case strings.HasPrefix(trimmed, "--- "):
		s.count(text)
	case strings.HasPrefix(trimmed, "not run: "):
		s.notRun = append(s.notRun, trimmed)
		return
	}
	if s.verbose || !strings.HasPrefix(text, "=== ") {
		fmt.Fprintln(s.out, text)
	}
}

// count counts the result line before, now that the next one is known.
func (s *summary) count(next string) {
	switch before := strings.TrimLeft(s.last, " "); {
	case strings.Index(next, "-") > strings.Index(s.last, "-") && s.last != "":
	case strings.HasPrefix(before, "--- PASS"):
		s.passed++
	case before != "":
		s.failed++
	}
	s.last = next
}

// end prints the closing lines and returns the runner's code.
func (s *summary) end(code int, took time.Duration) int {
	s.count("")
	for _, n := range s.notRun {
		fmt.Fprintln(s.out, n)
	}
	fmt.Fprintf(s.out, "%d scenarios: %d passed, %d failed, %d not run, in %.0f s\n", s.passed+s.failed, s.passed, s.failed, len(s.notRun), took.Seconds())
	if code == 0 && s.passed+s.failed == 0 {
		fmt.Fprintln(s.out, "no scenario ran")
	}
	if code == 0 && (s.passed == 0 || s.failed > 0) {
		return 1
	}
	return code
}
