package agentapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/ovn-multinet/ovn-multinet/conf"
)

// maxMessage bounds a message, in bytes: 64 interfaces with all their addresses are far below it.
const maxMessage = 4 << 20

// MaxPlan bounds a plan before its ports are written, in bytes of JSON. It leaves the ports and what is around a
// plan in a message room.
const MaxPlan = 3 << 20

// MaxResults bounds what the delegates of a pod report together, in bytes: network-status is made of it, and
// Kubernetes takes 256 kB of annotations.
const MaxResults = 256 << 10

// ErrTooLarge says that a message is over its bound.
var ErrTooLarge = errors.New("a message over its bound")

// tooLarge is ErrTooLarge with a text of its own.
type tooLarge struct{ error }

func (t tooLarge) Unwrap() error { return ErrTooLarge }

// errLongMessage refuses a message that the caller has not sent yet, or has only read a part of.
func errLongMessage(size int) error {
	if size == 0 {
		return tooLarge{fmt.Errorf("message of more than %d bytes", maxMessage)}
	}
	return tooLarge{fmt.Errorf("message: %w", conf.TooLarge(size, maxMessage))}
}

// planJSON is a Plan in its form on the wire and in the journal.
type planJSON Plan

// MarshalJSON writes a conflist that several delegates have once: the others name the first one by its place. Where
// no two are alike, and in the form of Apart, it is the form that older programs read.
func (p Plan) MarshalJSON() ([]byte, error) {
	if p.apart {
		return json.Marshal(planJSON(p))
	}
	wire := planJSON(p)
	wire.Delegates = slices.Clone(p.Delegates)
	for i := range wire.Delegates {
		if first := firstOf(p.Delegates, i); first < i {
			wire.Delegates[i].Conflist, wire.Delegates[i].Shares = nil, &first
		}
	}
	return json.Marshal(wire)
}

// firstOf is the place of the first delegate that has the same conflist as the i-th. An absent conflist, which JSON
// writes as null, is not shared.
func firstOf(all []Delegate, i int) int {
	if c := all[i].Conflist; len(c) == 0 || string(c) == "null" {
		return i
	}
	return slices.IndexFunc(all[:i+1], func(d Delegate) bool {
		return len(d.Conflist) == len(all[i].Conflist) && (&d.Conflist[0] == &all[i].Conflist[0] || bytes.Equal(d.Conflist, all[i].Conflist))
	})
}

// UnmarshalJSON reads either form. Delegates that share a conflist share its memory.
func (p *Plan) UnmarshalJSON(text []byte) error {
	var wire planJSON
	if err := json.Unmarshal(text, &wire); err != nil {
		return err
	}
	for i := range wire.Delegates {
		d := &wire.Delegates[i]
		if d.Shares == nil {
			continue
		}
		if *d.Shares < 0 || *d.Shares >= i {
			return fmt.Errorf("plan: interface %.15q shares the configuration of delegate %d, which does not come before it", d.Name, *d.Shares)
		}
		d.Conflist, d.Shares = wire.Delegates[*d.Shares].Conflist, nil
	}
	*p = Plan(wire)
	return nil
}

// Apart has the plan written with every delegate's own conflist, for a plugin that knows no other form.
func (p *Plan) Apart() { p.apart = true }

// CheckSize refuses a plan that is over MaxPlan, in the form that it is sent in.
func (p *Plan) CheckSize() error {
	together := *p
	together.apart = false
	text, err := json.Marshal(together)
	if err != nil {
		return err
	}
	size := len(text)
	for i := range p.Delegates {
		if p.apart && firstOf(p.Delegates, i) < i { // counted without being made
			size += len(p.Delegates[i].Conflist)
		}
	}
	if size <= MaxPlan {
		return nil
	}
	return conf.Errorf(conf.CodeInvalidConfig, "name fewer networks in the pod's annotation "+conf.NetworksAnnotation+", or shorten their spec.config",
		"the plan for the pod's networks: %w", conf.TooLarge(size, MaxPlan))
}

// Outline is the plan without what configures its delegates.
func (p *Plan) Outline() *Plan {
	outline := *p
	outline.Delegates = slices.Clone(p.Delegates)
	for i := range outline.Delegates {
		d := &outline.Delegates[i]
		d.Conflist, d.Capabilities, d.Args = nil, nil, nil
		if d.Device != nil {
			d.Device = &Device{Resource: d.Device.Resource, ID: d.Device.ID}
		}
	}
	return &outline
}
