package netmodel

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ovn-multinet/ovn-multinet/conf"
)

// NAD is a NetworkAttachmentDefinition, as far as it matters here.
type NAD struct {
	Namespace string
	Name      string
	Config    string // spec.config, or what is in File; "" when Omitted has a size
	Omitted   Omitted
	File      string // where Config was found, for a NAD that has no spec.config; "": in the NAD
	Created   int64  // Unix time in seconds; 0 when the source does not know
	// Resource is the device plugin's resource that its annotation names, whose devices the pods' attachments take; "": none.
	Resource string
	// Deleting says that it is on its way out and held by finalizers.
	Deleting bool
	// HasFinalizer says that our finalizer is on it.
	HasFinalizer bool
	// ForceDelete says that its owner wants its network gone with every port that is left on it.
	ForceDelete bool
	// State is the annotation that the controller writes, a NetworkState in JSON.
	State string
	// Accepted says that Config is the configuration that the controller has accepted, from OVN's database.
	Accepted bool
}

// Bounds on spec.config, in bytes.
const (
	// MaxNetworkConfig is that of an OVN network: about 300 routes fit into it.
	MaxNetworkConfig = 16 << 10
	// MaxDelegateConfig is that of other plugins' networks.
	MaxDelegateConfig = 256 << 10
	// keptConfig is how much of any configuration a source keeps: no more than the object around it takes.
	keptConfig = 1 << 10
)

// maxState bounds the annotation with a network's state: a MaxReason in which JSON escapes every byte is below it.
const maxState = 8 << 10

// maxResource bounds the name of a resource. A valid one is shorter.
const maxResource = 512

// Omitted describes a spec.config whose text a source does not keep. The zero Omitted: the text is there.
type Omitted struct {
	Size   int    // bytes
	Digest string // a hash of the text: two texts that differ have two
	Kind   string // its "type"
	Error  string // why it has no type; "": it has
}

// SetConfig takes spec.config over as far as a source may hold it in memory: the text of an OVN network, and any short
// one. Of every other text it notes what Omitted has. whole is for a caller that does not keep the NAD: the text of another
// plugin's network is taken over too. In either case a text over its bound is omitted.
func (n *NAD) SetConfig(text string, whole bool) {
	kind, _, err := kindAndName([]byte(text))
	limit := keptConfig
	switch {
	case err == nil && conf.IsOVN(kind):
		limit = MaxNetworkConfig
	case whole:
		limit = MaxDelegateConfig
	}
	if len(text) <= limit {
		n.Config, n.Omitted = text, Omitted{}
		return
	}
	sum := sha256.Sum256([]byte(text))
	n.Config, n.Omitted = "", Omitted{Size: len(text), Digest: hex.EncodeToString(sum[:16]), Kind: conf.OneLine(kind, 2*conf.MaxName)}
	if err != nil {
		n.Omitted.Error = conf.OneLine(err.Error(), 4*conf.MaxName)
	}
}

// SetState takes the annotation with the network's state over. Of one that the controller cannot have written only a hash is
// kept, which is no state.
func (n *NAD) SetState(text string) {
	if len(text) <= maxState {
		n.State = text
		return
	}
	sum := sha256.Sum256([]byte(text))
	n.State = fmt.Sprintf("%d bytes %x", len(text), sum[:16])
}

// SetResource takes the annotation ResourceNameAnnotation over. A value that is too long for a name stays invalid.
func (n *NAD) SetResource(text string) {
	n.Resource = text
	if len(text) > maxResource {
		n.Resource = strings.Clone(text[:maxResource])
	}
}

// Kind is NetworkKind of spec.config.
func (n *NAD) Kind() (string, error) {
	switch {
	case n.Omitted.Size == 0:
		return NetworkKind([]byte(n.Config))
	case n.Omitted.Error != "":
		return "", errors.New(n.Omitted.Error)
	}
	return n.Omitted.Kind, nil
}

// NetworkID is NetworkID of spec.config. That of an omitted one of conf.OverlayType is not known.
func (n *NAD) NetworkID() (string, error) {
	if n.Omitted.Size == 0 {
		return NetworkID(n.Namespace, n.Name, []byte(n.Config))
	}
	kind, err := n.Kind()
	switch {
	case err != nil:
		return "", conf.Errorf(conf.CodeInvalidConfig, correctNAD, "network %s: %w", n.ID(), err)
	case kind == conf.OverlayType:
		return "", n.tooLarge()
	case kind == conf.NetworkType:
		return n.ID(), nil
	}
	return "", nil
}

// Network is ParseNetwork of spec.config.
func (n *NAD) Network() (*Network, error) {
	if n.Omitted.Size == 0 && n.Accepted {
		return ParseAccepted(n.Namespace, n.Name, []byte(n.Config))
	}
	if n.Omitted.Size == 0 {
		return ParseNetwork(n.Namespace, n.Name, []byte(n.Config))
	}
	kind, err := n.Kind()
	switch {
	case err != nil:
		return nil, conf.Errorf(conf.CodeInvalidConfig, correctNAD, "network %s: %w", n.ID(), err)
	case !conf.IsOVN(kind):
		return nil, conf.Errorf(conf.CodeInvalidConfig, correctNAD, "network %s: type is %.64q, not %q", n.ID(), kind, conf.NetworkType)
	}
	return nil, n.tooLarge()
}

// tooLarge refuses an OVN network by the size of its spec.config.
func (n *NAD) tooLarge() error {
	return conf.Errorf(conf.CodeInvalidConfig, correctNAD, "network %s: spec.config: %w", n.ID(), conf.TooLarge(n.Omitted.Size, MaxNetworkConfig))
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
	NetworkStateAnnotation = conf.AnnotationPrefix + "network"
	ForceDeleteAnnotation  = conf.AnnotationPrefix + "force-delete"
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

// NetworkState reads the state that the NAD has; ok is false when there is none that can be read. Tenants can write the
// annotation too: the reason is one line of at most MaxReason bytes.
func (n *NAD) NetworkState() (state NetworkState, ok bool) {
	ok = n.State != "" && json.Unmarshal([]byte(n.State), &state) == nil
	state.Reason = conf.OneLine(state.Reason, conf.MaxReason)
	return state, ok
}
