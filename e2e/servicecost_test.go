package e2e

import (
	"fmt"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

// costsOfServices counts for Services on network flat, which is on no router.
func (r *recount) costsOfServices() {
	web := func(node int) {
		name := fmt.Sprint("web-", node)
		r.pods[name] = r.labelled(node, name, "flat", map[string]string{"app": "web"})
	}
	ready := func(is string, backends ...string) func() {
		return func() {
			p := r.pods["web-1"]
			p.Ready = is
			r.Must(p.WriteManifest())
			r.backendsAre("shop/web", "shop/flat", "tcp", "10.5.0.200:80", backends...)
		}
	}
	web(0)
	web(1)
	at := func(node int) string {
		return r.Links(r.pods[fmt.Sprint("web-", node)])["net1"].IPs()[0] + ":80"
	}
	yaml := func(name, address string) string {
		return serviceYAML(name, "flat", address, `{port: 80}`, "")
	}
	r.before = r.settled()
	r.costs(2, "service: the first one of a network", func() { r.service("web", yaml("web", "10.5.0.200")) })
	r.costs(0, "service: a further one", func() { r.service("two", yaml("two", "auto")) })
	r.costs(0, "service: a pod is not ready any more", ready("False", at(0)))
	r.costs(0, "service: a pod is ready", ready("True", at(0), at(1)))
	r.costs(0, "service: DEL of a backend", r.del("web-0"))
	gone := func(name string) func() {
		return func() {
			r.Must(r.RemoveManifest(serviceManifest(name)))
			r.Eventually(func() error {
				if out := r.NBCtl("--bare", "--columns=name", "find", "Load_Balancer", fmt.Sprintf("name=%q", "shop/flat:shop/"+name+":tcp")); out != "" {
					return fmt.Errorf("load balancer %s", out)
				}
				return nil
			})
		}
	}
	r.costs(0, "service: deleted", gone("two"))
	r.costs(2, "service: the last one of a network deleted", gone("web"))
	r.del("web-1")()
}

// TestServiceRecomputes counts how often northd computes everything again for Services.
func TestServiceRecomputes(t *testing.T) {
	w := parallelWorld(t, lab.Options{Nodes: 2}, nil)
	r := &recount{world: w, pods: map[string]*lab.Pod{}}
	r.incremental = r.ovnSince(2309)
	r.network("flat", `{"type":"ovn-multinet","subnets":"10.5.0.0/16"}`)
	r.costsOfServices()
}
