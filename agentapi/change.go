package agentapi

import (
	"slices"

	"github.com/ovn-multinet/ovn-multinet/conf"
)

// NextChangeRequest asks for a sandbox of a running pod whose networks are to change, and says how the last one ended.
// It names no sandbox.
type NextChangeRequest struct {
	Sandbox
	Ended *ChangeEnded `json:"ended,omitempty"`
}

// ChangeEnded is the end of the plugin's run for a sandbox.
type ChangeEnded struct {
	Sandbox Sandbox `json:"sandbox"`
	Error   *Error  `json:"error,omitempty"` // nil: the run succeeded
}

// NextChange is the sandbox for which the plugin is to run; nil: there was none during the request.
type NextChange struct {
	Change *Sandbox `json:"change,omitempty"`
}

// ChangeRequest asks what to change of a running pod's networks.
type ChangeRequest struct {
	Sandbox
	Present Plan `json:"present"` // the outline of what the sandbox has
}

// Change is what the pod's annotation says now, beside what the sandbox has.
type Change struct {
	// Remove and Add are the names of interfaces.
	Remove []string `json:"remove,omitempty"`
	Add    []string `json:"add,omitempty"`
	// Positions are the indexes, in the annotation, of the attachments that stay, by the names of their interfaces.
	Positions map[string]int `json:"positions,omitempty"`
	// Repair is the value of conf.RepairAnnotation.
	Repair string `json:"repair,omitempty"`
}

// An Attachment is one network of a pod in a plan.
type Attachment struct {
	Interface, Network, Digest string
	Position                   int
	Device                     *Device // of a device plugin
}

// List lists the attachments of a plan, in the order of their positions.
func (p *Plan) List() (all []Attachment) {
	for i := range p.Interfaces {
		n := &p.Interfaces[i]
		all = append(all, Attachment{Interface: n.Name, Network: n.Network, Digest: n.Digest, Position: n.Position})
	}
	for i := range p.Delegates {
		if d := &p.Delegates[i]; !d.Chained {
			all = append(all, Attachment{
				Interface: d.Name, Network: d.Network, Digest: d.Digest, Position: d.Position, Device: d.Device,
			})
		}
	}
	slices.SortStableFunc(all, func(a, b Attachment) int { return a.Position - b.Position })
	return all
}

// Names are the names of the plan's interfaces, in the order of their positions.
func (p *Plan) Names() (names []string) {
	for _, a := range p.List() {
		names = append(names, a.Interface)
	}
	return names
}

// With is the plan and one for further interfaces of the same pod.
func (p *Plan) With(more *Plan) *Plan {
	all := *p
	all.Interfaces = slices.Concat(p.Interfaces, more.Interfaces)
	all.Delegates = slices.Concat(p.Delegates, more.Delegates)
	all.ChecksumOff = p.ChecksumOff || more.ChecksumOff
	return &all
}

// Split splits a plan into one without these interfaces, and one with them. The first one has the routes of the pod
// that stay.
func (p *Plan) Split(names []string) (without, with *Plan) {
	is := func(name string) bool { return slices.Contains(names, name) }
	isInterface := func(i Interface) bool { return is(i.Name) }
	isDelegate := func(d Delegate) bool { return is(d.Name) }
	rest, part := *p, &Plan{ChecksumOff: p.ChecksumOff}
	rest.Interfaces, part.Interfaces = halves(p.Interfaces, isInterface)
	rest.Delegates, part.Delegates = halves(p.Delegates, isDelegate)
	rest.Routes, part.Routes = halves(p.Routes, func(r Route) bool { return is(r.Interface) })
	if p.Default != nil && is(p.Default.Interface) {
		rest.Default, part.Default = nil, p.Default
	}
	return &rest, part
}

// halves splits a list into those that are not of a kind, and those that are.
func halves[T any](all []T, is func(T) bool) (others, those []T) {
	for _, one := range all {
		if is(one) {
			those = append(those, one)
		} else {
			others = append(others, one)
		}
	}
	return others, those
}

// Arrange sets the positions of attachments, by the names of their interfaces. It reports whether one has changed.
func (p *Plan) Arrange(positions map[string]int) (changed bool) {
	set := func(name string, position *int) {
		if at, known := positions[name]; known {
			changed = changed || *position != at
			*position = at
		}
	}
	for i := range p.Interfaces {
		set(p.Interfaces[i].Name, &p.Interfaces[i].Position)
	}
	for i := range p.Delegates {
		set(p.Delegates[i].Name, &p.Delegates[i].Position)
	}
	return changed
}

// Inherit gives the main routes of interfaces that are gone to interfaces that stay on the same network, which have
// them beside the main table or share them. The names are those of interfaces whose main routes may be gone from the
// kernel.
func (p *Plan) Inherit(gone *Plan) (heirs []string) {
	for _, from := range gone.Interfaces {
		for _, r := range slices.Concat(from.Routes, from.SharedRoutes) {
			to := p.heir(&from, r)
			if to == nil {
				continue
			}
			if !slices.Contains(to.Routes, r) {
				to.Routes = append(slices.Clip(to.Routes), r)
				to.SharedRoutes = slices.DeleteFunc(slices.Clone(to.SharedRoutes), func(s conf.Route) bool { return s == r })
			}
			if !slices.Contains(heirs, to.Name) {
				heirs = append(heirs, to.Name)
			}
		}
	}
	return heirs
}

// heir is the interface on the network of another one that has a route of it in the main table, or else the first one
// that knows it; nil: there is none.
func (p *Plan) heir(of *Interface, r conf.Route) (heir *Interface) {
	for k := range p.Interfaces {
		i := &p.Interfaces[k]
		switch {
		case i.Port.Switch != of.Port.Switch:
		case slices.Contains(i.Routes, r):
			return i
		case heir == nil && (slices.Contains(i.SharedRoutes, r) || slices.Contains(i.TableRoutes, r)):
			heir = i
		}
	}
	return heir
}
