package sriov

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/conf"
)

const (
	vf = "a.example/vf"
	vg = "a.example/vg"
)

// wanted are attachments net1, net2, …, each "resource" or "resource id".
func wanted(lines ...string) []Request {
	var requests []Request
	for i, line := range lines {
		resource, id, _ := strings.Cut(line, " ")
		requests = append(requests, Request{Interface: fmt.Sprint("net", i+1), Network: fmt.Sprint("shop/n", i+1), Resource: resource, ID: id})
	}
	return requests
}

func TestChoose(t *testing.T) {
	const pci, twin = "0000:18:02.5", "0000:18:02.6"
	held := func(devices ...Device) Allocated {
		h := Allocated{}
		for _, d := range devices {
			h.Add(d, "container c9 of pod shop/old")
		}
		return h
	}
	tests := []struct {
		name     string
		requests []Request
		given    map[string][]string
		held     Allocated
		want     string
	}{
		{"nothing", nil, nil, nil, ""},
		{"one", wanted(vf), map[string][]string{vf: {"d1"}}, nil, "d1"},
		{"more than are wanted", wanted(vf), map[string][]string{vf: {"d1", "d2"}}, nil, "d1"},
		{"of one resource, in order", wanted(vf, vf, vf), map[string][]string{vf: {"d1", "d2", "d3"}}, nil, "d1 d2 d3"},
		{"of two resources, each in its order", wanted(vf, vg, vf, vg), map[string][]string{vf: {"d1", "d2"}, vg: {"e1", "e2"}}, nil, "d1 e1 d2 e2"},
		{"a certain one", wanted(vf + " d2"), map[string][]string{vf: {"d1", "d2"}}, nil, "d2"},
		{"a certain one comes first", wanted(vf, vf+" d1", vf), map[string][]string{vf: {"d1", "d2", "d3"}}, nil, "d2 d1 d3"},
		{"certain ones, all", wanted(vf+" d3", vf+" d1"), map[string][]string{vf: {"d1", "d2", "d3"}}, nil, "d3 d1"},
		{"a certain one of another resource leaves its namesake", wanted(vf, vg+" d1"), map[string][]string{vf: {"d1"}, vg: {"d1"}}, nil, "d1 d1"},
		{"names that are no addresses, in two resources", wanted(vf, vg), map[string][]string{vf: {"d1"}, vg: {"d1"}}, nil, "d1 d1"},
		{"names that begin as addresses do", wanted(vf, vg), map[string][]string{vf: {pci + "0"}, vg: {pci + "0"}}, nil, pci + "0 " + pci + "0"},
		{"names in another case", wanted(vf, vf), map[string][]string{vf: {"D1", "d1"}}, nil, "D1 d1"},
		{"a held one is passed over", wanted(vf, vf), map[string][]string{vf: {"d1", "d2", "d3"}}, held(Device{vf, "d1"}), "d2 d3"},
		{"a held one in the middle", wanted(vf, vf), map[string][]string{vf: {"d1", "d2", "d3"}}, held(Device{vf, "d2"}), "d1 d3"},
		{"a held one of another resource", wanted(vf), map[string][]string{vf: {"d1"}}, held(Device{vg, "d1"}), "d1"},
		{"an address under two resources is one device", wanted(vf, vg), map[string][]string{vf: {pci}, vg: {pci, twin}}, nil, pci + " " + twin},
		{"an address in two cases is one device", wanted(vf, vf), map[string][]string{vf: {"0000:AB:02.5", "0000:ab:02.5", twin}}, nil, "0000:AB:02.5 " + twin},
		{"an address that is held under another resource", wanted(vf), map[string][]string{vf: {pci, twin}}, held(Device{vg, pci}), twin},
		{"an address that is held in capitals", wanted(vf), map[string][]string{vf: {"0000:ab:02.5", twin}}, held(Device{vf, "0000:AB:02.5"}), twin},
		{"an address of a wide domain", wanted(vf, vg), map[string][]string{vf: {"10000:00:02.0"}, vg: {"10000:00:02.0", twin}}, nil, "10000:00:02.0 " + twin},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Choose(tt.requests, tt.given, tt.held)
			if err != nil || strings.Join(got, " ") != tt.want || len(got) != len(tt.requests) {
				t.Errorf("got %q, %v; want %s", got, err, tt.want)
			}
		})
	}
}

