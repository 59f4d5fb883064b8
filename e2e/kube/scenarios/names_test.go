//go:build kube

package scenarios

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovn-multinet/ovn-multinet/e2e/kube"
	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

func init() { options = append(options, kube.WithCoreDNS()) }

// frontAddress is the virtual address of Service front.
const frontAddress = "10.1.255.200"

// serviceOn is a Service on network blue, with the pods that have the label app=web.
func serviceOn(name string, port int, more string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Service
metadata:
  name: %s
  namespace: default
  labels: {service.kubernetes.io/service-proxy-name: ovn-multinet}
  annotations: {ovn-multinet/service-network: blue, ovn-multinet/service-selector: app=web%s}
spec:
  clusterIP: None
  ports: [{name: http, port: %d, targetPort: 8080}]
---
`, name, more, port)
}

// webPod is a pod of the Services on network blue.
func webPod(name, node, spec string) string {
	text := strings.Replace(pod(name, node, "blue"), "metadata:\n", "metadata:\n  labels: {app: web}\n", 1)
	return strings.Replace(text, "spec:\n", "spec:\n"+spec, 1)
}

// TestServiceNames: stock CoreDNS answers the names of Services on a network with the addresses that ready pods have on
// that network. A pod that asks and is on the network reaches what it was answered.
func TestServiceNames(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Must(w.StartCoreDNS(w.Ctx))
	client := strings.Replace(pod("client", "node1", "blue"), "spec:\n", "spec:\n  dnsPolicy: None\n  dnsConfig: {nameservers: ["+
		kube.NameServer+"], searches: [default.svc.cluster.local], options: [{name: ndots, value: '5'}]}\n", 1)
	w.Must(w.Apply(w.Ctx, nad("blue", `{"type":"ovn-multinet","subnets":"10.1.0.0/16,fd01::/64"}`)+
		webPod("a", "node1", "  hostname: first\n  subdomain: web\n")+webPod("b", "node2", "")+client))
	w.Must(w.WaitReady(w.Ctx, "default/a", "default/b", "default/client"))
	w.Must(w.Apply(w.Ctx, serviceOn("web", 8080, "")+
		serviceOn("front", 80, fmt.Sprintf(`, ovn-multinet/service-address: "%s"`, frontAddress))))
	a, b := w.status("a")[1].IPs, w.status("b")[1].IPs

	w.writeSlices()
	dashed := func(ip string) string { return strings.NewReplacer(".", "-", ":", "-").Replace(ip) }
	const web, front = "web.default.svc.cluster.local.", "front.default.svc.cluster.local."
	w.answers("A", web, a[0], b[0])
	w.answers("AAAA", web, a[1], b[1])
	w.answers("host", "web", append(slices.Clone(a), b...)...) // by the search path
	w.answers("A", "first."+web, a[0])
	w.answers("AAAA", "first."+web, a[1])
	w.answers("A", dashed(b[0])+"."+web, b[0])
	w.answers("SRV", "_http._tcp."+web, "first."+web+":8080", dashed(b[0])+"."+web+":8080", dashed(b[1])+"."+web+":8080")
	w.answers("PTR", a[0], "first."+web)
	w.answers("host", front, frontAddress)
	w.answers("SRV", "_http._tcp."+front, dashed(frontAddress)+"."+front+":80")
	if got := w.exec("default/client", "main", "/podtool", "get", "http://first.web:8080/hostname"); got != "first" {
		t.Errorf("at first.web, %q answers", got)
	}

	n := w.Node("node2")
	w.Must(n.Signal(w.Ctx, "default/b", "main", "SIGSTOP"))
	w.answers("host", web, a...)
	w.answers("SRV", "_http._tcp."+web, "first."+web+":8080")
	w.Must(n.Signal(w.Ctx, "default/b", "main", "SIGCONT"))
	w.answers("host", web, append(slices.Clone(a), b...)...)

	w.Must(w.Delete(w.Ctx, webPod("a", "node1", "")))
	w.answers("host", web, b...)
	w.answers("A", "first."+web)
}

// answers waits until CoreDNS answers pod client with these, in any order.
func (w *world) answers(kind, name string, want ...string) {
	w.T.Helper()
	slices.Sort(want)
	ctx, cancel := context.WithTimeout(w.Ctx, patience)
	defer cancel()
	w.Must(lab.Eventually(ctx, func() error {
		w.writeSlices()
		out, err := w.Exec(w.Ctx, "default/client", "main", "/podtool", "lookup", "-type", kind, name)
		got := strings.Fields(out)
		slices.Sort(got)
		if err == nil && !slices.Equal(got, want) {
			err = fmt.Errorf("%s of %s: got %q, want %q", kind, name, got, want)
		}
		return err
	}))
}

// writeSlices writes EndpointSlices for the Services, of the pods as they are now.
func (w *world) writeSlices() {
	pods, err := w.Client.CoreV1().Pods("default").List(w.Ctx, metav1.ListOptions{LabelSelector: "app=web"})
	w.Must(err)
	for i, family := range []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6} {
		var endpoints []discoveryv1.Endpoint
		for _, p := range pods.Items {
			ready := p.DeletionTimestamp == nil && slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
				return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
			})
			e := discoveryv1.Endpoint{
				Addresses:  []string{statusOf(w, &p)[1].IPs[i]},
				Conditions: discoveryv1.EndpointConditions{Ready: &ready},
			}
			if p.Spec.Subdomain == "web" && p.Spec.Hostname != "" {
				e.Hostname = &p.Spec.Hostname
			}
			endpoints = append(endpoints, e)
		}
		w.writeSlice("web", family, 8080, endpoints)
	}
	w.writeSlice("front", discoveryv1.AddressTypeIPv4, 80, []discoveryv1.Endpoint{{Addresses: []string{frontAddress}}})
}

// writeSlice makes an EndpointSlice what it should be.
func (w *world) writeSlice(service string, family discoveryv1.AddressType, port int32, endpoints []discoveryv1.Endpoint) {
	name, protocol := "http", corev1.ProtocolTCP
	text, err := json.Marshal(discoveryv1.EndpointSlice{
		TypeMeta: metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"},
		ObjectMeta: metav1.ObjectMeta{
			Name: service + "-" + strings.ToLower(string(family)), Namespace: "default",
			Labels: map[string]string{
				discoveryv1.LabelServiceName: service, discoveryv1.LabelManagedBy: "test",
				"service.kubernetes.io/service-proxy-name": "ovn-multinet", // kube-proxy does not read these either
			},
		},
		AddressType: family,
		Endpoints:   endpoints,
		Ports:       []discoveryv1.EndpointPort{{Name: &name, Port: &port, Protocol: &protocol}},
	})
	w.Must(err)
	w.Must(w.Apply(w.Ctx, string(text)))
}
