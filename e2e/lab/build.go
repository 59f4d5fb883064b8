package lab

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"

	"github.com/dsnet/try"
	"github.com/ovn-multinet/ovn-multinet/internal/buildcache"
)

const (
	binEnv = "OVN_MULTINET_BIN"     // folder of the project's binaries; set by the user, they are not built
	cniEnv = "OVN_MULTINET_LAB_CNI" // folder of the CNI plugins beside ours, told to the inner process
)

// BuildOptions says what [Build] leaves out.
type BuildOptions struct {
	WithoutOurs bool // the project's own binaries are not needed
}

// Binaries are folders of executables.
type Binaries struct {
	Ours string // ovn-multinet, ovn-multinetd, ovn-multinet-controller, with failpoints; may be empty or absent
	CNI  string // flannel, bridge, host-local, loopback, portmap
}

// Build brings the binaries that a lab runs up to date, in the cache folder. It needs the network when the
// modules of the CNI plugins are not in Go's cache yet. Builds of several processes take turns.
func Build(ctx context.Context, o BuildOptions) (Binaries, error) {
	bins := Binaries{Ours: os.Getenv(binEnv), CNI: os.Getenv(cniEnv)}
	needOurs := bins.Ours == "" && !o.WithoutOurs
	if !needOurs && bins.CNI != "" {
		return bins, nil
	}
	cache, err := buildcache.Dir()
	if err != nil {
		return bins, err
	}
	unlock, err := buildcache.LockFile(filepath.Join(cache, "build.lock"))
	if err != nil {
		return bins, err
	}
	defer unlock()
	if bins.CNI == "" {
		if bins.CNI, err = buildCNI(ctx); err != nil {
			return bins, err
		}
	}
	if needOurs {
		bins.Ours, err = buildOurs(ctx, cache)
	}
	return bins, err
}

// ModuleRoot is the folder of the project's go.mod. It is found from this file, so that it does not matter where the program was started.
func ModuleRoot() (string, error) {
	_, file, _, ok := runtime.Caller(0)
	if !ok || !filepath.IsAbs(file) {
		return "", errors.New("the module's folder is unknown: the program was built with -trimpath")
	}
	return filepath.Dir(filepath.Dir(filepath.Dir(file))), nil
}

// buildOurs keeps a folder per clone, as two clones build different things.
func buildOurs(ctx context.Context, cache string) (_ string, err error) {
	defer try.Handle(&err)
	root := try.E1(ModuleRoot())
	if _, err := os.Stat(filepath.Join(root, "cmd")); errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	dir := filepath.Join(cache, "bin", digest([]byte(root)))
	try.E(os.MkdirAll(dir, 0o755))
	return dir, GoBuild(ctx, root, "-tags", "failpoint,grpcnotrace", "-o", dir+"/", "./cmd/...", "./e2e/recorder")
}

// buildCNI makes the plugins once per set of versions.
func buildCNI(ctx context.Context) (_ string, err error) {
	defer try.Handle(&err)
	root := try.E1(ModuleRoot())
	var key []byte
	modules := []string{filepath.Join(root, "e2e", "flannelcni"), filepath.Join(root, "e2e", "cniplugins")}
	for _, m := range modules {
		key = append(key, try.E1(os.ReadFile(filepath.Join(m, "go.mod")))...)
	}
	return buildcache.Entry("cni", digest(key), func(dir string) error {
		var errs []error
		for _, m := range modules {
			errs = append(errs, GoBuild(ctx, m, "-o", dir+"/", "tool"))
		}
		return errors.Join(errs...)
	})
}

// GoBuild runs go build in the folder of a module; what it makes is linked statically.
func GoBuild(ctx context.Context, dir string, args ...string) error {
	cmd := exec.CommandContext(ctx, "go", append([]string{"build", "-buildvcs=false"}, args...)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build in %s: %w\n%s", dir, err, bytes.TrimSpace(out))
	}
	return nil
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])[:12]
}
