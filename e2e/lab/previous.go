package lab

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/ovn-multinet/ovn-multinet/internal/buildcache"
)

// previousFile has the commit of the version before this one. Lines that begin with # are comments.
const previousFile = "internal/version/PREVIOUS"

// previousEnv is the folder of the previous version, told to the inner process.
const previousEnv = "OVN_MULTINET_LAB_PREVIOUS"

// Previous is the version before this one.
type Previous struct {
	Source string // its tree, as it was committed
	Lab    string // folder of its programs as a lab runs ours, with failpoints
	Ship   string // folder of its programs as they are shipped
}

// The flags that the programs are built with: a lab's, as buildOurs has them, and the Makefile's. The Makefile of the
// previous version may say otherwise: flags change what a program weighs, not what it speaks.
var (
	labFlags  = []string{"-tags", "failpoint,grpcnotrace"}
	shipFlags = []string{"-trimpath", "-tags", "grpcnotrace", "-ldflags=-s -w"}
)

// WithPrevious has [Main] or [Enter] build the previous version before, where the network is still the machine's.
func WithPrevious() EnterOption {
	return Around(func(ctx context.Context) (func() error, error) {
		p, err := BuildPrevious(ctx)
		if err != nil {
			return nil, err
		}
		return nil, os.Setenv(previousEnv, filepath.Dir(p.Source))
	})
}

// BuildPrevious makes the previous version's programs from git's history, once, in the cache folder. It needs the network
// when the clone is a shallow one, or when Go's cache does not have the modules of then. Builds of several processes take turns.
func BuildPrevious(ctx context.Context) (*Previous, error) {
	if dir := os.Getenv(previousEnv); dir != "" {
		return previousIn(dir), nil
	}
	root, err := ModuleRoot()
	if err != nil {
		return nil, err
	}
	cache, err := buildcache.Dir()
	if err != nil {
		return nil, err
	}
	cache = filepath.Join(cache, "previous")
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return nil, err
	}
	unlock, err := buildcache.LockFile(filepath.Join(cache, "build.lock"))
	if err != nil {
		return nil, err
	}
	defer unlock()
	h := history{root: root, cache: cache}
	if h.commit, err = h.previous(ctx); err != nil {
		return nil, err
	}
	return h.build(ctx, labFlags, shipFlags)
}

func previousIn(dir string) *Previous {
	return &Previous{Source: filepath.Join(dir, "source"), Lab: filepath.Join(dir, "lab"), Ship: filepath.Join(dir, "ship")}
}

// history is where an older version comes from. The clone in root is only read, its work tree, its index and what else git
// keeps for it: it may be somebody else's.
type history struct{ root, cache, commit string }

// previous returns the commit of the version before this one, which nodes are upgraded from and may go back to. It is the
// last git tag v* before HEAD. A clone without such a tag, and a shallow clone, use the commit in previousFile.
func (h history) previous(ctx context.Context) (string, error) {
	tag, err := h.git(ctx, h.root, "describe", "--tags", "--abbrev=0", "--match=v[0-9]*", "HEAD^")
	if err == nil {
		return h.git(ctx, h.root, "rev-parse", "--verify", tag+"^{commit}")
	}
	text, err := os.ReadFile(filepath.Join(h.root, previousFile))
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			return line, nil
		}
	}
	return "", fmt.Errorf("%s has no commit", previousFile)
}

