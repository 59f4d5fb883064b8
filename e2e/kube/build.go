package kube

import (
	"bufio"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/dsnet/try"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

// binEnv is the folder of kubelab and the small programs; told to the inner process.
const binEnv = "OVN_MULTINET_KUBE_BIN"

// Main is [lab.Main] for tests that use a cluster.
func Main(m interface{ Run() int }, opts ...lab.EnterOption) {
	lab.Main(m, append(opts, lab.Around(prepare))...)
}

// Enter is [lab.Enter] for commands that use a cluster.
func Enter(opts ...lab.EnterOption) { lab.Enter(append(opts, lab.Around(prepare))...) }

// prepare does what has to be done outside of the lab's namespaces.
func prepare(ctx context.Context) (_ func() error, err error) {
	defer try.Handle(&err)
	bin := try.E1(Build(ctx, os.Stderr))
	groups := try.E1(claimGroups())
	return groups.remove, errors.Join(os.Setenv(binEnv, bin), os.Setenv(groupEnv, groups.name))
}

// Build brings the programs of a cluster up to date, in the cache folder, and returns their folder. What takes
// minutes is told to progress. Builds of several processes take turns.
func Build(ctx context.Context, progress io.Writer) (_ string, err error) {
	defer try.Handle(&err)
	if dir := os.Getenv(binEnv); dir != "" {
		return dir, nil
	}
	root, cache, unlock, err := takeCache("kube")
	if err != nil {
		return "", err
	}
	defer unlock()
	big := try.E1(buildKubelab(ctx, filepath.Join(root, "e2e", "kubebin"), cache, progress))
	// The small ones change with the clone: they are built each time, beside a link to the big one.
	dir := filepath.Join(cache, "bin-"+digest([]byte(root)))
	try.E(os.MkdirAll(dir, 0o755))
	try.E(lab.GoBuild(ctx, root, "-ldflags=-s -w", "-o", dir+"/", "./e2e/podtool", "./e2e/kube/nodeinit", "./e2e/recorder"))
	// By the name of kubectl it is kubectl.
	for _, name := range []string{kubelab, "kubectl"} {
		link := filepath.Join(dir, name)
		if err := os.Remove(link); err != nil && !errors.Is(err, os.ErrNotExist) {
			return "", err
		}
		try.E(os.Link(big, link))
	}
	return dir, nil
}

// takeCache returns the module's folder and one of the cache, for one process at a time.
func takeCache(name string) (root, cache string, unlock func(), err error) {
	defer try.Handle(&err)
	root = try.E1(lab.ModuleRoot())
	all := try.E1(lab.CacheDir())
	cache = filepath.Join(all, name)
	try.E(os.MkdirAll(cache, 0o755))
	unlock, err = lab.LockFile(filepath.Join(cache, "build.lock"))
	return root, cache, unlock, err
}

// buildKubelab makes the program once per set of sources and versions, and forgets those of other sets.
func buildKubelab(ctx context.Context, source, cache string, progress io.Writer) (_ string, err error) {
	defer try.Handle(&err)
	flags := try.E1(linkFlags(source))
	key := try.E1(sourceKey(source, flags))
	dir := filepath.Join(cache, key)
	path := filepath.Join(dir, kubelab)
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	try.E(os.MkdirAll(dir, 0o755))
	began := time.Now()
	fmt.Fprintln(progress, "building Kubernetes, etcd and Flannel: some ten minutes on two cores, once per version")
	tmp := path + ".new"
	try.E(compile(ctx, source, flags, tmp, progress))
	fmt.Fprintf(progress, "built in %v\n", time.Since(began).Round(time.Second))
	try.E(os.Rename(tmp, path))
	return path, forgetOthers(cache, key)
}

// sourceKey names a version of everything that goes into the program.
func sourceKey(source, flags string) (_ string, err error) {
	defer try.Handle(&err)
	files := try.E1(filepath.Glob(filepath.Join(source, "*")))
	slices.Sort(files)
	sum := sha256.New()
	fmt.Fprintln(sum, runtime.Version(), runtime.GOARCH, flags)
	for _, file := range files {
		b := try.E1(os.ReadFile(file))
		fmt.Fprintf(sum, "%s %d\n", filepath.Base(file), len(b))
		sum.Write(b)
	}
	return hex.EncodeToString(sum.Sum(nil))[:12], nil
}

// compile runs go build and tells from time to time how many packages are done.
func compile(ctx context.Context, source, flags, output string, progress io.Writer) (err error) {
	defer try.Handle(&err)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	run := func(args ...string) *exec.Cmd {
		cmd := exec.CommandContext(ctx, "go", args...)
		cmd.Dir = source
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
		return cmd
	}
	list := run("list", "-deps", ".")
	list.Stderr = progress
	all, err := list.Output()
	if err != nil {
		return fmt.Errorf("list the packages of %s: %w", source, err)
	}
	total := strings.Count(string(all), "\n")
	build := run("build", "-v", "-buildvcs=false", "-ldflags="+flags, "-o", output, ".")
	out := try.E1(build.StderrPipe())
	try.E(build.Start())
	said := report(out, total, progress)
	if err := build.Wait(); err != nil {
		return fmt.Errorf("go build in %s: %w\n%s", source, err, strings.Join(said, "\n"))
	}
	return nil
}

// linkFlags has the programs say which version of Kubernetes they are; of a module's they know nothing.
func linkFlags(source string) (string, error) {
	b, err := os.ReadFile(filepath.Join(source, "go.mod"))
	if err != nil {
		return "", err
	}
	found := regexp.MustCompile(`\tk8s\.io/kubernetes (v(\d+)\.(\d+)\.\S+)`).FindStringSubmatch(string(b))
	if found == nil {
		return "", fmt.Errorf("%s/go.mod does not require k8s.io/kubernetes", source)
	}
	flags := "-s -w"
	for i, name := range []string{"gitVersion", "gitMajor", "gitMinor"} {
		flags += " -X k8s.io/component-base/version." + name + "=" + found[i+1]
	}
	return flags, nil
}

// report reads go build's list of what it compiles; anything else it says is returned.
func report(out io.Reader, total int, progress io.Writer) (said []string) {
	const pause = 15 * time.Second
	done, last := 0, time.Now()
	for lines := bufio.NewScanner(out); lines.Scan(); {
		line := lines.Text()
		if strings.ContainsAny(line, " \t:") {
			said = append(said, line)
			continue
		}
		done++
		if time.Since(last) > pause {
			last = time.Now()
			fmt.Fprintf(progress, "  %d of at most %d packages\n", done, total)
		}
	}
	return said
}

func forgetOthers(cache, key string) error {
	dirs, err := os.ReadDir(cache)
	if err != nil {
		return err
	}
	for _, d := range dirs {
		if d.IsDir() && len(d.Name()) == len(key) && d.Name() != key {
			err = cmp.Or(err, os.RemoveAll(filepath.Join(cache, d.Name())))
		}
	}
	return err
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])[:12]
}
