package journal

import (
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/conf"
)

// MaxAttempts is how often the runtime tries a failed DEL. After these attempts, later calls of the plugin try it.
const MaxAttempts = 3

// The largest numbers of entries with a failed DEL on a node. The limits of a pod and of a namespace are reached long
// before the limit of the node, so that one tenant cannot use up what other tenants may need.
const (
	MaxFailedOfPod       = 4
	MaxFailedOfNamespace = 32
	MaxFailedOfNode      = 512
)

// CheckFailed reports whether a pod with delegates may have another entry. It counts the node's entries with a failed
// DEL that no operator has told the plugin to forget. At the limit of the node, it refuses only the namespaces that
// have such entries.
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
		return tooMany("pod %s/%s has %d earlier sandboxes "+failed+"; a pod may have at most %d",
			s.Namespace, s.Pod, pod, MaxFailedOfPod)
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
		"kubectl multinet forget lists them with the reason; "+
			"correct the network's plugin, or have them forgotten by that command",
		format, args...)
}

// Forget marks the entry of a sandbox. The plugin then deletes the entry without another DEL of its delegates.
func (d Dir) Forget(s *agentapi.Sandbox) error { return os.WriteFile(d.ForgetMark(s), nil, 0o600) }

// Forgotten reports whether an operator has told the plugin to forget the delegates of an entry whose DEL has failed.
func (d Dir) Forgotten(e *Entry) bool {
	return e.FailedAttempts > 0 && exists(d.ForgetMark(&e.Sandbox))
}

// NextFailed returns a sandbox whose DEL is marked as failed; nil: there is none. It prefers a sandbox that an
// operator has told the plugin to forget, and then the sandbox whose last attempt is the oldest. An attempt in the
// future was before the wall clock was set back: it is the oldest, or the sandbox would wait until the clock is there
// again. It does not return own.
func (d Dir) NextFailed(own *agentapi.Sandbox) (next *agentapi.Sandbox, forgotten bool) {
	files, err := os.ReadDir(filepath.Join(string(d), EntryDir))
	if err != nil {
		return nil, false
	}
	var since time.Time
	now := time.Now()
	for _, f := range files {
		id, ok := strings.CutSuffix(f.Name(), FailedSuffix)
		containerID, ifName, named := strings.Cut(id, "@")
		if !ok || !named || id == own.ID() {
			continue
		}
		s := &agentapi.Sandbox{ContainerID: containerID, Interface: ifName}
		if !d.HasEntry(s) { // a killed call deleted only the entry
			_ = os.Remove(d.FailedMark(s))
			continue
		}
		if exists(d.ForgetMark(s)) {
			return s, true
		}
		info, err := f.Info()
		if err != nil {
			continue
		}
		tried := info.ModTime()
		if tried.After(now) {
			tried = time.Time{}
		}
		if next == nil || tried.Before(since) {
			next, since = s, tried
		}
	}
	return next, false
}
