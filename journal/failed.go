package journal

import (
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/conf"
)

// MaxAttempts is how often the runtime tries a failed DEL. After that, later calls of the plugin try it.
const MaxAttempts = 3

// A node keeps this many entries with a failed DEL. The limits of a pod and of a namespace are reached long before the
// limit of the node, so that one tenant cannot use up what other tenants may need.
const (
	MaxFailedOfPod       = 4
	MaxFailedOfNamespace = 32
	MaxFailedOfNode      = 512
)

// CheckFailed tells whether a pod with delegates may have another entry, by the entries of the node. It counts the
// entries with a failed DEL that no operator has told the plugin to forget. At the node's limit it refuses only the
// namespaces that have such entries.
func CheckFailed(all []Summary, s *agentapi.Sandbox) error {
	pod, namespace, node := 0, 0, 0
	for i := range all {
		e := &all[i]
		if e.FailedAttempts == 0 || e.Forgotten || e.Sandbox.ContainerID == s.ContainerID {
			continue
		}
		node++
		if e.Sandbox.Namespace != s.Namespace {
			continue
		}
		namespace++
		if e.Sandbox.Pod == s.Pod && e.Sandbox.UID == s.UID {
			pod++
		}
	}
	const failed = "with a failed delegate DEL"
	switch {
	case pod >= MaxFailedOfPod:
		return tooMany("pod %s/%s has %d earlier sandboxes "+failed+"; a pod may have at most %d", s.Namespace, s.Pod, pod, MaxFailedOfPod)
	case namespace >= MaxFailedOfNamespace:
		return tooMany("namespace %s has %d sandboxes "+failed+" on this node; a namespace may have at most %d",
			s.Namespace, namespace, MaxFailedOfNamespace)
	case node >= MaxFailedOfNode && namespace > 0:
		return tooMany("this node has %d sandboxes "+failed+", %d of them of namespace %s; a node may have at most %d",
			node, namespace, s.Namespace, MaxFailedOfNode)
	}
	return nil
}

func tooMany(format string, args ...any) error {
	return conf.Errorf(conf.CodeDelegateFailed,
		"kubectl multinet forget lists them with the reason; correct the network's plugin, or have them forgotten by that command",
		format, args...)
}

// Forget marks the entry of a sandbox: the plugin deletes it without another attempt at its delegates.
func (d Dir) Forget(s *agentapi.Sandbox) error { return os.WriteFile(d.ForgetMark(s), nil, 0o600) }

// Forgotten tells whether an operator has told the plugin to forget the delegates of an entry whose DEL has failed.
func (d Dir) Forgotten(e *Entry) bool {
	return e.FailedAttempts > 0 && exists(d.ForgetMark(&e.Sandbox))
}

// NextFailed returns a sandbox whose DEL is marked as failed, nil if there is none: one that is to be forgotten,
// else the one whose last attempt is the oldest. It does not return own.
func (d Dir) NextFailed(own *agentapi.Sandbox) (next *agentapi.Sandbox, forgotten bool) {
	files, err := os.ReadDir(filepath.Join(string(d), EntryDir))
	if err != nil {
		return nil, false
	}
	var since time.Time
	for _, f := range files {
		id, ok := strings.CutSuffix(f.Name(), FailedSuffix)
		containerID, ifName, named := strings.Cut(id, "@")
		if !ok || !named || id == own.ID() {
			continue
		}
		s := &agentapi.Sandbox{ContainerID: containerID, Interface: ifName}
		if !d.HasEntry(s) { // a killed call deleted the entry alone
			_ = os.Remove(d.FailedMark(s))
			continue
		}
		if exists(d.ForgetMark(s)) {
			return s, true
		}
		if info, err := f.Info(); err == nil && (next == nil || info.ModTime().Before(since)) {
			next, since = s, info.ModTime()
		}
	}
	return next, false
}
