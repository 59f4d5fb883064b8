package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
	"github.com/ovn-multinet/ovn-multinet/e2e/labtest"
)

func serviceManifest(name string) string {
	return "service-" + strings.ReplaceAll(name, "/", "-") + ".yaml"
}

// serviceYAML is a Service on a network, with pods that have app=<the Service's name>. ports is YAML, and more are
// further keys of the spec.
func serviceYAML(name, network, address, ports, more string) string {
	namespace, name := labtest.NADName(name)
	if address != "" {
		address = "\n    ovn-multinet/service-address: " + address
	}
	return fmt.Sprintf(`apiVersion: v1
kind: Service
metadata:
  namespace: %s
  name: %s
  labels: {service.kubernetes.io/service-proxy-name: ovn-multinet}
  annotations:
    ovn-multinet/service-network: %s
    ovn-multinet/service-selector: app=%[2]s%[4]s
spec: {clusterIP: None, ports: [%[5]s]%[6]s}
`, namespace, name, network, address, ports, more)
}

// serviceState is the state that the controller has written about a Service.
type serviceState struct {
	Ready     bool
	Reason    string
	Addresses []string
	// OutsideAddresses are those by which outside hosts reach it.
	OutsideAddresses []string
}

func (w *world) serviceState(name string) (state serviceState, err error) {
	namespace, name := labtest.NADName(name)
	text, err := os.ReadFile(filepath.Join(w.Manifests, namespace+"."+name+".service.json"))
	if err != nil {
		return state, err
	}
	var file struct{ Service serviceState }
	err = json.Unmarshal(text, &file)
	return file.Service, err
}

// service writes a Service, waits until it is ready, and returns its virtual addresses.
func (w *world) service(name, yaml string) []string {
	w.T.Helper()
	w.Must(w.WriteManifest(serviceManifest(name), yaml))
	var state serviceState
	w.Eventually(func() (err error) {
		if state, err = w.serviceState(name); err == nil && !state.Ready {
			err = fmt.Errorf("service %s: %s", name, state.Reason)
		}
		return err
	})
	return state.Addresses
}

// serviceRefused waits until a Service is refused for a reason.
func (w *world) serviceRefused(name, why string) {
	w.T.Helper()
	w.Eventually(func() error {
		state, err := w.serviceState(name)
		if err == nil && (state.Ready || !strings.Contains(state.Reason, why)) {
			err = fmt.Errorf("service %s: ready %t, %s; want it refused because of %s", name, state.Ready, state.Reason, why)
		}
		return err
	})
}

// backendsAre waits until NB's load balancer of a Service has these backends at a virtual address, and all nodes have
// the flows.
func (w *world) backendsAre(service, network, protocol, vip string, want ...string) {
	w.T.Helper()
	slices.Sort(want)
	w.Eventually(func() error {
		out := w.NBCtl("--bare", "--columns=vips", "find", "Load_Balancer", fmt.Sprintf("name=%q", network+":"+service+":"+protocol))
		for word := range strings.FieldsSeq(out) {
			if list, ok := strings.CutPrefix(word, vip+"="); ok {
				got := strings.FieldsFunc(list, func(r rune) bool { return r == ',' })
				if slices.Sort(got); slices.Equal(got, want) {
					return nil
				}
			}
		}
		return fmt.Errorf("service %s has %s, want %s at %s", service, out, want, vip)
	})
	w.NBCtl("--wait=hv", "sync")
}

// refused reports whether a connection is refused, and not silent.
func refused(from place, to, port string) error {
	err := from.Do(func() error {
		c, err := net.DialTimeout("tcp", net.JoinHostPort(to, port), 10*silence)
		if err == nil {
			c.Close()
		}
		return err
	})
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("%s to %s port %s: %v, want that it is refused", from, to, port, err)
	}
	return nil
}

const (
	webPorts = `{name: http, port: 80, targetPort: 8080}, {name: dns, protocol: UDP, port: 53, targetPort: 90}`
	onCore   = `{"type":"ovn-multinet","subnets":"10.7.0.0/24,fd07::/64","router":"core","routes":[{"dst":"10.8.0.0/24"},{"dst":"fd08::/64"}]}`
	alsoCore = `{"type":"ovn-multinet","subnets":"10.8.0.0/24,fd08::/64","router":"core","routes":[{"dst":"10.7.0.0/24"},{"dst":"fd07::/64"}]}`
)

