package journal

import (
	"encoding/json"
	"slices"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
)

// unplanned reports whether a change has begun with an interface that the plan does not have: the agent may have
// written its port, and the plugin ended before it had the plan.
func (e *Summary) unplanned() bool {
	if len(e.Changing) == 0 {
		return false
	}
	names := e.Plan.Names()
	return slices.ContainsFunc(e.Changing, func(name string) bool { return !slices.Contains(names, name) })
}

// Settled is the plan without the interfaces that are changing. The entry must have a plan.
func (e *Summary) Settled() *agentapi.Plan {
	if len(e.Changing) == 0 {
		return e.Plan
	}
	plan, _ := e.Plan.Split(e.Changing)
	return plan
}

// Part is an entry with only some interfaces of a pod that keeps the others.
func (e *Entry) Part(names []string) *Entry {
	part := &Entry{Version: e.Version, Summary: e.Summary, NetNS: e.NetNS, Args: e.Args}
	_, part.Plan = e.Plan.Split(names)
	part.Changing = slices.Clone(names)
	part.take(e, func(name string) bool { return slices.Contains(names, name) })
	return part
}

// Remove removes interfaces from the entry.
func (e *Entry) Remove(names []string) {
	rest := &Entry{}
	rest.take(e, func(name string) bool { return !slices.Contains(names, name) })
	e.Plan, _ = e.Plan.Split(names)
	e.Begun, e.Results, e.Devices = rest.Begun, rest.Results, rest.Devices
	e.Changing = slices.DeleteFunc(e.Changing, func(name string) bool { return slices.Contains(names, name) })
}

// take takes over what another entry has of the delegates with these names, in their order.
func (e *Entry) take(from *Entry, has func(name string) bool) {
	for i := range from.Plan.Delegates {
		if !has(from.Plan.Delegates[i].Name) {
			continue
		}
		if i < from.Begun {
			e.Begun++
		}
		if i < len(from.Results) {
			e.Results = append(e.Results, from.Results[i])
		}
		if i < len(from.Devices) {
			e.Devices = append(e.Devices, orNull(from.Devices[i]))
		}
	}
}

func orNull(text json.RawMessage) json.RawMessage {
	if len(text) == 0 {
		return json.RawMessage("null")
	}
	return text
}
