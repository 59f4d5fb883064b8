package source

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/netmodel/service"
)

const sliceName = "web-ovn-multinet-ipv4-0"

// endpoints is a wanted slice.
func endpoints(addresses ...string) discoveryv1.EndpointSlice {
	e := discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4}
	if strings.Contains(addresses[0], ":") {
		e.AddressType = discoveryv1.AddressTypeIPv6
	}
	ready, number := true, int32(80)
	for _, a := range addresses {
		e.Endpoints = append(e.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{a}, Conditions: discoveryv1.EndpointConditions{Ready: &ready},
		})
	}
	e.Ports = []discoveryv1.EndpointPort{{Port: &number}}
	return e
}

// slice is a slice with our labels, for a Service.
func slice(of string, addresses ...string) *discoveryv1.EndpointSlice {
	e := endpoints(addresses...)
	e.Labels = map[string]string{discoveryv1.LabelServiceName: of, discoveryv1.LabelManagedBy: service.ProxyName}
	return &e
}

func (s *apiServer) putSlice(t *testing.T, name string, e *discoveryv1.EndpointSlice) {
	t.Helper()
	text, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	s.put("endpointslices", "shop", name, object(t, string(text)))
}

// addressesOf are the addresses of a stored slice; "none" without it.
func (s *apiServer) addressesOf(t *testing.T, name string) string {
	t.Helper()
	o := s.get("endpointslices", "shop", name)
	if o == nil {
		return "none"
	}
	var e discoveryv1.EndpointSlice
	text, err := json.Marshal(o.Object)
	if err := errors.Join(err, json.Unmarshal(text, &e)); err != nil {
		t.Fatal(err)
	}
	var words []string
	for _, one := range e.Endpoints {
		words = append(words, one.Addresses...)
	}
	return strings.Join(words, " ")
}

// withService runs the source with the Service web, and returns the Service.
func (s *apiServer) withService(t *testing.T) (*Kube, *service.Object) {
	t.Helper()
	s.addService(t, "web", headlessSpec)
	k := s.start(t)
	told(t, s.services, "shop/web")
	o, err := k.Service(background, "shop", "web")
	if err != nil || o == nil {
		t.Fatal(o, err)
	}
	return k, o
}

// set calls SetEndpoints, and checks what it writes.
func (s *apiServer) set(t *testing.T, k *Kube, o *service.Object, want string, wanted ...discoveryv1.EndpointSlice) {
	t.Helper()
	s.wrote()
	if err := k.SetEndpoints(background, o, wanted); err != nil {
		t.Error(err)
	}
	if got := s.wrote(); got != want {
		t.Errorf("writes %q, want %q", got, want)
	}
}

// caughtUp waits until the informer of slices has the newest ones.
func (s *apiServer) caughtUp(t *testing.T, k *Kube) {
	t.Helper()
	eventually(t, "true", func() string {
		s.mu.Lock()
		defer s.mu.Unlock()
		n := 0
		for key, o := range s.objects {
			if !strings.HasPrefix(key, "endpointslices/") || o.GetLabels()[discoveryv1.LabelManagedBy] != service.ProxyName {
				continue
			}
			n++
			known, there, _ := k.slices.informer.GetStore().GetByKey(o.GetNamespace() + "/" + o.GetName())
			if !there || known.(*keptSlice).ResourceVersion != o.GetResourceVersion() {
				return key + " is old"
			}
		}
		return fmt.Sprint(n == len(k.slices.informer.GetStore().List()))
	})
}

// heardAll waits until the informer has also told us of each of our writes: its handlers run later than its store changes.
func (s *apiServer) heardAll(t *testing.T, k *Kube) {
	t.Helper()
	s.caughtUp(t, k)
	eventually(t, "0 left", func() string {
		k.slices.mu.Lock()
		defer k.slices.mu.Unlock()
		return fmt.Sprint(len(k.slices.written), " left")
	})
}

