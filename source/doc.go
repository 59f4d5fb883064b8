// Package source owns where pods and NetworkAttachmentDefinitions come from, for the agent and for the controller:
// the Kubernetes API, or a folder of YAML files on a host without Kubernetes; it may touch neither OVN nor the
// host's network.
package source

import (
	"errors"
)

// ErrNotFound is the answer for a pod that does not exist; for a NAD it is netmodel.ErrNotFound.
var ErrNotFound = errors.New("pod not found")

// Pod is a pod, as far as it matters here.
type Pod struct {
	Namespace   string
	Name        string
	UID         string
	NodeName    string
	Annotations map[string]string
	// Running: containers of it run and nobody has deleted it. A manifest says so by its status.phase.
	Running bool
}

// Changes are who wants to know of what. Each may be nil. They are called from where the source does its own work: they
// must neither block nor ask the source.
type Changes struct {
	// NAD is called with the name of every NAD that is new, different or gone.
	NAD func(namespace, name string)
	// Nodes is called when a node is new or gone, or its labels are different.
	Nodes func()
}

// mirrorAnnotation holds, on the API's mirror of a static pod, the UID under which the node knows the pod.
const mirrorAnnotation = "kubernetes.io/config.mirror"

// Is tells whether the pod is the one that a runtime calls by uid. A runtime that tells no UID, and a manifest
// without one, match by name alone.
func (p *Pod) Is(uid string) bool {
	return uid == "" || p.UID == "" || p.UID == uid || p.Annotations[mirrorAnnotation] == uid
}

// key names a pod or NAD.
type key struct{ namespace, name string }

// EventKind is how an Event about a pod is meant, in Kubernetes' words.
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
