package netmodel

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ovn-multinet/ovn-multinet/conf"
)

// NAD is what the project uses of a NetworkAttachmentDefinition.
type NAD struct {
	Namespace string
	Name      string
	Config    *Config
	File      string // the file that Config was read from, if the NAD has no spec.config; "": Config is spec.config
	Created   int64  // Unix time in seconds; 0 if the source does not know the time
	// Resource is the device plugin's resource whose devices the attachments take; "": none.
	Resource string
	// Deleting says that the NAD is being deleted and waits for its finalizers.
	Deleting bool
	// HasFinalizer says that the NAD has our finalizer.
	HasFinalizer bool
	// ForceDelete says that the owner wants the network deleted with every port that is left on it.
	ForceDelete bool
	// State is the annotation that the controller writes, a NetworkState in JSON.
	State string
}

// maxState is longer than any state that the controller writes: a reason of MaxReason bytes that JSON escapes all.
const maxState = 8 << 10

// maxResource is longer than any valid name of a resource.
const maxResource = 512

// TrimState returns what a source keeps of the annotation with the network's state. If the controller cannot have
// written the text, the source keeps only a hash, which is not a state.
func TrimState(text string) string {
	if len(text) <= maxState {
		return text
	}
	sum := sha256.Sum256([]byte(text))
	return fmt.Sprintf("%d bytes %x", len(text), sum[:16])
}

// TrimResource returns what a source keeps of the annotation ResourceNameAnnotation. A name that is too long stays
// invalid.
func TrimResource(text string) string {
	if len(text) <= maxResource {
		return text
	}
	return strings.Clone(text[:maxResource])
}

// WithAccepted returns a copy of the NAD with the configuration that the controller has accepted, from NB.
func (n *NAD) WithAccepted(config string) *NAD {
	other := *n
	other.Config = parseAcceptedConfig(n.Namespace, n.Name, config)
	other.Config.name = n.config().name // the accepted form has no key without a meaning
	return &other
}

// ConfigName is the "name" of the configuration of an OVN network. The network of an IPAMClaim is called by it.
func (n *NAD) ConfigName() string { return n.config().name }

// Equal reports whether two NADs have the same content.
func (n *NAD) Equal(other *NAD) bool {
	a, b := *n, *other
	a.Config, b.Config = nil, nil
	return a == b && n.Config.Digest() == other.Config.Digest()
}

func (n *NAD) config() *Config {
	if n.Config == nil {
		return ParseConfig(n.Namespace, n.Name, "", 0)
	}
	return n.Config
}

// Kind is the "type" of the configuration. Every type but conf.NetworkType and conf.OverlayType is another CNI plugin.
func (n *NAD) Kind() (string, error) {
	c := n.config()
	return c.kind, c.kindErr
}

// NetworkID returns the ID of the OVN network that the NAD describes, or "" for a network of other plugins. The error
// says why the configuration has no ID.
func (n *NAD) NetworkID() (string, error) {
	c := n.config()
	if c.idErr != nil {
		return "", invalid(n.Namespace, n.Name, c.idErr)
	}
	return c.id, nil
}

// Unusable returns why no CNI plugin can make anything of the NAD: its configuration cannot be read, or its type is a
// misspelt one of ours. A NAD without a configuration is for a file on the node.
func (n *NAD) Unusable() error {
	c := n.config()
	switch near := conf.NearOVN(c.kind); {
	case c.kindErr != nil && c.size > 0:
		return invalid(n.Namespace, n.Name, c.kindErr)
	case near != "":
		return invalid(n.Namespace, n.Name, fmt.Errorf("type is %q, did you mean %q?", c.kind, near))
	}
	return nil
}

// Network returns the OVN network that the NAD describes. All callers get the same Network.
func (n *NAD) Network() (*Network, error) {
	c, err := n.config(), error(nil)
	if err = c.networkErr; err == nil && c.network == nil {
		err = notOVN(c.kind)
	}
	if err != nil {
		return nil, invalid(n.Namespace, n.Name, err)
	}
	return c.network, nil
}

// ID returns "<namespace>/<name>".
func (n *NAD) ID() string { return n.Namespace + "/" + n.Name }

// ErrNotFound is the error of a source for a NAD that does not exist.
var ErrNotFound = errors.New("not found")

// ResourceNameAnnotation is an annotation of a NAD: the resource whose devices its attachments take (Device Information
// Specification 1.1.0, section 4.1).
const ResourceNameAnnotation = "k8s.v1.cni.cncf.io/resourceName"

// NetworkFinalizer keeps a NAD while its network has ports.
const NetworkFinalizer = "ovn-multinet/network"

// Annotations of a NAD. The controller writes the network's state. The owner writes "true" to delete the network with
// all ports on it.
const (
	NetworkStateAnnotation = conf.AnnotationPrefix + "network"
	ForceDeleteAnnotation  = conf.AnnotationPrefix + "force-delete"
)

// BeingDeleted begins the reason of a network that is deleted when its last port is gone. Its users follow.
const BeingDeleted = "being deleted, "

// NetworkState is the state that the controller writes onto the NAD of a network.
type NetworkState struct {
	// Ready says that the network is as its NAD describes it.
	Ready bool `json:"ready"`
	// Reason says why the network is not ready, or what does not work on a network that is ready, in one line.
	Reason string `json:"reason,omitempty"`
	// Since is the time of the last change of Ready or Reason.
	Since time.Time `json:"since"`
}

// NetworkState reads the NAD's state; ok is false if there is no valid state. Tenants can write the annotation too, so
// the reason is cut to one line of at most MaxReason bytes.
func (n *NAD) NetworkState() (state NetworkState, ok bool) {
	ok = n.State != "" && json.Unmarshal([]byte(n.State), &state) == nil
	state.Reason = conf.OneLine(state.Reason, conf.MaxReason)
	return state, ok
}
