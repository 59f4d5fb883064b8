//go:build kube

package scenarios

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
	"github.com/ovn-multinet/ovn-multinet/netmodel/service"
)

// attackServices: the controller's token writes nothing but the state onto our Services, and no EndpointSlice but ours.
func (s *thief) attackServices() {
	add := func(name string, labels map[string]string) {
		_, err := s.Client.CoreV1().Services("default").Create(s.Ctx, &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
			Spec:       corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone, Ports: []corev1.ServicePort{{Port: 80}}},
		}, metav1.CreateOptions{})
		s.Must(err)
	}
	add("ours", map[string]string{service.ProxyLabel: service.ProxyName})
	add("other", nil)
	for name, class := range map[string]string{"balanced": service.LoadBalancerClass, "foreign": "example.com/other"} {
		_, err := s.Client.CoreV1().Services("default").Create(s.Ctx, &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{service.ProxyLabel: service.ProxyName}},
			Spec: corev1.ServiceSpec{
				Type: corev1.ServiceTypeLoadBalancer, LoadBalancerClass: &class, AllocateLoadBalancerNodePorts: new(false),
				Ports: []corev1.ServicePort{{Port: 80}},
			},
		}, metav1.CreateOptions{})
		s.Must(err)
	}
	services := s.core.CoreV1().Services("default")
	patch := func(name, body string, sub ...string) error {
		_, err := services.Patch(s.Ctx, name, types.MergePatchType, []byte(body), metav1.PatchOptions{}, sub...)
		return err
	}
	const (
		state       = `{"metadata":{"annotations":{"ovn-multinet/service-state":"{}"}}}`
		nothingElse = "neither labels, finalizers, owners nor spec"
		ingress     = `{"status":{"loadBalancer":{"ingress":[{"ip":"192.0.2.17"}]}}}`
		condition   = `{"status":{"conditions":[{"type":"a/b","status":"True","reason":"c","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`
		noStatus    = "nothing of the status of a Service but the addresses"
	)
	s.cannot("reconfigure a Service", nothingElse, patch("ours", `{"spec":{"ports":[{"port":81}]}}`))
	s.cannot("label a Service", nothingElse, patch("ours", `{"metadata":{"labels":{"a":"b"}}}`))
	s.cannot("hold a Service", nothingElse, patch("ours", `{"metadata":{"finalizers":["a/b"]}}`))
	s.cannot("point a Service at another network", "no annotation of a Service but",
		patch("ours", `{"metadata":{"annotations":{"ovn-multinet/service-network":"red"}}}`))
	s.cannot("write another program's Service", "no Service without the label", patch("other", state))
	s.cannot("write a Service's status", noStatus, patch("ours", condition, "status"))
	s.cannot("write a Service's conditions", noStatus, patch("balanced", condition, "status"))
	s.cannot("write the addresses of another class", noStatus, patch("foreign", ingress, "status"))
	s.cannot("write an annotation with the status", "no annotation of a Service but",
		patch("balanced", `{"metadata":{"annotations":{"ovn-multinet/service-network":"red"}}}`, "status"))
	s.Must(patch("balanced", ingress, "status"))
	s.cannot("delete a Service", "cannot delete resource", services.Delete(s.Ctx, "ours", metav1.DeleteOptions{}))
	s.Must(patch("ours", state))
	s.attackSlices()
}

// attackSlices tries to write the EndpointSlices of others.
func (s *thief) attackSlices() {
	slices := s.core.DiscoveryV1().EndpointSlices("default")
	slice := func(name string, labels ...string) *discoveryv1.EndpointSlice {
		e := &discoveryv1.EndpointSlice{
			ObjectMeta:  metav1.ObjectMeta{Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: "other"}},
			AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.1.0.2"}}},
		}
		for _, key := range labels {
			e.Labels[key] = map[string]string{discoveryv1.LabelManagedBy: service.ProxyName}[key]
		}
		return e
	}
	create := func(e *discoveryv1.EndpointSlice) error {
		_, err := slices.Create(s.Ctx, e, metav1.CreateOptions{})
		return err
	}
	update := func(e *discoveryv1.EndpointSlice) error {
		_, err := slices.Update(s.Ctx, e, metav1.UpdateOptions{})
		return err
	}
	other, err := s.Client.CoreV1().Services("default").Get(s.Ctx, "other", metav1.GetOptions{})
	s.Must(err)
	owned := func(name, by string, labels ...string) *discoveryv1.EndpointSlice {
		e := slice(name, append(labels, corev1.IsHeadlessService)...)
		e.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Service", Name: by, UID: other.UID}}
		return e
	}
	const itsService = "begins with the name of its Service, which is its only owner"
	const notOurs, notHeadless = "without the label endpointslice.kubernetes.io/managed-by", "without the label service.kubernetes.io/headless"
	s.cannot("make an EndpointSlice in another program's name", notOurs, create(slice("x", corev1.IsHeadlessService)))
	s.cannot("redirect a Service", notHeadless, create(slice("x", discoveryv1.LabelManagedBy)))
	s.cannot("make an EndpointSlice without an owner", itsService,
		create(slice("other-ovn-multinet-x", discoveryv1.LabelManagedBy, corev1.IsHeadlessService)))
	s.cannot("make an EndpointSlice of a Service by another name", itsService, create(owned("x", "other", discoveryv1.LabelManagedBy)))
	s.cannot("make an EndpointSlice of two Services", itsService, create(owned("other-ovn-multinet-x", "ours", discoveryv1.LabelManagedBy)))
	_, err = s.Client.DiscoveryV1().EndpointSlices("default").Create(s.Ctx, slice("y"), metav1.CreateOptions{})
	s.Must(err)
	s.cannot("take over an EndpointSlice", notOurs, update(slice("y", discoveryv1.LabelManagedBy, corev1.IsHeadlessService)))
	s.cannot("delete another program's EndpointSlice", notOurs, slices.Delete(s.Ctx, "y", metav1.DeleteOptions{}))
	const z = "other-ovn-multinet-z"
	var givenAway error
	s.Must(lab.Eventually(s.Ctx, func() error { // the controller deletes such a slice when it sees it
		if err := create(owned(z, "other", discoveryv1.LabelManagedBy)); err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
		if givenAway = update(owned(z, "other")); apierrors.IsNotFound(givenAway) {
			return givenAway
		}
		return nil
	}))
	s.cannot("give an EndpointSlice away", notOurs, givenAway)
	if err := slices.Delete(s.Ctx, z, metav1.DeleteOptions{}); !apierrors.IsNotFound(err) {
		s.Must(err)
	}
}