// backends makes a pod with app=web on each node, that answer on the ports of webPorts.
func (w *world) backends(network string) (pods []*lab.Pod, counts []*answerer) {
	for node := range 2 {
		p := w.labelled(node, fmt.Sprint("web-", node), network, map[string]string{"app": "web"})
		pods, counts = append(pods, p), append(counts, w.answer(p, 8080, 90))
	}
	return pods, counts
}

// eachAnswered wants that each backend gets connections and datagrams. It asks once, and again while a backend has got
// none, which it logs: probes go to another backend when one is silent, so asking does not fail.
func (w *world) eachAnswered(pods []*lab.Pod, counts []*answerer, ask func()) {
	w.T.Helper()
	ask()
	refreshed := time.Now()
	w.Eventually(func() error {
		for i, count := range counts {
			tcp, udp := count.of("tcp/8080"), count.of("udp/90")
			if tcp > 0 && udp > 0 {
				continue
			}
			err := fmt.Errorf("%s has got %d connections and %d datagrams, want some of each", pods[i], tcp, udp)
			w.T.Log(err)
			if time.Since(refreshed) > staleAfter {
				w.endsStaleFlows("a backend", err)
				refreshed = time.Now()
			}
			ask()
			return err
		}
		return nil
	})
}

// TestService: a Service answers at its virtual addresses: TCP and UDP, both families, from another node, from the same
// node, from a backend itself, and from another network of the router, which may join later. Both backends answer.
func TestService(t *testing.T) {
	for _, test := range []struct{ name, network, spec string }{
		{"alone", "green", nads["green"]},
		{"router", "seven", onCore},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := parallelWorld(t, lab.Options{Nodes: 2}, nil)
			w.network(test.network, test.spec)
			w.Base = w.Snapshot()
			pods, counts := w.backends(test.network)
			vips := w.service("web", serviceYAML("web", test.network, "auto", webPorts, ""))
			equal(t, "number of virtual addresses", len(vips), 2)
			from := []*lab.Pod{
				w.labelled(0, "near", test.network, nil), w.labelled(1, "far", test.network, nil), pods[0], pods[1],
			}
			over := slices.Clone(from)
			if test.name == "router" {
				w.network("eight", alsoCore)
				for node := range 2 {
					from = append(from, w.labelled(node, fmt.Sprint("eight-", node), "eight", nil))
				}
			}
			w.NBCtl("--wait=hv", "sync")
			w.eachAnswered(pods, counts, func() {
				for _, p := range from {
					for _, vip := range vips {
						for range 6 { // some of them go to each backend
							w.allowed(p, vip, "tcp/80")
							w.allowed(p, vip, "udp/53")
						}
					}
				}
			})
			for _, vip := range vips {
				w.denied(from[0], vip, "udp/80") // a port that the Service has for TCP alone
			}
			w.Must(w.RemoveManifest(serviceManifest("web")))
			w.closed(from[0], vips[0], "tcp/80")
			if test.name == "router" {
				for _, p := range from[4:] {
					w.End(p)
				}
				w.removeNAD("eight")
			}
			w.Over(over...)
		})
	}
}

