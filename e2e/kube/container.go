package kube

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Signal sends a signal, like SIGSTOP, to the first process of a pod's running container; pod is namespace/name.
// kubelet is not told: to it a stopped process looks like one that runs.
func (n *Node) Signal(ctx context.Context, pod, container, signal string) error {
	return n.signal(ctx, pod, container, "--signal", signal)
}

// SignalAll is Signal for all processes of the container.
func (n *Node) SignalAll(ctx context.Context, pod, container, signal string) error {
	return n.signal(ctx, pod, container, "--all", "--signal", signal)
}

func (n *Node) signal(ctx context.Context, pod, container string, args ...string) error {
	p, err := n.cluster.Pod(ctx, pod)
	if err != nil {
		return err
	}
	status := containerStatus(p, container)
	if status == nil || status.State.Running == nil {
		return fmt.Errorf("container %s of pod %s does not run", container, pod)
	}
	_, id, _ := strings.Cut(status.ContainerID, "://")
	_, err = n.Run(ctx, append(append([]string{"ctr", "--namespace", "k8s.io", "tasks", "kill"}, args...), id)...)
	return err
}

func containerStatus(p *corev1.Pod, name string) *corev1.ContainerStatus {
	for i := range p.Status.ContainerStatuses {
		if p.Status.ContainerStatuses[i].Name == name {
			return &p.Status.ContainerStatuses[i]
		}
	}
	return nil
}

// WaitRestarted returns when a container of a pod has been started more often than given and runs; pod is
// namespace/name.
func (c *Cluster) WaitRestarted(ctx context.Context, pod, container string, restarts int32) error {
	err := c.waitPod(ctx, pod, func(p *corev1.Pod) bool {
		if p == nil {
			return false
		}
		status := containerStatus(p, container)
		return status != nil && status.RestartCount > restarts && status.State.Running != nil
	})
	if err != nil {
		return fmt.Errorf("wait for container %s of pod %s to be started again: %w", container, pod, err)
	}
	return nil
}
