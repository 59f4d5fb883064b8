package policy

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
)

// StateAnnotation is the annotation of a policy that says whether the policy is accepted, as JSON.
const StateAnnotation = "ovn-multinet/policy-state"

// LogAnnotation is the annotation of a policy that has OVN log packets that the policy denies: "true" or "false".
const LogAnnotation = "ovn-multinet/log-denied"

// StateCondition is the type of the condition of a ClusterNetworkPolicy that says the same.
const StateCondition = "ovn-multinet/Accepted"

// Object is a MultiNetworkPolicy or a ClusterNetworkPolicy as its source has it.
type Object struct {
	Namespace string // "": a ClusterNetworkPolicy
	Name      string
	Policy    *Policy // nil: the policy cannot be served
	Refusal   string  // why
	State     string  // the value of StateAnnotation
}

// ID is "<namespace>/<name>"; of a ClusterNetworkPolicy, its name.
func (o *Object) ID() string { return objectID(o.Namespace, o.Name) }

// NewObject parses a policy; without a namespace, a ClusterNetworkPolicy. size is the length of the whole object in
// bytes.
func NewObject(
	namespace, name string, created int64, annotations map[string]string, spec []byte, size int,
) *Object {
	o := &Object{Namespace: namespace, Name: name, State: annotations[StateAnnotation]}
	if len(o.State) > maxState {
		o.State = o.State[:maxState]
	}
	if size > MaxText {
		o.Refusal = fmt.Sprintf("the object has %d bytes, %d is the limit", size, MaxText)
		return o
	}
	parse := Parse
	if namespace == "" {
		parse = func(_, name string, annotations map[string]string, spec []byte) (*Policy, error) {
			return ParseCluster(name, annotations, spec)
		}
	}
	p, err := parse(namespace, name, annotations, spec)
	if err != nil {
		o.Refusal = err.Error()
		return o
	}
	p.Created = created
	switch annotations[LogAnnotation] {
	case "", "false":
	case "true":
		p.LogDenied = true
	default:
		o.Refusal = "annotation " + LogAnnotation + ": the value is neither true nor false"
		return o
	}
	if p.Text, err = encode(p, annotations, spec); err != nil {
		o.Refusal = err.Error()
		return o
	}
	o.Policy = p
	return o
}

// stored is the form of Policy.Text.
type stored struct {
	For     string          `json:"for"`
	Created int64           `json:"created"`
	Log     string          `json:"log,omitempty"`
	Spec    json.RawMessage `json:"spec"`
}

func encode(p *Policy, annotations map[string]string, spec []byte) (string, error) {
	s := stored{For: annotations[ForAnnotation], Created: p.Created, Spec: spec}
	if p.LogDenied {
		s.Log = "true"
	}
	text, err := json.Marshal(s)
	return string(text), err
}

// ParseText reads a policy from its Text.
func ParseText(namespace, name, text string) (*Policy, error) {
	var s stored
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return nil, err
	}
	o := NewObject(namespace, name, s.Created, map[string]string{ForAnnotation: s.For, LogAnnotation: s.Log}, s.Spec, 0)
	if o.Policy == nil {
		return nil, errors.New(o.Refusal)
	}
	return o.Policy, nil
}

// maxState is longer than any state that the controller writes, in bytes.
const maxState = 2 << 10

// Pod is what policies and Services need of a pod.
type Pod struct {
	Namespace string
	Name      string
	UID       string
	Mirror    string // the UID that a runtime uses, of a static pod
	Node      string // "": the pod is not bound to a node yet
	Labels    map[string]string
	// ManyLabels tells that the labels are longer than MaxLabels. They are not kept then.
	ManyLabels bool
	Ports      []string // as of NamedPorts
	// Ready tells that the pod is ready and is not being deleted. Ending tells that it is being deleted.
	Ready, Ending bool
	// Outside is the value of conf.OutsideAnnotation.
	Outside string
	// Hostname is the pod's name within the Service with the name Subdomain; both are of the pod's spec.
	Hostname, Subdomain string
	// Version is the resource version that the labels are of. A manifest has none.
	Version string
}

// Newer tells whether the resource version a is newer than b. Resource versions of one kind in the API of Kubernetes
// are decimal numbers that grow (KEP-5504). Without one of the two, the answer is no.
func Newer(a, b string) bool {
	of, err := strconv.ParseUint(a, 10, 64)
	than, otherErr := strconv.ParseUint(b, 10, 64)
	return err == nil && otherErr == nil && of > than
}

// Is tells whether the pod is the one with the UID that a port has. A manifest may have no UID.
func (p *Pod) Is(uid string) bool {
	return uid == "" || p.UID == "" || p.UID == uid || p.Mirror == uid
}
