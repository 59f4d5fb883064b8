// Package source owns the reading of pods, nodes, NetworkAttachmentDefinitions (NADs), policies and Services for the
// agent and the controller, from the Kubernetes API, or from a folder of YAML files on a host without Kubernetes; it
// may touch neither OVN nor the host's network.
package source

import (
	"errors"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
)

// ErrNotFound is the error for a pod that does not exist. For a NAD, the error is netmodel.ErrNotFound.
var ErrNotFound = errors.New("pod not found")

// Changes has the functions that a source calls after changes. Each may be nil. The source calls them while it
// processes a change: they must neither block nor call the source.
type Changes struct {
	// NAD is called for each NAD that was created, changed or deleted.
	NAD func(namespace, name string)
	// Bound is called for each pod of the node that is bound to the node and has no container yet. A folder calls it for
	// no pod: nothing binds the pods of a folder.
	Bound func(*netmodel.Pod)
	// Migrated is called for each pod of the node that is the target of a live migration, when the guest runs in it. A
	// folder calls it for such pods of all nodes.
	Migrated func(*netmodel.Pod)
	// Networks is called for each pod of the node whose annotations of networks were edited, after the source runs. A
	// folder calls it for pods of all nodes.
	Networks func(*netmodel.Pod)
	// Nodes is called when a node was created or deleted, or when its labels changed.
	Nodes func()
	// The following are for a controller that serves policies and Services. If Policy is nil, the others are not called.
	//
	// Policy is called when a policy of the namespace was created, changed or deleted.
	Policy func(namespace string)
	// Pod is called when the labels of a pod with networks have changed, and when the pod has got its ports.
	Pod func(namespace, uid string, labelsChanged bool)
	// Ports is called when a pod with networks and named ports was created in the namespace.
	Ports func(namespace string)
	// Guest is called when a pod was created in the namespace that requests networks of other namespaces.
	Guest func(namespace string)
	// PodGone is called when a pod with networks was deleted.
	PodGone func(namespace, uid string)
	// Namespace is called when a namespace was created, or when its labels changed.
	Namespace func(name string)
	// Service is called when a Service on a network was created, changed or deleted, and when another program has changed
	// an EndpointSlice that the controller has written for it.
	Service func(namespace, name string)
	// IPAMClaim is called when an IPAMClaim was created, changed or deleted.
	IPAMClaim func(namespace, name string)
	// Entries is called when an object of the operator was created, changed or deleted.
	Entries func()
	// Backend is called when something of a pod with networks has changed that Services need: its readiness, its labels,
	// its networks, and when it is being deleted or is gone.
	Backend func(namespace, name string)
}

// mirrorAnnotation is an annotation of the API's mirror of a static pod. Its value is the UID that kubelet and the
// container runtime use for the static pod.
const mirrorAnnotation = "kubernetes.io/config.mirror"

// key names an object.
type key struct{ namespace, name string }

// EventKind is the type of a Kubernetes Event.
type EventKind string

// The kinds of Events.
const (
	Normal  EventKind = "Normal"
	Warning EventKind = "Warning"
)

func eventKind(warning bool) EventKind {
	if warning {
		return Warning
	}
	return Normal
}
