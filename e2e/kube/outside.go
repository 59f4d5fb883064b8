package kube

import (
	"os"
	"path/filepath"
	"strings"
)

// adminOnNode names the admin's kubeconfig with the API server's address as the nodes reach it.
const adminOnNode = "admin-on-node"

// OnNode returns the command line that runs a command as the cluster's admin on the network of its first node, from which
// the API server and OVN's Northbound database are reached. The command keeps the mounts and the working directory of the
// caller, so it reads the caller's files. root is the root folder of the lab's program as the caller sees it:
// "/proc/PID/root" from outside of the lab's namespaces, "" from within. name is the cluster's, and programs are folders
// that come first in the command's PATH.
func OnNode(root, name string, programs []string, command ...string) []string {
	path := strings.Join(append(programs, os.Getenv("PATH")), string(os.PathListSeparator))
	return append([]string{
		"nsenter", "--net=" + filepath.Join(root, "/run/netns", name+"-node1"), "--", "env", "PATH=" + path,
		"KUBECONFIG=" + filepath.Join(root, "/run/ovn-multinet", name, "kube", adminOnNode+".kubeconfig"),
	}, command...)
}
