// Command release makes the files of a release from the last commit of the tree that it runs in:
//
//	release -version 0.1.0 -images ghcr.io/you -out DIR
//
// CONTRIBUTING.md lists the files. The same commit and the same Go make the same bytes in every folder and at any time.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// run makes a release in the tree of the working folder and prints the paths of its files.
func run(ctx context.Context, args []string, stdout io.Writer) error {
	r := release{root: ".", scope: everything()}
	flags := flag.NewFlagSet("release", flag.ContinueOnError)
	flags.StringVar(&r.version, "version", "", "the version, which internal/version/VERSION also has")
	flags.StringVar(&r.prefix, "images", "localhost", "the registry and folder of the images, such as ghcr.io/you")
	flags.StringVar(&r.tags, "tags", "", "the build tags of the programs")
	flags.StringVar(&r.out, "out", "", "the folder for the files")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 || r.out == "" {
		return errors.New("usage: release -version VERSION -out DIR [-images PREFIX] [-tags TAGS]")
	}
	out, err := filepath.Abs(r.out)
	if err != nil {
		return err
	}
	r.out = out
	if err := r.check(); err != nil {
		return err
	}
	if err := r.write(ctx); err != nil {
		return err
	}
	files, err := os.ReadDir(r.out)
	for _, f := range files {
		fmt.Fprintln(stdout, filepath.Join(r.out, f.Name()))
	}
	return err
}

var (
	// semver is Semantic Versioning 2.0.0 without build metadata, which the tag of an image cannot have.
	semver = func() *regexp.Regexp {
		const number, word = `(0|[1-9]\d*)`, `(0|[1-9]\d*|\d*[A-Za-z-][0-9A-Za-z-]*)`
		return regexp.MustCompile(`^` + number + `\.` + number + `\.` + number + `(-` + word + `(\.` + word + `)*)?$`)
	}()
	registry = regexp.MustCompile(`^[a-z0-9]+([.-][a-z0-9]+)*(:\d+)?(/[a-z0-9]+([._-]+[a-z0-9]+)*)*$`)
)

// check returns an error if the release cannot be made. It writes nothing.
func (r *release) check() error {
	if !semver.MatchString(r.version) {
		return fmt.Errorf("VERSION is %q, which is not a semantic version such as 0.1.0", r.version)
	}
	text, err := os.ReadFile(filepath.Join(r.root, "internal", "version", "VERSION"))
	if err != nil {
		return err
	}
	if tree := strings.TrimSpace(string(text)); tree != r.version {
		return fmt.Errorf("VERSION is %s, but internal/version/VERSION has %s: write and commit the same version there",
			r.version, tree)
	}
	if !registry.MatchString(r.prefix) {
		return fmt.Errorf("IMAGES is %q, which is not a registry such as ghcr.io/you", r.prefix)
	}
	changed, err := output(r.root, nil, "git", "status", "--porcelain", "--untracked-files=no")
	if err != nil {
		return err
	}
	if changed != "" {
		first, _, _ := strings.Cut(changed, "\n")
		return fmt.Errorf("a release is made from the last commit: commit your changes first (%s)", strings.TrimSpace(first))
	}
	return replaceable(r.out)
}