// TestServiceFollowsPods: a pod that is not ready any more gets no connection once the nodes know it. Without a backend,
// connections are refused, and not silent. publishNotReadyAddresses has such pods answer, and affinity keeps a client at
// one backend.
func TestServiceFollowsPods(t *testing.T) {
	w := parallelWorld(t, lab.Options{Nodes: 2}, nil)
	pods, counts := w.backends("green")
	client := w.labelled(1, "client", "green", nil)
	vip := w.service("web", serviceYAML("web", "green", "10.2.200.1", webPorts, ""))[0]
	at := func(i int) string { return w.Links(pods[i])["net1"].IPs()[0] + ":8080" }
	ask := func(times int) (gained [2]int) {
		before := [2]int{counts[0].of("tcp/8080"), counts[1].of("tcp/8080")}
		for range times {
			w.allowed(client, vip, "tcp/80")
		}
		return [2]int{counts[0].of("tcp/8080") - before[0], counts[1].of("tcp/8080") - before[1]}
	}
	w.backendsAre("shop/web", "shop/green", "tcp", vip+":80", at(0), at(1))
	page := w.Multinet("service", "show", "shop/web")
	for i, pod := range pods {
		line := regexp.MustCompile(`(?m) ` + regexp.QuoteMeta(at(i)) + ` +` + pod.Namespace + "/" + pod.Name + ` +net1 +\S+$`)
		if !line.MatchString(page) || !strings.Contains(page, "State:      ready\n") {
			t.Errorf("kubectl multinet service show, without %s of %s:\n%s", at(i), pod.Name, page)
		}
	}
	if got := ask(40); got[0] == 0 || got[1] == 0 {
		t.Errorf("of 40 connections %v came to the two backends, want some to each", got)
	}
	ready := func(i int, is string) {
		pods[i].Ready = is
		w.Must(pods[i].WriteManifest())
	}
	ready(0, "False")
	w.backendsAre("shop/web", "shop/green", "tcp", vip+":80", at(1))
	equal(t, "connections of 40 to the pod that is not ready", ask(40)[0], 0)
	ready(1, "False")
	w.backendsAre("shop/web", "shop/green", "tcp", vip+":80")
	none := regexp.MustCompile(`(?m)^shop/web +shop/green +10\.2\.200\.1 +- +\S+ +[0,]+ +ready$`)
	if list := w.Multinet("service", "list", "-n", "shop"); !none.MatchString(list) {
		t.Errorf("kubectl multinet service list, without backends:\n%s", list)
	}
	w.Eventually(func() error { return refused(client, vip, "80") })
	w.service("web", serviceYAML("web", "green", "10.2.200.1", webPorts, ", publishNotReadyAddresses: true"))
	w.backendsAre("shop/web", "shop/green", "tcp", vip+":80", at(0), at(1))
	ready(0, "True")
	ready(1, "True")
	w.service("web", serviceYAML("web", "green", "10.2.200.1", webPorts, ", sessionAffinity: ClientIP"))
	w.Eventually(func() error {
		if out := w.NBCtl("--bare", "--columns=selection_fields", "list", "Load_Balancer", "shop/green:shop/web:tcp"); !strings.Contains(out, "ip_src") {
			return fmt.Errorf("selection fields: %s", out)
		}
		return nil
	})
	w.NBCtl("--wait=hv", "sync")
	if got := ask(40); got[0] != 0 && got[1] != 0 {
		t.Errorf("with affinity, of 40 connections %v came to the two backends, want all to one", got)
	}
	w.End(pods[0])
	w.backendsAre("shop/web", "shop/green", "tcp", vip+":80", at(1))
	w.Must(w.RemoveManifest(serviceManifest("web")))
	w.Over(pods[1], client)
}

// TestServiceUnderLoad: a client makes 200 connections a second. None fails when a backend stops being ready and goes on
// to answer, nor when it is ready again. When a backend is killed, none fails that begins after all nodes have the change.
//
// There are not more than some hundred connections: the userspace datapath of Open vSwitch 3.1.0 fails an assertion
// (conn_update_state) after some thousands, without anything else being done.
func TestServiceUnderLoad(t *testing.T) {
	w := parallelWorld(t, lab.Options{Nodes: 2}, nil)
	pods, counts := w.backends("green")
	client := w.labelled(1, "client", "green", nil)
	vip := w.service("web", serviceYAML("web", "green", "10.2.200.1", webPorts, ""))[0]
	at := func(i int) string { return w.Links(pods[i])["net1"].IPs()[0] + ":8080" }
	became := func(is string, want ...string) {
		pods[0].Ready = is
		w.Must(pods[0].WriteManifest())
		w.backendsAre("shop/web", "shop/green", "tcp", vip+":80", want...)
	}
	w.backendsAre("shop/web", "shop/green", "tcp", vip+":80", at(0), at(1))
	began := time.Now()
	load := w.Load(client.Do, vip+":80", "", 5*time.Millisecond)
	for range 2 {
		load.More(100)
		became("False", at(1))
		load.More(100)
		became("True", at(0), at(1))
	}
	load.More(100)
	load.Over("a backend stops being ready and goes on to answer", began)

	killed := time.Now()
	load = w.Load(client.Do, vip+":80", "", 5*time.Millisecond)
	load.More(100)
	counts[0].close()
	load.More(20)
	became("False", at(1))
	known := time.Now()
	load.More(200)
	w.End(pods[0])
	load.More(200)
	ended, failed, _ := load.Since(killed)
	t.Logf("a backend is killed: %d of %d connections failed until the nodes knew it", len(failed), ended)
	load.Over("a backend is killed, and the nodes know it", known)
	w.Must(w.RemoveManifest(serviceManifest("web")))
	w.Over(pods[1], client)
}