func TestChooseRefuses(t *testing.T) {
	const (
		pci  = "0000:18:02.5"
		free = "it is free when that container's network is deleted; if its plugin will never do that: kubectl multinet forget"
		ask  = "correct deviceID in the pod's annotation k8s.v1.cni.cncf.io/networks"
	)
	limits := func(n int) string {
		return fmt.Sprintf("the pod's containers must ask for them: resources.limits: {%s: %d}", vf, n)
	}
	held := Allocated{}
	held.Add(Device{vf, "d1"}, "container c9 of pod shop/old")
	held.Add(Device{vf, "d2"}, "container c8 of pod shop/older")
	held.Add(Device{vf, pci}, "container c7 of pod shop/oldest")
	tests := []struct {
		name          string
		requests      []Request
		given         map[string][]string
		want, details string
	}{
		{"the pod has none", wanted(vf), nil, "interface net1: network shop/n1: the pod has 0 of resource a.example/vf, and 1 of its attachments take one", limits(1)},
		{"it has those of another resource", wanted(vf), map[string][]string{vg: {"d1"}}, "interface net1: network shop/n1: the pod has 0 of resource a.example/vf, and 1 of its attachments take one", limits(1)},
		{"fewer than attachments", wanted(vf, vg, vf), map[string][]string{vf: {"d7"}, vg: {"e1"}}, "interface net3: network shop/n3: the pod has 1 of resource a.example/vf, and 2 of its attachments take one", limits(2)},
		{"a certain one is one of them", wanted(vf+" d7", vf), map[string][]string{vf: {"d7"}}, "interface net2: network shop/n2: the pod has 1 of resource a.example/vf, and 2 of its attachments take one", limits(2)},
		{"fewer, and one of them is held", wanted(vf, vf), map[string][]string{vf: {"d1"}}, "interface net1: network shop/n1: the pod has 1 of resource a.example/vf, and 2 of its attachments take one", limits(2)},
		{"the only one is held", wanted(vf), map[string][]string{vf: {"d1"}}, "interface net1: network shop/n1: no device of resource a.example/vf is free: d1 is allocated to container c9 of pod shop/old", free},
		{"all of them are", wanted(vf), map[string][]string{vf: {"d1", "d2"}},
			"interface net1: network shop/n1: no device of resource a.example/vf is free: d1 is allocated to container c9 of pod shop/old, d2 is allocated to container c8 of pod shop/older", free},
		{"the last one is", wanted(vf, vf), map[string][]string{vf: {"d0", "d1"}}, "interface net2: network shop/n2: no device of resource a.example/vf is free: d0 is another attachment's, d1 is allocated to container c9 of pod shop/old", free},
		{"given under another resource", wanted(vf, vg), map[string][]string{vf: {"0000:18:02.6"}, vg: {"0000:18:02.6"}}, "interface net2: network shop/n2: no device of resource a.example/vg is free: 0000:18:02.6 is another attachment's", free},
		{"held under another resource", wanted(vg), map[string][]string{vg: {pci}}, "interface net1: network shop/n1: no device of resource a.example/vg is free: " + pci + " is allocated to container c7 of pod shop/oldest", free},
		{"a certain one that is not the pod's", wanted(vf + " d5"), map[string][]string{vf: {"d3", "d4"}}, "interface net1: network shop/n1: device d5 of resource a.example/vf is not the pod's, which has d3, d4", ask},
		{"a certain one where it has none", wanted(vf + " d5"), map[string][]string{vg: {"d5"}}, "interface net1: network shop/n1: device d5 of resource a.example/vf is not the pod's, which has none", ask},
		{"a certain one in another case", wanted(vf + " 0000:AB:02.5"), map[string][]string{vf: {"0000:ab:02.5"}}, "interface net1: network shop/n1: device 0000:AB:02.5 of resource a.example/vf is not the pod's, which has 0000:ab:02.5", ask},
		{"a certain one that is held", wanted(vf, vf+" d1"), map[string][]string{vf: {"d1", "d3"}}, "interface net2: network shop/n2: device d1 of resource a.example/vf is allocated to container c9 of pod shop/old", free},
		{"another's, and held", wanted(vf + " d1"), map[string][]string{vf: {"d3"}}, "interface net1: network shop/n1: device d1 of resource a.example/vf is not the pod's, which has d3", ask},
		{"a certain one twice", wanted(vf+" d3", vf+" d3"), map[string][]string{vf: {"d3", "d4"}}, "interface net2: network shop/n2: device d3 of resource a.example/vf is asked for twice", ask},
		{"a certain address under two resources", wanted(vf+" 0000:18:02.6", vg+" 0000:18:02.6"), map[string][]string{vf: {"0000:18:02.6"}, vg: {"0000:18:02.6"}},
			"interface net2: network shop/n2: device 0000:18:02.6 of resource a.example/vg is asked for twice", ask},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Choose(tt.requests, tt.given, held)
			if got != nil {
				t.Errorf("got %q", got)
			}
			wantCoded(t, err, conf.CodeNoDevice, tt.want)
			if _, _, details := conf.Describe(err); details != tt.details {
				t.Errorf("details %s\nwant    %s", details, tt.details)
			}
		})
	}
}