// build makes the folder of the commit, which appears by a rename: it is there whole or not at all.
func (h history) build(ctx context.Context, lab, ship []string) (*Previous, error) {
	key := digest(fmt.Append(nil, h.commit, lab, ship))
	dir := filepath.Join(h.cache, h.commit[:12]+"-"+key)
	if _, err := os.Stat(dir); err == nil {
		return previousIn(dir), nil
	}
	p := previousIn(dir + ".new")
	if err := os.RemoveAll(filepath.Dir(p.Source)); err != nil {
		return nil, err
	}
	for _, folder := range []string{p.Source, p.Lab, p.Ship} {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return nil, err
		}
	}
	if err := h.export(ctx, p.Source); err != nil {
		return nil, err
	}
	for out, flags := range map[string][]string{p.Lab: append(lab, "./e2e/recorder"), p.Ship: ship} {
		args := append([]string{"-o", out + "/"}, flags...)
		if err := GoBuild(ctx, p.Source, append(args, "./cmd/...")...); err != nil {
			return nil, fmt.Errorf("the version before this one: %w", err)
		}
	}
	return previousIn(dir), os.Rename(filepath.Dir(p.Source), dir)
}

// export writes the commit's tree into a folder.
func (h history) export(ctx context.Context, into string) error {
	repository := h.root
	if _, err := h.git(ctx, repository, "cat-file", "-e", h.commit+"^{commit}"); err != nil {
		if repository, err = h.fetch(ctx); err != nil {
			return fmt.Errorf("the version before this one, commit %.12s, is not in this clone and cannot be fetched; run: git fetch --unshallow (%w)", h.commit, err)
		}
	}
	archive := h.command(ctx, repository, "archive", "--format=tar", h.commit)
	untar := exec.CommandContext(ctx, "tar", "-x", "--no-same-owner", "-C", into)
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	var said, untarSaid bytes.Buffer
	archive.Stdout, archive.Stderr, untar.Stdin, untar.Stderr = w, &said, r, &untarSaid
	err = untar.Start()
	if err == nil {
		err = archive.Start()
		// The other ends are theirs alone: so each notices when the other one ends.
		_, _ = r.Close(), w.Close()
		if err == nil {
			err = archive.Wait()
		}
		err = errors.Join(err, untar.Wait())
	}
	if err != nil {
		return fmt.Errorf("export commit %.12s: %w: %s", h.commit, err, oneLine(said.String()+" "+untarSaid.String()))
	}
	return nil
}

// fetch brings the commit alone from where the clone came from, into a repository of the cache's own.
func (h history) fetch(ctx context.Context) (repository string, err error) {
	url, err := h.git(ctx, h.root, "remote", "get-url", "origin")
	if err != nil {
		return "", err
	}
	repository = filepath.Join(h.cache, "fetched.git")
	if _, err := os.Stat(repository); errors.Is(err, fs.ErrNotExist) {
		if _, err := h.git(ctx, "", "init", "--quiet", "--bare", repository); err != nil {
			return "", err
		}
	}
	if _, err := h.git(ctx, repository, "cat-file", "-e", h.commit+"^{commit}"); err == nil {
		return repository, nil // fetched before
	}
	// The address may be a path, which is as seen from the clone.
	if local := filepath.Join(h.root, url); !filepath.IsAbs(url) {
		if _, err := os.Stat(local); err == nil {
			url = local
		}
	}
	_, err = h.git(ctx, repository, "fetch", "--quiet", "--depth=1", url, h.commit)
	return repository, err
}

// git runs git on a repository and returns what it printed, trimmed. What it complains about is the error, on one line.
func (h history) git(ctx context.Context, repository string, args ...string) (string, error) {
	cmd := h.command(ctx, repository, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("git %s: %w: %s", args[0], err, oneLine(stderr.String()))
	}
	return strings.TrimSpace(stdout.String()), nil
}

func (h history) command(ctx context.Context, repository string, args ...string) *exec.Cmd {
	// As root git refuses to read a clone of somebody else, unless the command line says that it may.
	args = append([]string{"-c", "safe.directory=*"}, args...)
	if repository != "" {
		args = append([]string{"-C", repository}, args...)
	}
	cmd := exec.CommandContext(ctx, "git", args...)
	// Nobody is there to be asked for a password. What a hook of git has in its environment is about another repository.
	cmd.Env = append(withoutGit(os.Environ()), "GIT_TERMINAL_PROMPT=0", "GIT_OPTIONAL_LOCKS=0")
	return cmd
}

