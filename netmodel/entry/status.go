package entry

import (
	"encoding/json"
	"time"
)

// Status is what the controller says of an object. In the API it has the form of Encode.
type Status struct {
	// Observed is the generation that Reason is about; 0: the controller has not seen the object yet.
	Observed int64
	// Reason says why the spec does not count; "": it counts.
	Reason string
	// Accepted is the last spec that was accepted, and counts, also while the present one is refused. nil: nothing of the
	// object counts. Another controller, which has not seen an edit, reads here what counted before it.
	Accepted json.RawMessage
	// Problem says what is missing for an object whose spec counts; "": nothing.
	Problem string
	Users   int      // how many networks, or users of outside addresses, need the object
	UsedBy  []string // the first MaxUsedBy of them
	// Nodes says how far nodes have a bridge for a physical network with uplinks; nil: the object has no such network.
	Nodes *Nodes
	Since time.Time
	Ready time.Time // since when the condition Ready is what it is
}

// Nodes are the nodes that an uplink of a physical network fits.
type Nodes struct {
	Ready    string   `json:"ready"`    // "3/4": how many have the bridge, and how many should
	Problems []string `json:"problems"` // of the first nodes without it, each with the node's name
}

// The problems of an object that is new, or whose nodes are about to have their bridges. They are no Events.
const (
	NotYet   = "it has not been checked yet"
	Settling = "nodes are making their bridges"
)

// MaxUsedBy is the bound on the users that a status names.
const MaxUsedBy = 10

// Counts reports whether the present spec of the object counts.
func (s *Status) Counts() bool { return s.Observed != 0 && s.Reason == "" }

// condition is a condition as the API has it (metav1.Condition).
type condition struct {
	Type     string    `json:"type"`
	Status   string    `json:"status"`
	Reason   string    `json:"reason"`
	Message  string    `json:"message"`
	Observed int64     `json:"observedGeneration,omitempty"`
	Since    time.Time `json:"lastTransitionTime"`
}

// The conditions of an object, with their reasons.
const (
	accepted   = "Accepted"
	isReady    = "Ready"
	refused    = "Refused"
	incomplete = "Incomplete"
)

type statusJSON struct {
	Conditions []condition     `json:"conditions"`
	Users      int             `json:"users"`
	UsedBy     []string        `json:"usedBy"`
	Accepted   json.RawMessage `json:"accepted"` // null deletes it in a merge patch (RFC 7386)
	Nodes      *Nodes          `json:"nodes"`    // so it does here
}

// Encode returns the status in the form of the API.
func (s *Status) Encode() ([]byte, error) {
	is := func(yes bool) string { return map[bool]string{true: "True", false: "False"}[yes] }
	a := condition{accepted, is(s.Counts()), accepted, "the configuration has the entry", s.Observed, s.Since}
	r := condition{isReady, is(s.Counts() && s.Problem == ""), isReady, "nothing is missing", s.Observed, s.Ready}
	switch {
	case s.Reason != "":
		a.Reason, a.Message = refused, s.Reason
		r.Reason, r.Message = refused, "see the condition Accepted"
	case s.Problem != "":
		r.Reason, r.Message = incomplete, s.Problem
	}
	out := statusJSON{[]condition{a, r}, s.Users, s.UsedBy, s.Accepted, s.Nodes}
	if out.UsedBy == nil {
		out.UsedBy = []string{}
	}
	return json.Marshal(out)
}

// DecodeStatus reads a text of Encode. Of another text it returns the zero Status.
func DecodeStatus(text []byte) (s Status) {
	var in statusJSON
	if len(text) == 0 || json.Unmarshal(text, &in) != nil {
		return Status{}
	}
	for _, c := range in.Conditions {
		switch c.Type {
		case accepted:
			s.Observed, s.Since = c.Observed, c.Since
			if c.Status != "True" {
				s.Reason = c.Message
			}
		case isReady:
			s.Ready = c.Since
			if c.Reason == incomplete {
				s.Problem = c.Message
			}
		}
	}
	s.Users, s.UsedBy, s.Nodes = in.Users, in.UsedBy, in.Nodes
	s.Accepted = Canonical(in.Accepted)
	if len(s.UsedBy) == 0 {
		s.UsedBy = nil
	}
	return s
}
