package kube

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ofTheProduct are the files of the product on a node, and what kubelet and the CNI plugins remember of pods.
var ofTheProduct = []string{
	"/etc/cni/net.d/05-ovn-multinet.conflist", "/opt/cni/bin/ovn-multinet", "/var/lib/cni", "/var/lib/kubelet",
}

// Discard takes a node out of the cluster for good: its power is off, its Node is deleted. Join puts a new machine into
// its place, which was delivered with containerd, its images and Flannel, and never had anything of the product. The
// pods of the node are the API's, until somebody deletes them.
func (n *Node) Discard(ctx context.Context) error {
	if err := n.PowerOff(ctx); err != nil {
		return err
	}
	errs := []error{n.cluster.Client.CoreV1().Nodes().Delete(ctx, n.Name, metav1.DeleteOptions{})}
	for _, path := range ofTheProduct {
		errs = append(errs, os.RemoveAll(n.OwnFolder(path)))
	}
	for _, folder := range []string{"/var/lib/cni", "/var/lib/kubelet"} { // which the holder mounts
		errs = append(errs, os.MkdirAll(filepath.Join(n.OwnFolder(folder)), 0o755))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("discard %s: %w", n.Name, err)
	}
	return nil
}

// Join boots the new machine after Discard. Its kubelet registers with these taints.
func (n *Node) Join(ctx context.Context, taints ...corev1.Taint) error {
	if err := n.register(ctx, taints...); err != nil {
		return fmt.Errorf("register %s: %w", n.Name, err)
	}
	return n.PowerOn(ctx)
}
