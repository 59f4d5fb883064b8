package sriov

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/sriov/deviceinfo"
)

// Request is an attachment that needs a device.
type Request struct {
	Interface string
	Network   string // for errors
	Resource  string
	ID        string // the requested device; "": any device of the resource
}

// Device names a device. The device plugin chooses the ID; it is unique in a resource.
type Device struct{ Resource, ID string }

// key returns the same string for all names of one device. A PCI address is unique on the node: the same address in two
// resources means the same device.
func (d Device) key() string {
	if deviceinfo.IsPCIAddress(d.ID) {
		return strings.ToLower(d.ID)
	}
	return d.Resource + " " + d.ID
}

// Allocated has the devices that attachments on this node use, each with its holder.
type Allocated map[string]string

// Add adds a device and its holder.
func (h Allocated) Add(d Device, holder string) { h[d.key()] = holder }

// Choose chooses a device for each attachment, from the devices that kubelet gave to the pod. given has their IDs by
// resource. Attachments that request a device by its ID are served first. Each other attachment then gets the next free
// device of its resource. Choose never chooses a device in allocated.
func Choose(requests []Request, given map[string][]string, allocated Allocated) ([]string, error) {
	chosen, taken := make([]string, len(requests)), map[string]bool{}
	for i, w := range requests {
		if w.ID == "" {
			continue
		}
		d := Device{w.Resource, w.ID}
		switch holder, isAllocated := allocated[d.key()]; {
		case !slices.Contains(given[w.Resource], w.ID):
			return nil, w.refuse(correct, "device %s of resource %s is not the pod's, which has %s",
				w.ID, w.Resource, list(given[w.Resource]))
		case isAllocated:
			return nil, w.refuse(whenAllocated, "device %s of resource %s is allocated to %s", w.ID, w.Resource, holder)
		case taken[d.key()]:
			return nil, w.refuse(correct, "device %s of resource %s is asked for twice", w.ID, w.Resource)
		}
		chosen[i], taken[d.key()] = w.ID, true
	}
	for i, w := range requests {
		if w.ID != "" {
			continue
		}
		var why []string
		for _, id := range given[w.Resource] {
			d := Device{w.Resource, id}
			holder, isAllocated := allocated[d.key()]
			if isAllocated {
				why = append(why, fmt.Sprintf("%s is allocated to %s", id, holder))
			} else if !taken[d.key()] {
				chosen[i], taken[d.key()] = id, true
				break
			} else {
				why = append(why, id+" is another attachment's")
			}
		}
		if chosen[i] == "" {
			return nil, w.none(requests, given[w.Resource], why)
		}
	}
	return chosen, nil
}

const (
	correct       = "correct deviceID in the pod's annotation " + conf.NetworksAnnotation
	whenAllocated = "it is free when that container's network is deleted; " +
		"if its plugin will never do that: kubectl multinet forget"
)

// none returns the error for an attachment that gets no device.
func (w *Request) none(requests []Request, given, allocated []string) error {
	n := 0
	for _, other := range requests {
		if other.Resource == w.Resource {
			n++
		}
	}
	if len(given) >= n && len(allocated) > 0 {
		return w.refuse(whenAllocated, "no device of resource %s is free: %s", w.Resource, strings.Join(allocated, ", "))
	}
	return w.refuse(fmt.Sprintf("the pod's containers must ask for them: resources.limits: {%s: %d}", w.Resource, n),
		"the pod has %d of resource %s, and %d of its attachments take one", len(given), w.Resource, n)
}

func (w *Request) refuse(details, format string, args ...any) error {
	return conf.Errorf(conf.CodeNoDevice, details,
		"interface %s: network %s: %w", w.Interface, w.Network, fmt.Errorf(format, args...))
}

func list(ids []string) string {
	if len(ids) == 0 {
		return "none"
	}
	return strings.Join(ids, ", ")
}
