package sysdump

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/nad"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
)

// metadata is what the archive has of the metadata of every object.
type metadata struct {
	Name              string            `json:"name"`
	Namespace         string            `json:"namespace,omitempty"`
	UID               types.UID         `json:"uid,omitempty"`
	ResourceVersion   string            `json:"resourceVersion,omitempty"`
	Generation        int64             `json:"generation,omitempty"`
	CreationTimestamp metav1.Time       `json:"creationTimestamp,omitzero"`
	DeletionTimestamp *metav1.Time      `json:"deletionTimestamp,omitempty"`
	Labels            map[string]string `json:"labels,omitempty"`
	Finalizers        []string          `json:"finalizers,omitempty"`
	Annotations       annotations       `json:"annotations,omitzero"`
}

// annotations has the annotations of an object that are ours, or that we read. Of the others it has the number.
type annotations struct {
	Known map[string]json.RawMessage `json:"known,omitempty"`
	// Omitted are the keys of ours whose values are not in the archive.
	Omitted []string `json:"omitted,omitempty"`
	Others  int      `json:"others,omitempty"`
}

// UnmarshalJSON keeps no value that the archive may not have.
func (a *annotations) UnmarshalJSON(text []byte) error {
	var all map[string]string
	if err := utiljson.Unmarshal(text, &all); err != nil {
		return err
	}
	for key, value := range all {
		keep := knownAnnotations[key]
		switch {
		case keep == nil && strings.HasPrefix(key, conf.AnnotationPrefix):
			a.Omitted = append(a.Omitted, key)
		case keep == nil:
			a.Others++
		default:
			kept := keep(value)
			if kept == nil || len(value) > conf.MaxAnnotation {
				a.Omitted = append(a.Omitted, key)
				continue
			}
			if a.Known == nil {
				a.Known = map[string]json.RawMessage{}
			}
			a.Known[key] = kept
		}
	}
	slices.Sort(a.Omitted)
	return nil
}

// ofNetworks reports whether an object has annotations that are ours, or that we read.
func (a *annotations) ofNetworks() bool { return len(a.Known) > 0 || len(a.Omitted) > 0 }

// knownAnnotations say what is kept of a value; nil: nothing.
var knownAnnotations = map[string]func(value string) json.RawMessage{
	conf.NetworksAnnotation:             requests,
	conf.DefaultNetworkAnnotation:       names,
	conf.RoutesAnnotation:               whole,
	conf.OutsideAnnotation:              whole,
	conf.RepairAnnotation:               whole,
	nad.StatusAnnotation:                projected[[]networkStatus],
	netmodel.NetworkStateAnnotation:     whole,
	netmodel.ForceDeleteAnnotation:      whole,
	netmodel.ResourceNameAnnotation:     names,
	"ovn-multinet/policy-state":         whole,
	"ovn-multinet/log-denied":           whole,
	"k8s.v1.cni.cncf.io/policy-for":     names,
	"ovn-multinet/rotate":               whole,
	"deployment.kubernetes.io/revision": names,
}

// whole keeps a value that only our programs read or write.
func whole(value string) json.RawMessage {
	text, _ := json.Marshal(value)
	return text
}

var listOfNames = regexp.MustCompile(`^[A-Za-z0-9._/@, -]*$`)

// names keeps a list of names.
func names(value string) json.RawMessage {
	if len(value) > 4096 || !listOfNames.MatchString(value) {
		return nil
	}
	return whole(value)
}

// projected keeps the fields that T has.
func projected[T any](value string) json.RawMessage {
	var fields T
	if utiljson.Unmarshal([]byte(value), &fields) != nil {
		return nil
	}
	text, err := json.Marshal(fields)
	if err != nil {
		return nil
	}
	return text
}

// requests keeps the annotation with a pod's networks. "cni-args" are for other plugins, and may have their secrets.
func requests(value string) json.RawMessage {
	switch trimmed := strings.TrimSpace(value); {
	case strings.HasPrefix(trimmed, "["):
		return projected[[]request](trimmed)
	default:
		return names(trimmed)
	}
}

// request is what is kept of an attachment request (multi-net-spec 1.3, section 4.1.2.1).
type request struct {
	Name           string            `json:"name,omitempty"`
	Namespace      string            `json:"namespace,omitempty"`
	Interface      string            `json:"interface,omitempty"`
	IPs            []string          `json:"ips,omitempty"`
	MAC            string            `json:"mac,omitempty"`
	DefaultRoute   []string          `json:"default-route,omitempty"`
	PortMappings   []nad.PortMapping `json:"portMappings,omitempty"`
	Bandwidth      *nad.Bandwidth    `json:"bandwidth,omitempty"`
	InfinibandGUID string            `json:"infiniband-guid,omitempty"`
	IPAMClaim      string            `json:"ipam-claim-reference,omitempty"`
	DeviceID       string            `json:"deviceID,omitempty"`
}

// networkStatus is what is kept of an entry of network-status (multi-net-spec 1.3, section 5.3).
type networkStatus struct {
	Name         string   `json:"name"`
	Interface    string   `json:"interface,omitempty"`
	IPs          []string `json:"ips,omitempty"`
	MAC          string   `json:"mac,omitempty"`
	MTU          int      `json:"mtu,omitempty"`
	Default      bool     `json:"default"`
	Gateway      []string `json:"gateway,omitempty"`
	DefaultRoute []string `json:"default-route,omitempty"`
}
