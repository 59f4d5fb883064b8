package wiring

import (
	"errors"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/ovn-multinet/ovn-multinet/conf"
)

// NetnsGone reports whether a pod's network namespace no longer exists. path is the path that the ADD got. If the path
// contains a process ID, this ID may by now belong to a process of the node.
func NetnsGone(path string) bool {
	if path == "" {
		return false // the path is not known
	}
	var at unix.Statfs_t
	err := unix.Statfs(path, &at)
	return errors.Is(err, os.ErrNotExist) || err == nil && (at.Type != unix.NSFS_MAGIC || IsNodeNetns(path))
}

// IsNodeNetns reports whether a path leads to the network namespace that the plugin runs in, which is the node's.
func IsNodeNetns(path string) bool {
	var own, at unix.Stat_t
	return unix.Stat("/proc/thread-self/ns/net", &own) == nil && unix.Stat(path, &at) == nil &&
		own.Dev == at.Dev && own.Ino == at.Ino
}

// CheckNetns refuses a CNI_NETNS that is the node's network namespace: the call would change the node's interfaces
// and routes.
func CheckNetns(path string) error {
	if !IsNodeNetns(path) {
		return nil
	}
	return conf.Errorf(conf.CodeEnvironment, "the runtime must name the network namespace of the pod; "+
		"for a pod in the host's network it calls no CNI plugin",
		"CNI_NETNS %s is the network namespace of the node itself", path)
}

// CheckRunning refuses the path of a running pod's network namespace that may lead to another one: no call of the
// runtime says now that it is the pod's.
func CheckRunning(path string) error {
	switch {
	case strings.HasPrefix(path, "/proc/"):
		return conf.Errorf(conf.CodeEnvironment, "delete the pod, so that it is made again",
			"the runtime names network namespaces by processes (%s), and the process may be another one by now", path)
	case path == "" || NetnsGone(path):
		return conf.Errorf(conf.CodePodGone, "the runtime makes the pod's sandbox again",
			"the pod's network namespace %s is gone", path)
	}
	return CheckNetns(path)
}
