package service

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
)

// A Service is ours if its label ProxyLabel has the value ProxyName. kube-proxy ignores Services with that label.
const (
	ProxyLabel = "service.kubernetes.io/service-proxy-name"
	ProxyName  = "ovn-multinet"
)

// Annotations of a Service.
const (
	// NetworkAnnotation names the network, by its NAD: "<name>" or "<namespace>/<name>".
	NetworkAnnotation = "ovn-multinet/service-network"
	// SelectorAnnotation selects the pods of the Service's namespace that are the backends, in the form of kubectl -l.
	SelectorAnnotation = "ovn-multinet/service-selector"
	// AddressAnnotation is "auto", or a virtual address, or one of each family separated by a comma. Without it, the
	// Service is headless.
	AddressAnnotation = "ovn-multinet/service-address"
	// OutsideAnnotation is "auto", or an address of a pool of the router's gateway, or one of each family: outside hosts
	// reach the Service at it. With "gateway" they reach it at the gateway's own addresses, which Services share: each
	// port has one of them. A Service of type LoadBalancer has an outside address without the annotation too.
	OutsideAnnotation = "ovn-multinet/service-outside-address"
	// SourcesAnnotation has the subnets of the outside hosts that may do so, separated by commas. Without it, all may.
	SourcesAnnotation = "ovn-multinet/service-outside-sources"
	// StateAnnotation says whether the Service is accepted, as JSON.
	StateAnnotation = "ovn-multinet/service-state"
)

// LoadBalancerClass is the class of a Service of type LoadBalancer that is ours.
const LoadBalancerClass = "ovn-multinet/gateway"

// annotationPrefix is the prefix of our annotations of Services.
const annotationPrefix = "ovn-multinet/service-"

// maxState is longer than any state that the controller writes, in bytes: a reason of 1 KiB that JSON escapes all. A
// state that is cut would be written again at each pass.
const maxState = 8 << 10

// Object is a Service as its source has it.
type Object struct {
	Namespace string
	Name      string
	UID       string
	Service   *Service // nil: the Service cannot be served
	Refusal   string   // why
	State     string   // the value of StateAnnotation
	// Ingress are the addresses in the status of a Service of type LoadBalancer.
	Ingress []netip.Addr
}

// ID is "<namespace>/<name>".
func (o *Object) ID() string { return o.Namespace + "/" + o.Name }

// NewObject parses a Service, whose spec is JSON. If the Service is not ours, the result is nil.
func NewObject(namespace, name string, created int64, labels, annotations map[string]string, spec []byte) *Object {
	if labels[ProxyLabel] != ProxyName {
		return nil
	}
	o := &Object{Namespace: namespace, Name: name, State: annotations[StateAnnotation]}
	if len(o.State) > maxState {
		o.State = o.State[:maxState]
	}
	from := stored{
		Created: created, Network: annotations[NetworkAnnotation], Selector: annotations[SelectorAnnotation],
		Address: optional(annotations, AddressAnnotation), Outside: optional(annotations, OutsideAnnotation),
		Sources: optional(annotations, SourcesAnnotation), Spec: spec,
	}
	err := checkAnnotations(annotations)
	if size := from.size(); size > MaxText {
		err = fmt.Errorf("spec and annotations have %d bytes, %d is the limit", size, MaxText)
	}
	var s *Service
	if err == nil {
		s, err = parse(namespace, name, from)
	}
	if err != nil {
		o.Refusal = err.Error()
		return o
	}
	o.Service = s
	return o
}

// stored is the form of Service.Text.
type stored struct {
	Created  int64           `json:"created"`
	Network  string          `json:"network"`
	Selector string          `json:"selector"`
	Address  *string         `json:"address,omitempty"`
	Outside  *string         `json:"outside,omitempty"`
	Sources  *string         `json:"sources,omitempty"`
	Spec     json.RawMessage `json:"spec"`
}

func (s *stored) size() int {
	size := len(s.Network) + len(s.Selector) + len(s.Spec)
	for _, text := range []*string{s.Address, s.Outside, s.Sources} {
		if text != nil {
			size += len(*text)
		}
	}
	return size
}

// ParseText reads a service from its Text. A text may be longer than MaxText, because JSON escapes some characters.
func ParseText(namespace, name, text string) (*Service, error) {
	var s stored
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return nil, err
	}
	return parse(namespace, name, s)
}

func parse(namespace, name string, from stored) (*Service, error) {
	if !json.Valid(from.Spec) {
		return nil, errors.New("spec: it is no JSON")
	}
	s := &Service{Namespace: namespace, Name: name, Created: from.Created}
	for _, step := range []func(*stored) error{s.setNetwork, s.setPods, s.setAddress, s.setOutside, s.setSpec} {
		if err := step(&from); err != nil {
			return nil, err
		}
	}
	text, err := json.Marshal(from)
	s.Text = string(text)
	return s, err
}

func optional(annotations map[string]string, key string) *string {
	if value, ok := annotations[key]; ok {
		return &value
	}
	return nil
}
