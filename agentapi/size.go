package agentapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/ovn-multinet/ovn-multinet/conf"
)

// maxMessage is the largest size of a message, in bytes. 64 interfaces with all their addresses need far less.
const maxMessage = 4 << 20

// MaxPlan is the largest size of a plan before its ports are written, in bytes of JSON. The rest of a message is for
// the ports and for the other fields.
const MaxPlan = 3 << 20

// MaxResults is the largest size of all results of a pod's delegates together, in bytes. The network-status is made
// of these results, and Kubernetes accepts 256 kB of annotations.
const MaxResults = 256 << 10

// ErrTooLarge says that a message is too large.
var ErrTooLarge = errors.New("a message over its bound")

// tooLarge is an ErrTooLarge with its own text.
type tooLarge struct{ error }

func (t tooLarge) Unwrap() error { return ErrTooLarge }

// errLongMessage is the error of a message that is too large. size is 0 if the caller has read only a part of the
// message.
func errLongMessage(size int) error {
	if size == 0 {
		return tooLarge{fmt.Errorf("message of more than %d bytes", maxMessage)}
	}
	return tooLarge{fmt.Errorf("message: %w", conf.TooLarge(size, maxMessage))}
}

// planJSON is the form of a Plan in messages and in the journal.
type planJSON Plan

// MarshalJSON writes a conflist once if several delegates have the same one: the later delegates have the index of
// the first one instead. If all conflists differ, or after Apart, the text has the form that older programs read.
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

// firstOf is the index of the first delegate that has the same conflist as delegate i. An absent conflist, which JSON
// writes as null, is not shared.
func firstOf(all []Delegate, i int) int {
	if c := all[i].Conflist; len(c) == 0 || string(c) == "null" {
		return i
	}
	return slices.IndexFunc(all[:i+1], func(d Delegate) bool {
		return len(d.Conflist) == len(all[i].Conflist) &&
			(&d.Conflist[0] == &all[i].Conflist[0] || bytes.Equal(d.Conflist, all[i].Conflist))
	})
}

// UnmarshalJSON reads both forms. Delegates that share a conflist share its memory.
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
			return fmt.Errorf("plan: interface %.15q shares the configuration of delegate %d, which does not come before it",
				d.Name, *d.Shares)
		}
		d.Conflist, d.Shares = wire.Delegates[*d.Shares].Conflist, nil
	}
	*p = Plan(wire)
	return nil
}

// Apart makes MarshalJSON write every delegate's own conflist, for a plugin that cannot read the other form.
func (p *Plan) Apart() { p.apart = true }

// CheckSize refuses a plan that is larger than MaxPlan in the form in which it is sent.
func (p *Plan) CheckSize() error {
	together := *p
	together.apart = false
	text, err := json.Marshal(together)
	if err != nil {
		return err
	}
	size := len(text)
	for i := range p.Delegates {
		if p.apart && firstOf(p.Delegates, i) < i { // count the copy without making it
			size += len(p.Delegates[i].Conflist)
		}
	}
	if size <= MaxPlan {
		return nil
	}
	return conf.Errorf(conf.CodeInvalidConfig,
		"name fewer networks in the pod's annotation "+conf.NetworksAnnotation+", or shorten their spec.config",
		"the plan for the pod's networks: %w", conf.TooLarge(size, MaxPlan))
}

// Outline is the plan without the configurations and the device information of its delegates.
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
