package agentapi

import "github.com/ovn-multinet/ovn-multinet/conf"

// A node keeps this many attachments whose delegates' DEL failed. The limits of a pod and of a namespace are reached
// long before the node's, so that one tenant cannot use up what other tenants may need.
const (
	MaxFailedOfPod       = 4
	MaxFailedOfNamespace = 32
	MaxFailedOfNode      = 512
)

// CheckFailed tells whether a pod with delegates may have another attachment, by the attachments of the node whose
// delegates' DEL failed and which no operator gave up. At the node's limit only the namespaces that have such
// attachments are refused.
func CheckFailed(attached []Attached, s *Sandbox) error {
	pod, namespace, node := 0, 0, 0
	for i := range attached {
		a := &attached[i]
		if a.Complaints == 0 || a.Forgotten || a.Sandbox.ContainerID == s.ContainerID {
			continue
		}
		node++
		if a.Sandbox.Namespace != s.Namespace {
			continue
		}
		namespace++
		if a.Sandbox.Pod == s.Pod && a.Sandbox.UID == s.UID {
			pod++
		}
	}
	const failed = "with a failed delegate DEL"
	switch {
	case pod >= MaxFailedOfPod:
		return tooMany("pod %s/%s has %d earlier sandboxes "+failed+"; a pod may have at most %d", s.Namespace, s.Pod, pod, MaxFailedOfPod)
	case namespace >= MaxFailedOfNamespace:
		return tooMany("namespace %s has %d sandboxes "+failed+" on this node; a namespace may have at most %d", s.Namespace, namespace, MaxFailedOfNamespace)
	case node >= MaxFailedOfNode && namespace > 0:
		return tooMany("this node has %d sandboxes "+failed+", %d of them of namespace %s; a node may have at most %d",
			node, namespace, s.Namespace, MaxFailedOfNode)
	}
	return nil
}

func tooMany(format string, args ...any) error {
	return conf.Errorf(conf.CodeDelegateFailed,
		"kubectl multinet forget lists them with the reason; correct the network's plugin, or give them up by that command", format, args...)
}
