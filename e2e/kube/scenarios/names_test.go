//go:build kube

package scenarios

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"
	"golang.org/x/net/dns/dnsmessage"

	"github.com/ovn-multinet/ovn-multinet/e2e/kube"
	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
	"github.com/ovn-multinet/ovn-multinet/e2e/labtest"
)

func init() { options = append(options, kube.WithCoreDNS()) }

const (
	// front4 and front6 are the virtual addresses of Service front.
	front4, front6 = "10.1.255.200", "fd01::ffc8"

	webName, frontName = "web.default.svc.cluster.local.", "front.default.svc.cluster.local."
)

// serviceOn is a Service on network blue, with the pods that have the label app=web.
func serviceOn(name string, port int, annotations, spec string) string {
	_, namespace, name := at(name)
	return fmt.Sprintf(`apiVersion: v1
kind: Service
metadata:
  name: %s
  namespace: %s
  labels: {service.kubernetes.io/service-proxy-name: ovn-multinet}
  annotations: {ovn-multinet/service-network: default/blue, ovn-multinet/service-selector: app=web%s}
spec:
  clusterIP: None
  ports: [{name: http, port: %d, targetPort: 8080}]%s
---
`, name, namespace, annotations, port, spec)
}

func virtualAt(list string) string { return fmt.Sprintf(`, ovn-multinet/service-address: "%s"`, list) }

// webPod is a pod of the Services on network blue.
func webPod(name, node, spec string) string {
	text := strings.Replace(pod(name, node, "blue"), "metadata:\n", "metadata:\n  labels: {app: web}\n", 1)
	return strings.Replace(text, "spec:\n", "spec:\n"+spec, 1)
}

// asks is a pod that asks a name server.
func asks(pod, nameServer, search string) string {
	return strings.Replace(pod, "spec:\n", "spec:\n  dnsPolicy: None\n  dnsConfig: {nameservers: ["+nameServer+
		"], searches: ["+search+"], options: [{name: ndots, value: '5'}]}\n", 1)
}

// TestServiceNames: stock CoreDNS answers the names of Services on a network with the addresses that ready pods have on
// that network, or with virtual addresses. A pod that asks and is on the network reaches what it was answered.
func TestServiceNames(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Must(w.StartCoreDNS(w.Ctx))
	pods := webPod("a", "node1", "  hostname: first\n  subdomain: web\n") + webPod("b", "node2", "") +
		asks(pod("client", "node1", "blue"), kube.NameServer, "default.svc.cluster.local")
	w.Must(w.Apply(w.Ctx, nad("blue", `{"type":"ovn-multinet","subnets":"10.1.0.0/16,fd01::/64"}`)+pods))
	w.Must(w.WaitReady(w.Ctx, "default/a", "default/b", "default/client"))
	services := serviceOn("web", 8080, "", "") + serviceOn("front", 80, virtualAt(front4+","+front6), "")
	w.Must(w.Apply(w.Ctx, services))
	for _, c := range []struct {
		name string
		part func(*world)
	}{
		{"answers", (*world).namesAnswered},
		{"connections by name", (*world).connectionsByName},
		{"a pod that is not ready", (*world).namesOfReadyPods},
		{"StatefulSet", (*world).namesOfStatefulSet},
		{"slices of others", (*world).slicesRepaired},
		{"another tenant", (*world).namesOfAnotherTenant},
		{"API server down", (*world).namesWithoutAPI},
		{"next leader", (*world).namesWithNextLeader},
		{"a resolver of the network's own", (*world).resolverOfNetwork},
		{"pod deleted", (*world).namesAfterPod},
		{"label removed", (*world).namesAfterLabel},
		{"Service deleted", (*world).namesAfterService},
	} {
		w.run(c.name, c.part)
		if t.Failed() {
			t.FailNow() // what comes after would only fail of the same
		}
	}
	w.Must(w.Delete(w.Ctx, services+pods))
	w.until(w.nothingLeft)
}

// dashed is the name that CoreDNS gives to an address.
func dashed(ip string) string { return strings.NewReplacer(".", "-", ":", "-").Replace(ip) }

// netIPs are the addresses of a pod on its first network.
func (w *world) netIPs(name string) []string { return slices.Clone(w.status(name)[1].IPs) }

func (w *world) namesAnswered() {
	a, b := w.netIPs("a"), w.netIPs("b")
	w.answers("A", webName, a[0], b[0])
	w.answers("AAAA", webName, a[1], b[1])
	w.answers("host", "web", append(a, b...)...) // by the search path
	w.answers("A", "first."+webName, a[0])
	w.answers("AAAA", "first."+webName, a[1])
	w.answers("A", dashed(b[0])+"."+webName, b[0])
	w.answers("SRV", "_http._tcp."+webName,
		"first."+webName+":8080", dashed(b[0])+"."+webName+":8080", dashed(b[1])+"."+webName+":8080")
	w.answers("PTR", a[0], "first."+webName)
	w.answers("A", frontName, front4)
	w.answers("AAAA", frontName, front6)
	w.answers("SRV", "_http._tcp."+frontName, dashed(front4)+"."+frontName+":80", dashed(front6)+"."+frontName+":80")
}

// connectionsByName: both families reach both backends by the name of the virtual address. A backend sees the client's
// address on the network.
func (w *world) connectionsByName() {
	client := w.netIPs("client")
	if got := w.exec("default/client", "main", "/podtool", "get", "http://first.web:8080/hostname"); got != "first" {
		w.T.Errorf("at first.web, %q answers", got)
	}
	for i, network := range []string{"tcp4", "tcp6"} {
		get := func(path string) string {
			return w.exec("default/client", "main", "/podtool", "get", "-network", network, "http://front/"+path)
		}
		seen := map[string]bool{}
		w.until(func() error {
			if seen[get("hostname")] = true; !seen["first"] || !seen["b"] {
				return fmt.Errorf("by %s, only %v have answered", network, seen)
			}
			return nil
		})
		if got := get("client"); got != client[i] || len(seen) != 2 {
			w.T.Errorf("by %s, %v have answered and see the client %s, want %s", network, seen, got, client[i])
		}
	}
}

