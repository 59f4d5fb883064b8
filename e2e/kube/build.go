package kube

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"

	"github.com/dsnet/try"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
	"github.com/ovn-multinet/ovn-multinet/internal/buildcache"
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
	root := try.E1(lab.ModuleRoot())
	big := try.E1(buildKubelab(ctx, filepath.Join(root, "e2e", "kubebin"), progress))
	// The small ones change with the clone: they are built each time, beside a link to the big one.
	dir := filepath.Join(try.E1(buildcache.Dir()), "bin", digest([]byte(root))+"-kube")
	try.E(os.MkdirAll(dir, 0o755))
	unlock := try.E1(buildcache.LockFile(dir + ".lock"))
	defer unlock()
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

// buildKubelab makes the program once per set of sources and versions.
func buildKubelab(ctx context.Context, source string, progress io.Writer) (_ string, err error) {
	defer try.Handle(&err)
	flags := try.E1(linkFlags(source))
	dir := try.E1(buildcache.Entry("kube", try.E1(sourceKey(source, flags)), func(dir string) error {
		fmt.Fprintln(progress, "building Kubernetes, etcd and Flannel: some ten minutes on two cores, once per version")
		return lab.GoBuild(ctx, source, "-ldflags="+flags, "-o", filepath.Join(dir, kubelab), ".")
	}))
	return filepath.Join(dir, kubelab), nil
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

// building has [Main] or [Enter] build programs that only some clusters need, and tells the inner process their folder
// by env. A process that knows the folder does not build again.
func building(env string, build func(context.Context) (dir string, err error)) lab.EnterOption {
	return lab.Around(func(ctx context.Context) (func() error, error) {
		if os.Getenv(env) != "" {
			return nil, nil
		}
		dir, err := build(ctx)
		if err != nil {
			return nil, err
		}
		return nil, os.Setenv(env, dir)
	})
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])[:12]
}
