package source

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/ovn-multinet/ovn-multinet/conf"
)

// Cluster returns a function that returns the cluster identity. The identity is id, if id is not empty; else that of
// the folder of manifests, if manifests is not empty; else that of the Kubernetes cluster. Cluster reads the folder
// immediately, because waiting does not repair a folder. The function asks the API server at each call, because the
// server may be unreachable for a while.
func Cluster(id, manifests string, core kubernetes.Interface) (func(ctx context.Context) (string, error), error) {
	if id == "" && manifests == "" {
		return func(ctx context.Context) (string, error) { return clusterOf(ctx, core) }, nil
	}
	if id == "" {
		var err error
		if id, err = folderOf(manifests); err != nil {
			return nil, err
		}
	}
	return func(context.Context) (string, error) { return id, nil }, nil
}

// clusterOf returns the UID of the namespace kube-system. This namespace exists as long as its cluster.
func clusterOf(ctx context.Context, core kubernetes.Interface) (string, error) {
	ns, err := core.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("identity of this cluster: UID of namespace %s: %w", metav1.NamespaceSystem, err)
	}
	return string(ns.UID), conf.CheckClusterID(string(ns.UID))
}

// clusterFile is the name of the file in a folder of manifests that has the identity of the folder. The file is not a
// manifest.
const clusterFile = ".cluster-id"

// folderOf returns the identity of a folder of manifests. If the folder has none, folderOf creates one.
func folderOf(dir string) (string, error) {
	path := filepath.Join(dir, clusterFile)
	id, err := readClusterFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		if err = makeClusterFile(dir, path); err == nil {
			id, err = readClusterFile(path)
		}
	}
	return id, err
}

func readClusterFile(path string) (string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("identity of this folder: %w", err)
	}
	id := strings.TrimSpace(string(text))
	if err := conf.CheckClusterID(id); err != nil {
		return "", fmt.Errorf("identity of this folder: %s: %w", path, err)
	}
	return id, nil
}

// makeClusterFile writes a temporary file and links the complete file to its name. If several programs do this at the
// same time, the first link succeeds and the other programs use that file.
func makeClusterFile(dir, path string) error {
	err := func() error {
		f, err := os.CreateTemp(dir, clusterFile+"-")
		if err != nil {
			return err
		}
		defer os.Remove(f.Name())
		_, err = f.WriteString(uuid.NewString() + "\n")
		if err = errors.Join(err, f.Chmod(0o644), f.Sync(), f.Close()); err != nil {
			return err
		}
		return os.Link(f.Name(), path)
	}()
	if err == nil || errors.Is(err, fs.ErrExist) {
		return nil
	}
	return fmt.Errorf("identity of this folder: write a UUID into the file %s, for it cannot be made: %w", path, err)
}