func withoutGit(environ []string) (kept []string) {
	for _, kv := range environ {
		switch name, _, _ := strings.Cut(kv, "="); name {
		case "GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_COMMON_DIR":
		default:
			kept = append(kept, kv)
		}
	}
	return kept
}

// BuildNext makes plugin and agent of this version once more, with the version of their protocol one higher: what the version
// after this one may do.
func BuildNext(ctx context.Context, version int) (dir string, err error) {
	root, err := ModuleRoot()
	if err != nil {
		return "", err
	}
	cache, err := buildcache.Dir()
	if err != nil {
		return "", err
	}
	unlock, err := buildcache.LockFile(filepath.Join(cache, "build.lock"))
	if err != nil {
		return "", err
	}
	defer unlock()
	dir = filepath.Join(cache, "bin", digest([]byte(root))+"-next")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	file := filepath.Join(root, "agentapi", "message.go")
	replaced, err := overlaid()
	if err != nil {
		return "", err
	}
	text, err := os.ReadFile(cmp.Or(replaced[file], file))
	if err != nil {
		return "", err
	}
	const constant = "const Version = %d\n"
	changed := bytes.Replace(text, fmt.Appendf(nil, constant, version), fmt.Appendf(nil, constant, version+1), 1)
	if bytes.Equal(changed, text) {
		return "", fmt.Errorf("%s does not say that the protocol's version is %d", file, version)
	}
	replaced[file] = filepath.Join(dir, "message.go")
	overlay, err := json.Marshal(map[string]any{"Replace": replaced})
	if err != nil {
		return "", err
	}
	err = errors.Join(os.WriteFile(filepath.Join(dir, "message.go"), changed, 0o644), os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o644))
	if err != nil {
		return "", err
	}
	args := append([]string{"-overlay", filepath.Join(dir, "overlay.json"), "-o", dir + "/"}, labFlags...)
	return dir, GoBuild(ctx, root, append(args, "./cmd/ovn-multinet", "./cmd/ovn-multinetd")...)
}

// overlaid is which files stand in for others in the builds of this process, by GOFLAGS.
func overlaid() (map[string]string, error) {
	overlay := struct{ Replace map[string]string }{map[string]string{}}
	for _, flag := range strings.Fields(os.Getenv("GOFLAGS")) {
		path, ok := strings.CutPrefix(flag, "-overlay=")
		if !ok {
			continue
		}
		text, err := os.ReadFile(path)
		if err == nil {
			err = json.Unmarshal(text, &overlay)
		}
		if err != nil {
			return nil, err
		}
	}
	return overlay.Replace, nil
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// OwnPrograms gives the lab's nodes a folder of their own for the project's programs, so that one can be exchanged. It comes
// before the nodes' first agent and CNI call.
func (l *Lab) OwnPrograms() error {
	dir := filepath.Join(l.Dir, "programs")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	files, err := os.ReadDir(l.bins.Ours)
	if err != nil {
		return err
	}
	for _, f := range files {
		if err := os.Symlink(filepath.Join(l.bins.Ours, f.Name()), filepath.Join(dir, f.Name())); err != nil {
			return err
		}
	}
	l.bins.Ours = dir
	return nil
}

// Exchange puts another version's program in the place of one of OwnPrograms, as an installer does: by a rename, so that there
// is a whole one at all times. What runs goes on.
func (l *Lab) Exchange(program, from string) error {
	path := filepath.Join(l.bins.Ours, program)
	if filepath.Dir(path) != filepath.Join(l.Dir, "programs") {
		return errors.New("the programs are all labs', call OwnPrograms first")
	}
	target := filepath.Join(from, program)
	if _, err := os.Stat(target); err != nil {
		return err
	}
	// A link and no copy: a file that was just written cannot be run while a fork holds it open.
	fresh := filepath.Join(filepath.Dir(path), "."+program+".new")
	if err := os.Symlink(target, fresh); err != nil {
		return err
	}
	return os.Rename(fresh, path)
}
