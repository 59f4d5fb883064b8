// Package helm owns the way to Helm's program, whose version is in hack/tools/go.mod, and the manifests that Helm makes
// of our chart.
package helm

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// KubeVersion is the oldest version of Kubernetes that the chart is for.
const KubeVersion = "--kube-version=1.30"

// Path returns the path of Helm's program, and builds it if it is not in Go's cache. The root is that of our module.
func Path(root string) (string, error) {
	cmd := exec.Command("go", "tool", "-modfile="+filepath.Join("hack", "tools", "go.mod"), "-n", "helm")
	cmd.Dir, cmd.Env = root, append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
	out, err := output(cmd)
	return strings.TrimSpace(out), err
}

// Manifests returns what a chart makes by its default values and the given ones, as --set=…, without its hooks: only
// Helm runs them.
func Manifests(program, chart string, values ...string) (string, error) {
	args := append([]string{"template", "ovn-multinet", chart, "--no-hooks", KubeVersion}, values...)
	text, err := output(exec.Command(program, args...))
	return strings.ReplaceAll(text, "\n\n---\n", "\n---\n"), err // Helm ends some documents with an empty line
}

// output runs a program and returns its standard output.
func output(cmd *exec.Cmd) (string, error) {
	out, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		err = fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, exit.Stderr)
	}
	return string(out), err
}
