package kube

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/dsnet/try"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
	"github.com/ovn-multinet/ovn-multinet/internal/buildcache"
)

// containerd2Env is the folder of containerd 2 and its companions; told to the inner process.
const containerd2Env = "OVN_MULTINET_KUBE_CONTAINERD2"

// containerd2Programs take the place of the machine's.
var containerd2Programs = []string{"containerd", "containerd-shim-runc-v2", "ctr"}

// WithContainerd2 has [Main] or [Enter] build containerd 2 for clusters that want it: a minute, once per version.
func WithContainerd2() lab.EnterOption { return building(containerd2Env, buildContainerd2) }

// buildContainerd2 makes the programs once per set of versions.
func buildContainerd2(ctx context.Context) (_ string, err error) {
	defer try.Handle(&err)
	source := filepath.Join(try.E1(lab.ModuleRoot()), "e2e", "containerd2")
	const flags = "-s -w"
	return buildcache.Entry("containerd2", try.E1(sourceKey(source, flags)), func(dir string) error {
		fmt.Fprintln(os.Stderr, "building containerd 2: a minute or two on two cores, once per version")
		return lab.GoBuild(ctx, source, "-ldflags="+flags, "-o", dir+"/", "tool")
	})
}

// WrappersDir is a folder of a node with containerd 2: a CNI plugin there is found before that of its name in
// /opt/cni/bin, where installers write.
const WrappersDir = "/opt/cni/wrappers"

const containerd2Config = `version = 3
root = "/var/lib/containerd"
state = "/run/containerd"
oom_score = 0
disabled_plugins = [
  "io.containerd.internal.v1.opt",
  "io.containerd.snapshotter.v1.blockfile",
  "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.erofs",
  "io.containerd.snapshotter.v1.zfs",
]

[plugins."io.containerd.cri.v1.images"]
  snapshotter = "overlayfs"

[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "` + pauseImage + `"

[plugins."io.containerd.cri.v1.runtime"]
  disable_apparmor = true
  restrict_oom_score_adj = true

[plugins."io.containerd.cri.v1.runtime".cni]
  bin_dirs = ["` + WrappersDir + `", "/opt/cni/bin"]

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
  SystemdCgroup = false
`

// installContainerd2 puts containerd 2 in the place of the machine's, on this node alone.
func (n *Node) installContainerd2(context.Context) (err error) {
	defer try.Handle(&err)
	if !n.cluster.containerd2 {
		return nil
	}
	from := os.Getenv(containerd2Env)
	if from == "" {
		return errors.New("Options.Containerd2 without its programs: give WithContainerd2 to kube.Main or kube.Enter")
	}
	for _, name := range containerd2Programs {
		b := try.E1(os.ReadFile(filepath.Join(from, name)))
		// Where the machine has it is where the node's commands look for it.
		place := try.E1(exec.LookPath(name))
		try.E(errors.Join(os.Remove(n.Path(place)), os.WriteFile(n.Path(place), b, 0o755)))
	}
	return nil
}