// namesOfReadyPods: pod b stops, and goes on.
func (w *world) namesOfReadyPods() {
	a, b, n := w.netIPs("a"), w.netIPs("b"), w.Node("node2")
	w.Must(w.Apply(w.Ctx, serviceOn("early", 8080, "", "\n  publishNotReadyAddresses: true")))
	w.answers("host", "early", append(slices.Clone(a), b...)...)
	w.Must(n.Signal(w.Ctx, "default/b", "main", "SIGSTOP"))
	w.answers("host", "web", a...)
	w.answers("SRV", "_http._tcp."+webName, "first."+webName+":8080")
	w.answers("host", "early", append(slices.Clone(a), b...)...)
	// NB has the change before the names have it.
	w.nbctl("--wait=hv", "sync")
	for range 20 {
		if got := w.exec("default/client", "main", "/podtool", "get", "http://front/hostname"); got != "first" {
			w.T.Errorf("%q answers while it is not ready", got)
		}
	}
	w.Must(n.Signal(w.Ctx, "default/b", "main", "SIGCONT"))
	w.answers("host", "web", append(slices.Clone(a), b...)...)
	w.Must(w.Delete(w.Ctx, serviceOn("early", 8080, "", "")))
}

// namesOfStatefulSet: a pod of a StatefulSet has a name, which its successor gets.
func (w *world) namesOfStatefulSet() {
	set := strings.Replace(serviceOn("db", 8080, "", ""), "app=web", "app=db", 1) + fmt.Sprintf(`apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db, namespace: default}
spec:
  serviceName: db
  selector: {matchLabels: {app: db}}
  template:
    metadata:
      labels: {app: db}
      annotations: {k8s.v1.cni.cncf.io/networks: blue}
    spec:
      terminationGracePeriodSeconds: 1
      containers: [{name: main, image: %s, imagePullPolicy: Never, args: [serve]}]
---
`, kube.PodtoolImage)
	w.Must(w.Apply(w.Ctx, set))
	for range 2 {
		w.Must(w.WaitReady(w.Ctx, "default/db-0"))
		w.answers("host", "db-0.db", w.netIPs("db-0")...)
		if got := w.exec("default/client", "main", "/podtool", "get", "http://db-0.db:8080/hostname"); got != "db-0" {
			w.T.Errorf("at db-0.db, %q answers", got)
		}
		w.kubectl("delete", "pod", "db-0")
	}
	w.Must(w.Delete(w.Ctx, set))
	w.Must(w.WaitGone(w.Ctx, "default/db-0"))
}

// answers waits until CoreDNS answers pod client with these, in any order.
func (w *world) answers(kind, name string, want ...string) {
	w.T.Helper()
	w.answersTo("client", kind, name, want...)
}

func (w *world) answersTo(pod, kind, name string, want ...string) {
	w.T.Helper()
	slices.Sort(want)
	id, _, _ := at(pod)
	w.until(func() error {
		out, err := w.Exec(w.Ctx, id, "", "/podtool", "lookup", "-type", kind, name)
		got := strings.Fields(out)
		slices.Sort(got)
		if err == nil && !slices.Equal(got, want) {
			err = fmt.Errorf("%s of %s: got %q, want %q", kind, name, got, want)
		}
		return err
	})
}

// inPod runs a function in the network namespace of a pod, by no way over the API server.
func (w *world) inPod(name string) func(func() error) error {
	id, _, _ := at(name)
	path, err := w.Node(w.getPod(id).Spec.NodeName).PodNetNS(w.Ctx, id)
	w.Must(err)
	return func(f func() error) error { return ns.WithNetNSPath(path, func(ns.NetNS) error { return f() }) }
}

// ask asks CoreDNS from a pod for the IPv4 addresses of a name.
func (w *world) ask(do func(func() error) error, name string) (code dnsmessage.RCode, addresses []string, err error) {
	query := dnsmessage.Message{
		Header: dnsmessage.Header{RecursionDesired: true},
		Questions: []dnsmessage.Question{{
			Name: dnsmessage.MustNewName(name), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET,
		}},
	}
	packed, err := query.Pack()
	w.Must(err)
	var answer dnsmessage.Message
	ctx, cancel := context.WithTimeout(w.Ctx, patience)
	defer cancel()
	err = lab.Eventually(ctx, func() error { // UDP may lose a packet
		return do(func() error {
			c, err := net.Dial("udp", net.JoinHostPort(kube.NameServer, "53"))
			if err != nil {
				return err
			}
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(5 * time.Second))
			if _, err = c.Write(packed); err != nil {
				return err
			}
			text := make([]byte, 1500)
			n, err := c.Read(text)
			if err != nil {
				return err
			}
			return answer.Unpack(text[:n])
		})
	})
	for _, r := range answer.Answers {
		if a, ok := r.Body.(*dnsmessage.AResource); ok {
			addresses = append(addresses, netip.AddrFrom4(a.A).String())
		}
	}
	return answer.RCode, addresses, err
}

// connects starts a load from pod client to the virtual address of Service front.
func (w *world) connects() *labtest.Load {
	return w.Load(w.inPod("client"), net.JoinHostPort(front4, "80"), "GET /hostname HTTP/1.0\r\n\r\n", 50*time.Millisecond)
}
