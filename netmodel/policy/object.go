package policy

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
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
	Policy    *Policy // nil: the policy cannot be served, or Shed
	Refusal   string  // why it cannot be served
	State     string  // the value of StateAnnotation
	Size      int     // Policy.Bytes
	// Shed tells that the source does not keep the policy in memory. PolicySource.Policy reads it again.
	Shed bool
	// Isolation is a policy that allows nothing to the pods that this one is for, in its directions. It stands for a
	// MultiNetworkPolicy that is refused. A ClusterNetworkPolicy has none.
	Isolation *Policy
}

// ID is "<namespace>/<name>"; of a ClusterNetworkPolicy, its name.
func (o *Object) ID() string { return objectID(o.Namespace, o.Name) }

// Networks are the NADs that the policy names, as far as they can be read.
func (o *Object) Networks() []string {
	switch {
	case o.Policy != nil:
		return o.Policy.Networks
	case o.Isolation != nil:
		return o.Isolation.Networks
	}
	return nil
}

// ForAll reports whether the policy is for all networks.
func (o *Object) ForAll() bool { return slices.Equal(o.Networks(), []string{AllNetworks}) }

// Created is the time of its creation, as Unix time; 0 if it is not known.
func (o *Object) Created() int64 {
	switch {
	case o.Policy != nil:
		return o.Policy.Created
	case o.Isolation != nil:
		return o.Isolation.Created
	}
	return 0
}

// Without returns the object without its policy, which Size counts.
func (o *Object) Without() *Object {
	return &Object{
		Namespace: o.Namespace, Name: o.Name, State: o.State, Size: o.Size, Shed: true, Isolation: o.Isolation,
	}
}

// NewObject parses a policy; without a namespace, a ClusterNetworkPolicy. size is the length of the whole object in
// bytes.
func NewObject(
	namespace, name string, created int64, annotations map[string]string, spec []byte, size int,
) *Object {
	o := &Object{Namespace: namespace, Name: name, State: annotations[StateAnnotation]}
	if len(o.State) > maxState {
		o.State = o.State[:maxState]
	}
	p, err := parseObject(namespace, name, created, annotations, spec, size)
	if err == nil && p.Bytes() > MaxBytes {
		err = fmt.Errorf("spec: the policy becomes %d bytes in OVN's database, %d is the limit: write several policies, "+
			"with fewer peers and ranges of ports", p.Bytes(), MaxBytes)
	}
	if namespace != "" {
		o.Isolation = isolation(namespace, name, created, annotations, spec)
	}
	if err != nil { // the reason may quote a long word of the tenant
		o.Refusal = strings.Clone(cutText(err.Error(), maxRefusal))
		return o
	}
	o.Policy, o.Size = p, p.Bytes()
	return o
}

func parseObject(
	namespace, name string, created int64, annotations map[string]string, spec []byte, size int,
) (p *Policy, err error) {
	if size > MaxText {
		return nil, fmt.Errorf("the object has %d bytes, %d is the limit", size, MaxText)
	}
	if namespace == "" {
		p, err = ParseCluster(name, annotations, spec)
	} else {
		p, err = Parse(namespace, name, annotations, spec)
	}
	if err != nil {
		return nil, err
	}
	p.Created = created
	if p.LogDenied, err = logDenied(annotations); err != nil {
		return nil, err
	}
	p.Text, err = encode(p, annotations[ForAnnotation], spec)
	return p, err
}

func logDenied(annotations map[string]string) (bool, error) {
	switch annotations[LogAnnotation] {
	case "", "false":
		return false, nil
	case "true":
		return true, nil
	}
	return false, errors.New("annotation " + LogAnnotation + ": the value is neither true nor false")
}

// stored is the form of Policy.Text.
type stored struct {
	For     string          `json:"for"`
	Created int64           `json:"created"`
	Log     string          `json:"log,omitempty"`
	Spec    json.RawMessage `json:"spec"`
}

func encode(p *Policy, networks string, spec []byte) (string, error) {
	s := stored{For: networks, Created: p.Created, Spec: spec}
	if p.LogDenied {
		s.Log = "true"
	}
	text, err := json.Marshal(s)
	return string(text), err
}

// ParseText reads a policy from its Text. The limits do not matter: another version may have accepted it.
func ParseText(namespace, name, text string) (*Policy, error) {
	var s stored
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return nil, err
	}
	annotations := map[string]string{ForAnnotation: s.For, LogAnnotation: s.Log}
	return parseObject(namespace, name, s.Created, annotations, s.Spec, 0)
}

const (
	// maxState is longer than any state that the controller writes, in bytes: a reason of 1 KiB that JSON escapes all. A
	// state that is cut would be written again at each pass.
	maxState = 8 << 10
	// maxRefusal is longer than the reason in any state, in bytes.
	maxRefusal = 2 << 10
)

// cutText shortens a text. It does not cut a character.
func cutText(text string, limit int) string {
	return strings.ToValidUTF8(text[:min(len(text), limit)], "")
}

// Newer reports whether the resource version a is newer than b. Resource versions of one kind in the API of Kubernetes
// are decimal numbers that grow (KEP-5504). Without one of the two, the answer is no.
func Newer(a, b string) bool {
	of, err := strconv.ParseUint(a, 10, 64)
	than, otherErr := strconv.ParseUint(b, 10, 64)
	return err == nil && otherErr == nil && of > than
}
