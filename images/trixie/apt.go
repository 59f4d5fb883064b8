// Package trixie owns programs of Debian 13 (trixie) on a machine that has another release. It installs nothing: the
// packages are unpacked into a folder of the cache, and their programs run with their own libraries.
package trixie

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/dsnet/try"
	"golang.org/x/sync/errgroup"

	"github.com/ovn-multinet/ovn-multinet/images"
)

const (
	suite   = "trixie"
	keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"
)

// apt is an apt of its own: it knows the machine's mirror and nothing else of it, and installs nothing.
type apt struct {
	dir  string
	arch string // of the packages
}

// newApt makes its folder, with the suite at the mirror as its only source.
func newApt(ctx context.Context, dir, arch string) (_ *apt, err error) {
	defer try.Handle(&err)
	if _, err := os.Stat(keyring); err != nil {
		return nil, fmt.Errorf("the keys of Debian's archive (package debian-archive-keyring): %w", err)
	}
	a := &apt{dir, arch}
	for _, sub := range []string{"lists/partial", "cache/archives/partial", "machine/partial"} {
		try.E(os.MkdirAll(filepath.Join(dir, sub), 0o755))
	}
	mirrors := try.E1(a.mirrors(ctx))
	acquire := try.E1(acquireSettings(ctx))
	var refused error
	for _, mirror := range mirrors {
		err := a.use(ctx, mirror, acquire)
		if err == nil {
			return a, nil
		}
		refused = errors.Join(refused, err)
	}
	return nil, fmt.Errorf("none of this machine's apt sources has Debian's %s: %w", suite, refused)
}

// mirrors lists where the machine gets Debian from. Its lists may never have been fetched: then they are, into our
// folder.
func (a *apt) mirrors(ctx context.Context) (_ []string, err error) {
	defer try.Handle(&err)
	for _, lists := range []string{"", filepath.Join(a.dir, "machine")} {
		var args []string
		if lists != "" {
			args = []string{"-o", "Dir::State::lists=" + lists, "-o", "APT::Sandbox::User=root"}
			try.E1(Output(ctx, "apt-get", append(args, "-q", "update")...))
		}
		list := append(args, "indextargets", "--format", "$(ORIGIN) $(LABEL) $(REPO_URI)", "Created-By: Packages")
		out := try.E1(Output(ctx, "apt-get", list...))
		var found []string
		seen := map[string]bool{}
		for line := range strings.Lines(out) {
			// The security archive has another label.
			uri, ok := strings.CutPrefix(strings.TrimSpace(line), "Debian Debian ")
			if ok && !seen[uri] {
				seen[uri] = true
				found = append(found, uri)
			}
		}
		if len(found) > 0 {
			return found, nil
		}
	}
	return nil, errors.New("this machine's apt has no source of Debian")
}

// acquireSettings are the machine's own for downloads: proxies, time-outs, checks.
func acquireSettings(ctx context.Context) (string, error) {
	out, err := Output(ctx, "apt-config", "dump", "Acquire")
	if err != nil {
		return "", err
	}
	var kept strings.Builder
	for line := range strings.Lines(out) {
		if !strings.HasPrefix(line, "Acquire::IndexTargets") && !strings.HasPrefix(line, "Acquire::Languages") {
			kept.WriteString(line)
		}
	}
	return kept.String(), nil
}

// use writes the configuration for a mirror and fetches its lists.
func (a *apt) use(ctx context.Context, mirror, acquire string) error {
	source := fmt.Sprintf("deb [signed-by=%s] %s %s main\n", keyring, mirror, suite)
	// What else apt reads is replaced, since its hooks would run too.
	config := fmt.Sprintf(`%[2]s
Dir::Etc::Main "/dev/null";
Dir::Etc::Parts "/dev/null";
Dir::Etc::SourceList "%[1]s/sources.list";
Dir::Etc::SourceParts "/dev/null";
Dir::Etc::Preferences "/dev/null";
Dir::Etc::PreferencesParts "/dev/null";
Dir::State "%[1]s";
Dir::State::lists "%[1]s/lists";
Dir::State::status "%[1]s/status";
Dir::Cache "%[1]s/cache";
Dir::Log "%[1]s";
Debug::NoLocking "true";
APT::Architecture "%[3]s";
APT::Architectures { "%[3]s"; };
APT::Sandbox::User "root";
Acquire::Languages "none";
`, a.dir, acquire, a.arch)
	for name, text := range map[string]string{"sources.list": source, "apt.conf": config, "status": ""} {
		if err := os.WriteFile(filepath.Join(a.dir, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	_, err := a.get(ctx, "update")
	return err
}

func (a *apt) get(ctx context.Context, args ...string) (string, error) {
	env := []string{"APT_CONFIG=" + filepath.Join(a.dir, "apt.conf")}
	return Run(ctx, env, "apt-get", append([]string{"-q", "-y"}, args...)...)
}

// unpack fetches the packages, with what they need, and unpacks them all into one tree. It returns them all.
func (a *apt) unpack(ctx context.Context, tree string, packages []string) (_ []Package, err error) {
	defer try.Handle(&err)
	args := append([]string{"install", "--download-only", "--no-install-recommends"}, packages...)
	try.E1(a.get(ctx, args...))
	files := try.E1(filepath.Glob(filepath.Join(a.dir, "cache", "archives", "*.deb")))
	try.E(os.MkdirAll(tree, 0o755))
	var all errgroup.Group
	all.SetLimit(runtime.NumCPU())
	unpacked := make([]Package, len(files))
	for i, file := range files {
		// name_version_architecture.deb, with an escaped colon
		parts := strings.Split(strings.ReplaceAll(strings.TrimSuffix(filepath.Base(file), ".deb"), "%3a", ":"), "_")
		all.Go(func() error {
			listed, err := Output(ctx, "dpkg", "--vextract", file, tree)
			unpacked[i].Package = images.Package{Name: parts[0], Version: parts[1], Arch: parts[2]}
			for line := range strings.Lines(listed) { // as "./usr/bin/ovs-vsctl"
				unpacked[i].Paths = append(unpacked[i].Paths, filepath.Clean(strings.TrimSpace(line)))
			}
			return err
		})
	}
	return unpacked, all.Wait()
}

// Output runs a program to its end and returns what it printed; its complaints are in the error.
func Output(ctx context.Context, name string, args ...string) (string, error) {
	return Run(ctx, nil, name, args...)
}

// Run is Output with more variables of the environment.
func Run(ctx context.Context, env []string, name string, args ...string) (string, error) {
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s: %w: %s", filepath.Base(name), err, bytes.TrimSpace(stderr.Bytes()))
	}
	return stdout.String(), nil
}
