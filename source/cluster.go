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

// Cluster returns the function that tells the identity of this cluster: id if it is given, else the identity of the
// folder of manifests if that is given, else the cluster's. The folder is asked at once, for what it lacks does not
// come by itself; the API server may be away for a while.
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

// clusterOf returns the UID of the namespace kube-system, which lives as long as its cluster does.
func clusterOf(ctx context.Context, core kubernetes.Interface) (string, error) {
	ns, err := core.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("identity of this cluster: UID of namespace %s: %w", metav1.NamespaceSystem, err)
	}
	return string(ns.UID), conf.CheckClusterID(string(ns.UID))
}

// clusterFile is the file in a folder of manifests with the identity of the folder. It is no manifest.
const clusterFile = ".cluster-id"

// folderOf returns the identity of a folder of manifests. The first program that finds none makes it.
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

// makeClusterFile gives the file its name when it is complete. Of several programs at once one makes it, and the others
// find it.
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
