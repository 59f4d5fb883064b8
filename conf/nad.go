package conf

import (
	"encoding/json"
	"errors"
	"time"
)

// NAD is a NetworkAttachmentDefinition, as far as it matters here.
type NAD struct {
	Namespace string
	Name      string
	Config    string // spec.config, or what is in File
	File      string // where Config was found, for a NAD that has no spec.config; "": in the NAD
	Created   int64  // Unix time in seconds; 0 when the source does not know
	// Resource is the device plugin's resource that its annotation names, whose devices the pods' attachments take; "": none.
	Resource string
	// Deleting says that it is on its way out and held by finalizers.
	Deleting bool
	// Held says that our finalizer is on it.
	Held bool
	// ForceDelete says that its owner wants its network gone with every port that is left on it.
	ForceDelete bool
	// State is the annotation that the controller writes, a NetworkState in JSON.
	State string
}

// ID is "<namespace>/<name>".
func (n *NAD) ID() string { return n.Namespace + "/" + n.Name }

// ErrNotFound is what a source of NADs answers for one that does not exist.
var ErrNotFound = errors.New("not found")

// ResourceNameAnnotation is a NAD's: the resource whose devices its attachments take (Device Information Specification 1.1.0,
// section 4.1).
const ResourceNameAnnotation = "k8s.v1.cni.cncf.io/resourceName"

// NetworkFinalizer holds a NAD while its network has ports.
const NetworkFinalizer = "ovn-multinet/network"

// Annotations of a NAD: the network's state, which the controller writes, and "true" for a delete that takes all ports
// with it, which the owner writes.
const (
	NetworkStateAnnotation = AnnotationPrefix + "network"
	ForceDeleteAnnotation  = AnnotationPrefix + "force-delete"
)

// NetworkState is what the controller says of a network.
type NetworkState struct {
	// Ready says that the network is there as its NAD describes it.
	Ready bool `json:"ready"`
	// Reason says why not, in one line.
	Reason string `json:"reason,omitempty"`
	// Since is when that became so.
	Since time.Time `json:"since"`
}

// NetworkState reads the state that the NAD has; ok is false when there is none that can be read.
func (n *NAD) NetworkState() (state NetworkState, ok bool) {
	ok = n.State != "" && json.Unmarshal([]byte(n.State), &state) == nil
	return state, ok
}
