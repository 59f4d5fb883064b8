package kube

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/dsnet/try"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

// KillContainerd ends containerd without a word. Containers go on. StartContainerd is to follow.
func (n *Node) KillContainerd() error {
	err := n.Containerd.Kill()
	if gone := os.Remove(n.Path(containerdSocket)); gone != nil && !errors.Is(gone, os.ErrNotExist) {
		err = errors.Join(err, gone)
	}
	return err
}

// StartContainerd starts it again after its end, and returns when it serves.
func (n *Node) StartContainerd(ctx context.Context) error {
	if err := n.Containerd.Restart(ctx); err != nil {
		return err
	}
	return lab.Eventually(ctx, func() error {
		_, err := n.Run(ctx, "ctr", "--connect-timeout", "1s", "version")
		return err
	})
}

// LoseSandbox takes a pod away on its node so that no runtime ever calls DEL for it: its processes end, its network
// namespace goes, and containerd, which is restarted, has no record of it. kubelet has to be stopped; pod is
// namespace/name.
func (n *Node) LoseSandbox(ctx context.Context, pod string) (err error) {
	defer try.Handle(&err)
	p := try.E1(n.cluster.Pod(ctx, pod))
	netns := try.E1(n.PodNetNS(ctx, pod))
	ctr := func(args ...string) (string, error) {
		return n.Run(ctx, append([]string{"ctr", "--namespace", "k8s.io"}, args...)...)
	}
	out := try.E1(ctr("containers", "list", "--quiet", fmt.Sprintf(`labels."io.kubernetes.pod.uid"==%s`, p.UID)))
	ids := strings.Fields(out)
	for _, id := range ids {
		try.E1(ctr("tasks", "kill", "--signal", "SIGKILL", id))
	}
	inNode := filepath.Join("/run/netns", filepath.Base(netns))
	for _, step := range []func() (string, error){
		func() (string, error) {
			return "", lab.Eventually(ctx, func() error { return ended(ctr("tasks", "list"))(ids) })
		},
		func() (string, error) { return ctr(append([]string{"containers", "delete"}, ids...)...) },
		func() (string, error) { return n.Run(ctx, "umount", inNode) },
		func() (string, error) { return n.Run(ctx, "rm", inNode) },
		func() (string, error) { return "", n.RestartContainerd(ctx) },
	} {
		if _, err := step(); err != nil {
			return fmt.Errorf("lose the sandbox of pod %s: %w", pod, err)
		}
	}
	return nil
}

// ended reports whether none of the containers is in ctr's list of tasks: containerd takes them out when they have
// ended.
func ended(tasks string, err error) func(ids []string) error {
	return func(ids []string) error {
		for _, id := range ids {
			if strings.Contains(tasks, id) {
				err = errors.Join(err, fmt.Errorf("container %s has not ended", id))
			}
		}
		return err
	}
}
