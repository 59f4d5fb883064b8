package service

import (
	"fmt"
	"strings"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
)

// inWords writes slices in one line each.
func inWords(all []EndpointSlice) string {
	var lines []string
	for _, slice := range all {
		line := string(slice.AddressType)
		for _, p := range slice.Ports {
			line += fmt.Sprintf(" %q/%s=%d", *p.Name, *p.Protocol, *p.Port)
		}
		for _, e := range slice.Endpoints {
			line += " " + endpointInWords(&e)
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

func endpointInWords(e *discoveryv1.Endpoint) string {
	words := e.Addresses[0]
	if e.Hostname != nil {
		words += "(" + *e.Hostname + ")"
	}
	if e.TargetRef != nil {
		words += "@" + e.TargetRef.Name + "/" + string(e.TargetRef.UID) + "/" + *e.NodeName
	}
	if *e.Conditions.Ready {
		words += "+"
	}
	return words
}

// TestSlices: those of a virtual address have the port of the Service, those of pods the ports of the pods. Pods with
// different numbers for a name are in different slices.
func TestSlices(t *testing.T) {
	pods := []Backend{
		{Name: "c", UID: "3", Node: "n", Addresses: addresses("10.1.0.3", "fd01::3"), Ready: true, Ports: map[string]uint16{"tcp/http": 81}},
		{Name: "b", UID: "2", Node: "n", Addresses: addresses("10.1.0.2"), Hostname: "b", Subdomain: "web", Ports: map[string]uint16{"tcp/http": 80}},
		{Name: "a", UID: "1", Node: "n", Addresses: addresses("10.1.0.1", "fd01::1"), Ready: true, Hostname: "x", Subdomain: "other", Ports: map[string]uint16{"tcp/http": 80}},
		{Name: "d", UID: "4", Node: "n", Addresses: addresses("10.1.0.4"), Ready: true},
	}
	const named = `,"ports":[{"name":"http","port":8080,"targetPort":"http"}]`
	for _, test := range []struct {
		name, spec string
		more       []string
		want       string
	}{
		{"virtual", named, []string{AddressAnnotation, "10.1.0.9,fd01::9"},
			"IPv4 \"http\"/TCP=8080 10.1.0.9+\nIPv6 \"http\"/TCP=8080 fd01::9+"},
		{"headless", named, nil, "IPv4 \"http\"/TCP=80 10.1.0.1@a/1/n+ 10.1.0.2(b)@b/2/n\n" +
			"IPv4 \"http\"/TCP=81 10.1.0.3@c/3/n+\n" +
			"IPv6 \"http\"/TCP=80 fd01::1@a/1/n+\nIPv6 \"http\"/TCP=81 fd01::3@c/3/n+"},
		{"without ports, and pods that are not ready", `,"ipFamilies":["IPv4"],"publishNotReadyAddresses":true`, nil,
			"IPv4 10.1.0.1@a/1/n+ 10.1.0.2(b)@b/2/n+ 10.1.0.3@c/3/n+ 10.1.0.4@d/4/n+"},
	} {
		s := parsed(t, spec(test.spec), annotations(test.more...))
		if got := inWords(s.Slices(s.Fixed, pods)); got != test.want {
			t.Errorf("%s:\n%s\nwant\n%s", test.name, got, test.want)
		}
	}
}

// TestManyEndpoints: a slice has at most 100.
func TestManyEndpoints(t *testing.T) {
	var pods []Backend
	for i := range 201 {
		pods = append(pods, Backend{Name: fmt.Sprintf("p%03d", i), Addresses: addresses(fmt.Sprintf("10.1.1.%d", i))})
	}
	all := parsed(t, spec(onePort), annotations()).Slices(nil, pods)
	if len(all) != 3 || len(all[0].Endpoints) != 100 || len(all[2].Endpoints) != 1 {
		t.Errorf("%d slices, want 3 with 100, 100 and 1", len(all))
	}
}