// TestSetEndpoints: slices are written once, with labels and owner, and those that are not wanted any more are deleted.
// What we write is not told.
func TestSetEndpoints(t *testing.T) {
	s := newAPIServer()
	k, o := s.withService(t)
	s.set(t, k, o, "POST shop/, POST shop/, POST shop/",
		endpoints("10.1.0.2", "10.1.0.3"), endpoints("fd01::2"), endpoints("10.1.0.4"))
	e := s.get("endpointslices", "shop", sliceName)
	if e == nil || len(e.GetLabels()) != 3 || e.GetLabels()[discoveryv1.LabelServiceName] != "web" ||
		e.GetLabels()[discoveryv1.LabelManagedBy] != "ovn-multinet" {
		t.Fatalf("slice %+v", e)
	}
	if _, headless := e.GetLabels()[corev1.IsHeadlessService]; !headless {
		t.Errorf("labels %v", e.GetLabels())
	}
	// The API server would add these, and each call would then write the slice again.
	if got := fmt.Sprint(e.Object["ports"]); got != "[map[name: port:80 protocol:TCP]]" {
		t.Errorf("ports %s", got)
	}
	owners := e.GetOwnerReferences()
	if len(owners) != 1 || owners[0].Kind != "Service" || owners[0].APIVersion != "v1" || owners[0].Name != "web" ||
		string(owners[0].UID) != o.UID || owners[0].Controller == nil || !*owners[0].Controller || owners[0].BlockOwnerDeletion != nil {
		t.Errorf("owners %+v", owners)
	}
	for name, want := range map[string]string{
		sliceName: "10.1.0.2 10.1.0.3", "web-ovn-multinet-ipv6-0": "fd01::2", "web-ovn-multinet-ipv4-1": "10.1.0.4",
	} {
		if got := s.addressesOf(t, name); got != want {
			t.Errorf("%s has %s, want %s", name, got, want)
		}
	}
	for range 2 { // at first the informer may not have the slices yet
		s.set(t, k, o, "", endpoints("10.1.0.2", "10.1.0.3"), endpoints("fd01::2"), endpoints("10.1.0.4"))
		s.heardAll(t, k)
	}
	s.set(t, k, o, "PUT shop/"+sliceName+", DELETE shop/web-ovn-multinet-ipv4-1", endpoints("10.1.0.3"), endpoints("fd01::2"))
	s.heardAll(t, k)
	s.wrote()
	if err := k.SetEndpoints(background, o, nil); err != nil || len(s.wrote()) != len("DELETE shop/, DELETE shop/")+2*len(sliceName) {
		t.Errorf("two slices are not deleted, %v", err)
	}
	s.heardAll(t, k)
	s.set(t, k, o, "")
	s.set(t, k, o, "POST shop/", endpoints("10.1.0.3"))
	s.heardAll(t, k)
	s.addService(t, "last", headlessSpec)
	if others := told(t, s.services, "shop/last"); len(others) > 0 {
		t.Errorf("told of %q: our own writes", others)
	}
}

// TestSetEndpointsBeforeTheInformer: the last call decides, also if the informer has not heard of the calls before.
func TestSetEndpointsBeforeTheInformer(t *testing.T) {
	s := newAPIServer()
	k, o := s.withService(t)
	for i := range 20 {
		addresses := []string{"10.1.0.2", "10.1.0.3"}[i%2:]
		if err := k.SetEndpoints(background, o, []discoveryv1.EndpointSlice{endpoints(addresses...)}); err != nil {
			t.Fatal(err)
		}
		if got := s.addressesOf(t, sliceName); got != strings.Join(addresses, " ") {
			t.Fatalf("call %d: the slice has %s", i, got)
		}
	}
}

// TestSlicesThatTheInformerDoesNotKnow: a slice that was made just now, and is not wanted any more, is deleted.
func TestSlicesThatTheInformerDoesNotKnow(t *testing.T) {
	s := newAPIServer()
	k, o := s.withService(t)
	for range 20 {
		if err := k.SetEndpoints(background, o, []discoveryv1.EndpointSlice{endpoints("10.1.0.2"), endpoints("10.1.0.3")}); err != nil {
			t.Fatal(err)
		}
		err := k.SetEndpoints(background, o, nil)
		eventually(t, "none none", func() string {
			for len(s.services) > 0 { // as a controller does
				<-s.services
				err = k.SetEndpoints(background, o, nil)
			}
			if err != nil {
				err = k.SetEndpoints(background, o, nil)
			}
			return s.addressesOf(t, sliceName) + " " + s.addressesOf(t, "web-ovn-multinet-ipv4-1")
		})
	}
}

