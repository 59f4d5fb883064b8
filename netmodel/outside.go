package netmodel

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/ovn-multinet/ovn-multinet/conf"
)

// OutsideRequest is the outside addresses that a pod wants for one of its interfaces.
type OutsideRequest struct {
	Interface string
	Egress    bool         // an egress address; otherwise a floating one
	Fixed     []netip.Addr // at most one of each family; none: any of Pool
	Pool      string       // "": of any pool that is granted to the namespace
}

type outsideJSON struct {
	Interface string `json:"interface"`
	Floating  string `json:"floating"`
	Egress    string `json:"egress"`
	Pool      string `json:"pool"`
}

// maxOutsideRequests is how many interfaces a pod can have.
const maxOutsideRequests = 64

// ParseOutside parses the value of conf.OutsideAnnotation. The error names the annotation.
func ParseOutside(text string) ([]OutsideRequest, error) {
	requests, err := parseOutside(text)
	if err != nil {
		return nil, fmt.Errorf("annotation %s: %w", conf.OutsideAnnotation, err)
	}
	return requests, nil
}

func parseOutside(text string) (requests []OutsideRequest, err error) {
	if err := conf.CheckAnnotation(text); err != nil {
		return nil, err
	}
	var list []json.RawMessage
	if err := json.Unmarshal([]byte(text), &list); err != nil || list == nil { // nil: of null
		return nil, errors.New(`it is no JSON list like [{"interface":"net1","floating":"auto"}]`)
	}
	if len(list) > maxOutsideRequests {
		return nil, fmt.Errorf("%d interfaces, at most %d are allowed", len(list), maxOutsideRequests)
	}
	for i, one := range list {
		request, err := parseOutsideOne(one)
		if err != nil {
			return nil, fmt.Errorf("[%d]: %w", i, err)
		}
		if slices.ContainsFunc(requests, func(r OutsideRequest) bool { return r.Interface == request.Interface }) {
			return nil, fmt.Errorf("[%d]: interface %s is there twice", i, request.Interface)
		}
		requests = append(requests, request)
	}
	return requests, nil
}

func parseOutsideOne(text []byte) (r OutsideRequest, err error) {
	var raw outsideJSON
	if err := conf.DecodeObject(text, &raw, nil); err != nil {
		return r, err
	}
	if len(raw.Interface) == 0 || len(raw.Interface) > 15 {
		return r, fmt.Errorf("interface: %.64q is no name of an interface, like net1", raw.Interface)
	}
	key, value := "floating", raw.Floating
	if r.Egress = raw.Egress != ""; r.Egress {
		key, value = "egress", raw.Egress
	}
	if (raw.Floating == "") == (raw.Egress == "") {
		return r, errors.New(`write either floating or egress: "auto", or an address of each family at most`)
	}
	r.Interface, r.Pool = raw.Interface, raw.Pool
	if value == "auto" {
		return r, nil
	}
	if r.Pool != "" {
		return r, fmt.Errorf("pool: it is for %q: \"auto\", a fixed address says itself of which pool it is", key)
	}
	for _, word := range splitList(value) {
		a, err := parseAddr(word)
		if err != nil {
			return r, fmt.Errorf("%s: %.64q is neither \"auto\" nor an address", key, word)
		}
		if slices.ContainsFunc(r.Fixed, func(other netip.Addr) bool { return sameFamily(other, a) }) {
			return r, fmt.Errorf("%s: write one address of each family at most", key)
		}
		r.Fixed = append(r.Fixed, a)
	}
	return r, nil
}