// randomPod makes up a pod, its devices and what is held.
func randomPod(seed uint64) (requests []Request, given map[string][]string, held Allocated) {
	r := rand.New(rand.NewPCG(seed, 7))
	resources := []string{vf, vg, "b.example/vf"}
	ids := []string{"d1", "d2", "D2", "x", "0000:18:02.5", "0000:AB:02.6", "0000:ab:02.6", "10000:00:02.0"}
	given, held = map[string][]string{}, Allocated{}
	for _, resource := range resources {
		for _, id := range ids {
			if r.IntN(2) == 0 {
				given[resource] = append(given[resource], id)
			}
			if r.IntN(8) == 0 {
				held.Add(Device{resource, id}, "another")
			}
		}
	}
	for i := range r.IntN(6) {
		w := Request{Interface: fmt.Sprint("net", i), Network: "shop/n", Resource: resources[r.IntN(3)]}
		if r.IntN(4) == 0 {
			w.ID = ids[r.IntN(len(ids))]
		}
		requests = append(requests, w)
	}
	return requests, given, held
}

// Whatever is asked for and held: no device goes to two attachments, none that is held goes to anybody, each
// attachment gets one of its own resource that is the pod's, and the same one when it is asked again. Where that
// cannot be, the error says so.
func FuzzChoose(f *testing.F) {
	for seed := range uint64(500) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		requests, given, held := randomPod(seed)
		before := maps.Clone(held)
		got, err := Choose(requests, given, held)
		again, _ := Choose(requests, given, held)
		if !slices.Equal(got, again) || !maps.Equal(held, before) {
			t.Errorf("%q at first, %q then; held %v, then %v", got, again, before, held)
		}
		if err != nil {
			if got != nil || !conf.HasCode(err, conf.CodeNoDevice) {
				t.Errorf("%q, %v", got, err)
			}
			if enough(requests, given, held) {
				t.Errorf("%v for %+v of %v, with %v held", err, requests, given, held)
			}
			return
		}
		if len(got) != len(requests) {
			t.Fatalf("%q for %+v", got, requests)
		}
		taken := map[string]bool{}
		for i, id := range got {
			// An address is one device on the whole node, in whichever case; another name is its resource's.
			name := requests[i].Resource + "/" + id
			if strings.Contains(id, ":") {
				name = strings.ToLower(id)
			}
			if _, isAllocated := held[(Device{requests[i].Resource, id}).key()]; isAllocated || taken[name] || !slices.Contains(given[requests[i].Resource], id) || requests[i].ID != "" && requests[i].ID != id {
				t.Errorf("%s for %+v: %q of %v, with %v held", id, requests[i], got, given, held)
			}
			taken[name] = true
		}
	})
}

// enough tells of pods without certain wishes whether each resource has more free devices than attachments, even if
// all the others' were taken from it.
func enough(requests []Request, given map[string][]string, held Allocated) bool {
	for _, w := range requests {
		free := map[string]bool{}
		for _, id := range given[w.Resource] {
			if d := (Device{w.Resource, id}); held[d.key()] == "" {
				free[strings.ToLower(id)] = true
			}
		}
		if w.ID != "" || len(free) < len(requests) {
			return false
		}
	}
	return true
}