// TestSlicesOfOthers: what another program changes of our slices is told and repaired.
func TestSlicesOfOthers(t *testing.T) {
	s := newAPIServer()
	k, o := s.withService(t)
	wanted := endpoints("10.1.0.2")
	for _, tt := range []struct {
		name string
		do   func()
		told []string
		want string
	}{
		{"endpoints", func() {
			s.edit("endpointslices", "shop", sliceName, func(o *unstructured.Unstructured) { delete(o.Object, "endpoints") })
		}, []string{"shop/web"}, "PUT shop/" + sliceName},
		{"the owner", func() {
			s.edit("endpointslices", "shop", sliceName, func(o *unstructured.Unstructured) { o.SetOwnerReferences(nil) })
		}, []string{"shop/web"}, "PUT shop/" + sliceName},
		{"a label", func() { s.edit("endpointslices", "shop", sliceName, labelled(corev1.IsHeadlessService, "")) },
			[]string{"shop/web"}, "PUT shop/" + sliceName},
		{"the Service's name", func() { s.edit("endpointslices", "shop", sliceName, labelled(discoveryv1.LabelServiceName, "db")) },
			[]string{"shop/web", "shop/db"}, "PUT shop/" + sliceName},
		{"its deletion", func() { s.put("endpointslices", "shop", sliceName, nil) }, []string{"shop/web"}, "POST shop/"},
		{"another slice", func() { s.putSlice(t, "x", slice("web", "10.1.0.9")) }, []string{"shop/web"}, "DELETE shop/x"},
	} {
		s.set(t, k, o, map[bool]string{true: "POST shop/"}[s.get("endpointslices", "shop", sliceName) == nil], wanted)
		s.caughtUp(t, k)
		for len(s.services) > 0 { // the repair of a slice of two Services
			<-s.services
		}
		tt.do()
		for _, want := range tt.told {
			if got := <-s.services; !slices.Contains(tt.told, got) {
				t.Errorf("%s: told of %s, want %s", tt.name, got, want)
			}
		}
		s.set(t, k, o, tt.want, wanted)
		if got := s.addressesOf(t, sliceName); got != "10.1.0.2" {
			t.Errorf("%s: %s", tt.name, got)
		}
		s.caughtUp(t, k)
	}
	// What is not ours of the slice stays, and is not told.
	s.edit("endpointslices", "shop", sliceName, labelled("example.com/x", "y"))
	s.caughtUp(t, k)
	s.set(t, k, o, "", wanted)
	s.addService(t, "last", headlessSpec)
	if others := told(t, s.services, "shop/last"); len(others) > 0 {
		t.Errorf("told of %q", others)
	}
}

// TestSliceOfAnotherProgram: a slice with a name of ours that is not ours stays as it is.
func TestSliceOfAnotherProgram(t *testing.T) {
	s := newAPIServer()
	other := slice("web", "10.1.0.9")
	other.Labels[discoveryv1.LabelManagedBy] = "other"
	s.putSlice(t, sliceName, other)
	k, o := s.withService(t)
	err := k.SetEndpoints(background, o, []discoveryv1.EndpointSlice{endpoints("10.1.0.2"), endpoints("fd01::2")})
	const want = "EndpointSlice shop/" + sliceName + ": it exists without the label " +
		"endpointslice.kubernetes.io/managed-by=ovn-multinet and may be another program's; rename or delete it"
	if errorText(err) != want {
		t.Errorf("%v, want %s", err, want)
	}
	if a, b := s.addressesOf(t, sliceName), s.addressesOf(t, "web-ovn-multinet-ipv6-0"); a != "10.1.0.9" || b != "fd01::2" {
		t.Errorf("the slices have %s and %s", a, b)
	}
	s.put("endpointslices", "shop", sliceName, nil)
	s.set(t, k, o, "POST shop/", endpoints("10.1.0.2"), endpoints("fd01::2"))
}

// TestEndpointsOfNoService: a Service that is gone, or another one of its name, gets no slices. Slices of a Service that
// was ours are told of when the source starts, and deleted.
func TestEndpointsOfNoService(t *testing.T) {
	s := newAPIServer()
	s.putSlice(t, "old-ovn-multinet-ipv4-0", slice("old", "10.1.0.2"))
	core := slice("old", "10.1.0.2")
	core.Labels[discoveryv1.LabelManagedBy] = "endpointslice-controller.k8s.io"
	s.putSlice(t, "old-abcde", core)
	s.put("services", "shop", "old", object(t, `{"spec":{}}`)) // the label was removed
	k := s.start(t)
	if others := told(t, s.services, "shop/old"); len(others) > 0 {
		t.Errorf("told of %q", others)
	}
	old := &service.Object{Namespace: "shop", Name: "old"}
	s.set(t, k, old, "DELETE shop/old-ovn-multinet-ipv4-0")
	s.caughtUp(t, k)
	if got := s.addressesOf(t, "old-abcde"); got != "10.1.0.2" {
		t.Errorf("core's slice: %s", got)
	}
	for _, o := range []*service.Object{old, {Namespace: "shop", Name: "web", UID: "former"}} {
		s.addService(t, "web", headlessSpec)
		told(t, s.services, "shop/web")
		if err := k.SetEndpoints(background, o, []discoveryv1.EndpointSlice{endpoints("10.1.0.2")}); !errors.Is(err, netmodel.ErrNotFound) {
			t.Errorf("slices of %+v: %v", o, err)
		}
		s.put("services", "shop", "web", nil)
		told(t, s.services, "shop/web")
	}
	if got := s.wrote(); got != "" {
		t.Errorf("writes %s", got)
	}
}