// TestServiceStays: without the controller, and while NB is gone, Services go on. After NB was emptied they return with
// their addresses, and with all backends.
func TestServiceStays(t *testing.T) {
	w := parallelWorld(t, lab.Options{Nodes: 2}, reconciling)
	pods, counts := w.backends("green")
	client := w.labelled(1, "client", "green", nil)
	vips := w.service("web", serviceYAML("web", "green", "auto", webPorts, ""))
	works := func(when string) {
		t.Helper()
		before := [2]int{counts[0].of("tcp/8080"), counts[1].of("tcp/8080")}
		w.Eventually(func() error {
			for _, vip := range vips {
				w.allowed(client, vip, "tcp/80")
				w.allowed(client, vip, "udp/53")
			}
			if counts[0].of("tcp/8080") == before[0] || counts[1].of("tcp/8080") == before[1] {
				return fmt.Errorf("%s: not both backends get connections", when)
			}
			return nil
		})
	}
	works("before")
	w.Must(w.KillController())
	works("without controller")
	w.Must(w.NB.Kill())
	works("without NB")
	w.Must(w.NB.Restart(w.Ctx))
	w.Must(w.StartController(w.Ctx))
	rows := func() string { return w.NBCtl("--columns=_uuid,name,vips,options", "list", "Load_Balancer") }
	before := rows()
	w.RestoreNB(nil)
	w.Eventually(func() error {
		if after := rows(); after != before {
			return fmt.Errorf("the load balancers were\n%s\nand are\n%s", before, after)
		}
		return nil
	})
	w.NBCtl("--wait=hv", "sync")
	works("after NB was emptied")
	w.Must(w.RemoveManifest(serviceManifest("web")))
	w.Over(append(pods, client)...)
}

// TestServiceAddresses: no Service gets an address of a pod, of a gateway, of another Service or of another network, and
// no pod gets that of a Service. Everybody hears why.
func TestServiceAddresses(t *testing.T) {
	w := parallelWorld(t, lab.Options{Nodes: 1}, nil)
	p := w.labelled(0, "web-0", "green", map[string]string{"app": "web"})
	pod := w.Links(p)["net1"].IPs()[0]
	equal(t, "address", w.service("web", serviceYAML("web", "green", "10.2.200.1", webPorts, ""))[0], "10.2.200.1")
	for _, test := range []struct{ name, yaml, why string }{
		{"at a pod", serviceYAML("two", "green", pod, webPorts, ""), "address " + pod + " of network shop/green is in use by pod shop/web-0"},
		{"at a service", serviceYAML("two", "green", "10.2.200.1", webPorts, ""), "is in use by service shop/web"},
		{"at the gateway", serviceYAML("two", "green", "10.2.0.1", webPorts, ""), "10.2.0.1"},
		{"elsewhere", serviceYAML("two", "green", "10.1.0.9", webPorts, ""), "10.1.0.9"},
		{"of another tenant", serviceYAML("other/two", "shop/green", "auto", webPorts, ""), "a Service on a network of another namespace needs one"},
		{"of a network without addresses", serviceYAML("two", "wire", "auto", webPorts, ""), "network shop/wire has no subnets"},
		{"Local", serviceYAML("two", "green", "auto", webPorts, ", internalTrafficPolicy: Local"), "spec.internalTrafficPolicy: Local is not served"},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := w.sub(t)
			name := "two"
			if strings.Contains(test.yaml, "namespace: other") {
				name = "other/two"
			}
			w.Must(w.WriteManifest(serviceManifest(name), test.yaml))
			w.serviceRefused(name, test.why)
			w.Must(w.RemoveManifest(serviceManifest(name)))
			w.Eventually(func() error {
				if _, err := w.serviceState(name); !errors.Is(err, os.ErrNotExist) {
					return fmt.Errorf("the state of a Service that is gone: %v", err)
				}
				return nil
			})
		})
	}
	taken := w.Pod(0, "taken", `[{"name":"green","ips":["10.2.200.1/16"]}]`)
	if _, err := taken.Add(w.Ctx); err == nil || !strings.Contains(err.Error(), "10.2.200.1") {
		t.Errorf("a pod at the address of a Service: %v", err)
	}
	w.Must(w.RemoveManifest(serviceManifest("web")))
	w.Over(p, taken)
}
