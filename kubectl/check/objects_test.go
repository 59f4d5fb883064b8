package check

import (
	"errors"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/netmodel/entry"
)

// TestObjects: what an operator has to do about an object, and nothing where all are accepted.
func TestObjects(t *testing.T) {
	of := func(status entry.Status) *entry.Object {
		return &entry.Object{Kind: entry.KindOf("Router"), Name: "core", Generation: 2, Status: status}
	}
	judged(t, CheckObjects(nil, nil))
	says(t, CheckObjects([]*entry.Object{of(entry.Status{Observed: 2})}, nil), "operator-objects", "1 of 1 are accepted")
	judged(t, CheckObjects([]*entry.Object{of(entry.Status{Observed: 2})}, nil))
	judged(t, CheckObjects([]*entry.Object{
		of(entry.Status{}), of(entry.Status{Observed: 1}),
		of(entry.Status{Observed: 2, Reason: "vlanID: 5000"}),
		of(entry.Status{Observed: 2, Reason: "vlanID: 5000", Accepted: []byte("{}")}),
		of(entry.Status{Observed: 2, Problem: "no node has the label"}),
	}, nil),
		"warning operator-objects: Router/core: no controller has read its present spec",
		"warning operator-objects: Router/core: no controller has read its present spec",
		"error operator-objects: Router/core is refused: vlanID: 5000",
		"error operator-objects: Router/core is refused, and its former spec is used: vlanID: 5000",
		"warning operator-objects: Router/core: no node has the label")
	judged(t, CheckObjects(nil, errors.New("forbidden")), "error operator-objects: cannot be read: forbidden")
}
