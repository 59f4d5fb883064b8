package controller_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/controller/configfile"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/netmodel/cost"
	"github.com/ovn-multinet/ovn-multinet/netmodel/service"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbtest"
)

// limit gives namespace shop a limit.
func limit(r cost.Resource, n int) configfile.Config {
	limits := cost.Default()
	limits[r] = n
	return configfile.Config{Limits: cost.Limits{"shop": limits}}
}

// TestBoundaryLimitOfServices: beyond the limit of its namespace, a new Service is refused, an edited one keeps what was
// accepted, and one that gets more pods keeps those that it has.
func TestBoundaryLimitOfServices(t *testing.T) {
	w := newServiceWorld(t)
	w.queue.Configure(limit(cost.Endpoints, 2))
	w.apply("shop/blue", onBlue)
	for i := range 2 {
		id := fmt.Sprint("shop/web", i)
		w.put(id, "blue", "app=web", fmt.Sprint("10.1.0.", 100+i))
		w.wantServiceState(t, id, `"ready":true`)
	}
	if events := fmt.Sprint(w.kube.events); !hasWords(events, "shop/web1 NearLimit", "need 2 endpoints in OVN, and 2 is the limit") {
		t.Errorf("no Event says that the limit is near: %s", events)
	}
	w.put("shop/web2", "blue", "app=web", "10.1.0.102")
	w.wantServiceState(t, "shop/web2", "it needs 1 endpoints in OVN, and the other objects of namespace shop need 2: 2 is the limit")
	w.wantVIPs(t, "shop/blue", "shop/web2", "gone")

	w.pod("shop/a", func(p *netmodel.Pod) { p.Labels = app("web") })
	w.wantServiceState(t, "shop/web0", `{"ready":true,"reason":"1 pods are left out`)
	w.wantVIPs(t, "shop/blue", "shop/web0", "10.1.0.100:80=10.1.0.11:8080")
	w.pod("shop/a", func(p *netmodel.Pod) { p.Labels = app("db") })

	annotations := map[string]string{
		service.NetworkAnnotation: "blue", service.SelectorAnnotation: "app=web", service.AddressAnnotation: "10.1.0.100",
	}
	const twoPorts = `{"clusterIP":"None","ports":[{"name":"a","port":80,"targetPort":8080},{"name":"b","port":81}]}`
	w.putWith("shop/web0", annotations, twoPorts)
	w.wantServiceState(t, "shop/web0", "it needs 2 endpoints in OVN, and the other objects of namespace shop need 1: 2 is the limit")
	w.wantServiceState(t, "shop/web0", "what was accepted before stays")
	w.wantVIPs(t, "shop/blue", "shop/web0", "10.1.0.100:80=10.1.0.11:8080")

	w.remove("shop/web1")
	w.wantServiceState(t, "shop/web2", `"ready":true`) // it has waited longer
	w.wantServiceState(t, "shop/web0", "it needs 2 endpoints")
	w.queue.Configure(configfile.Config{})
	w.wantServiceState(t, "shop/web0", `"ready":true`)
}

// TestBoundaryLimitOfPolicies: beyond the limit of its namespace, a new policy is refused and isolates its pods. An edited
// one is refused itself, however old it is: policies that are accepted stay.
func TestBoundaryLimitOfPolicies(t *testing.T) {
	w := newPolicyWorld(t)
	w.apply("shop/blue", nbtest.Spec(""))
	w.queue.Configure(limit(cost.Groups, 3))
	rule := func(app, peer string) string {
		return fmt.Sprintf(`{"podSelector":{"matchLabels":{"app":%q}},"ingress":[{"from":[{"podSelector":{"matchLabels":{"app":%q}}}]}]}`, app, peer)
	}
	w.put("a", `{"podSelector":{"matchLabels":{"app":"db"}}}`)
	w.kube.wantPolicyState(t, "shop/a", `"ready":true`)
	w.put("b", rule("db", "web"))
	w.kube.wantPolicyState(t, "shop/b", `"ready":true`)
	const refused = "it needs 2 groups in OVN, and the other objects of namespace shop need %d: 3 is the limit of the namespace"
	w.put("c", rule("web", "db"))
	w.kube.wantPolicyState(t, "shop/c", fmt.Sprintf(refused, 3))
	w.put("a", rule("db", "none"))
	w.kube.wantPolicyState(t, "shop/a", "refused, so pods with app=db have no ingress")
	w.kube.wantPolicyState(t, "shop/a", fmt.Sprintf(refused, 2))
	w.kube.wantPolicyState(t, "shop/b", `"ready":true`)
	w.put("a", `{"podSelector":{"matchLabels":{"app":"db"}}}`)
	w.kube.wantPolicyState(t, "shop/a", `"ready":true`)
	w.apply("shop/red", nbtest.Spec(""))
	w.wantState(t, "shop/red", "ready, held")
	w.queue.Configure(limit(cost.Bytes, 6000))
	w.kube.wantPolicyState(t, "shop/c", "6000 is the limit of the namespace")
	w.deleteNAD(t, "shop/red") // an object of another kind leaves room
	w.kube.wantPolicyState(t, "shop/c", `"ready":true`)
}

// TestBoundaryLimitOfNetworks: beyond the limit of its namespace, a new network is refused, and an accepted one stays as
// it is. Other namespaces do not notice.
func TestBoundaryLimitOfNetworks(t *testing.T) {
	w := newServiceWorld(t)
	w.queue.Configure(limit(cost.Bytes, 4000))
	const small = `"subnets":"10.1.0.0/24"`
	w.apply("shop/blue", nbtest.Spec(small))
	w.wantState(t, "shop/blue", "ready, held")
	w.apply("shop/red", nbtest.Spec(small))
	w.wantState(t, "shop/red", "ready, held")
	w.apply("shop/green", nbtest.Spec(small))
	refused := func(id string) {
		t.Helper()
		eventually(t, "true", func() string {
			state := w.state(id)
			if hasWords(state, "bytes in OVN, and the other objects of namespace shop need", "4000 is the limit") {
				return "true"
			}
			return state
		})
	}
	refused("shop/green")
	w.apply("web/green", nbtest.Spec(small))
	w.wantState(t, "web/green", "ready, held")

	many := ""
	for i := range 100 {
		many += fmt.Sprintf(`,{"dst":"10.%d.0.0/16"}`, 100+i)
	}
	w.apply("shop/blue", nbtest.Spec(small+`,"routes":[`+many[1:]+`]`))
	refused("shop/blue")
	w.wantTakes(t, "shop/blue", "[shop/blue]")
	w.apply("shop/blue", nbtest.Spec(small))
	w.wantState(t, "shop/blue", "ready, held")

	w.deleteNAD(t, "shop/red")
	w.wantState(t, "shop/green", "ready, held")
}

// TestBoundaryLowerLimits: what is accepted stays when the limits become lower, also in the next controller, which reads
// from NB what was accepted. What is new is refused.
func TestBoundaryLowerLimits(t *testing.T) {
	t.Run("services", func(t *testing.T) {
		w := newServiceWorld(t)
		w.apply("shop/blue", onBlue)
		vip := func(w *serviceWorld, i int, want string) {
			t.Helper()
			w.wantVIPs(t, "shop/blue", fmt.Sprint("shop/web", i), fmt.Sprintf("10.1.0.%d:80=%s", 100+i, want))
		}
		for i := range 2 {
			w.put(fmt.Sprint("shop/web", i), "blue", "app=web", fmt.Sprint("10.1.0.", 100+i))
			vip(w, i, "10.1.0.11:8080")
		}
		w.stop()
		w = w.next(t, limit(cost.Endpoints, 1))
		w.put("shop/new", "blue", "app=web", "10.1.0.102")
		w.wantServiceState(t, "shop/new", "it needs 1 endpoints in OVN, and the other objects of namespace shop need 2: 1 is the limit")
		for i := range 2 {
			vip(w, i, "10.1.0.11:8080")
		}
	})
	t.Run("policies", func(t *testing.T) {
		w := newPolicyWorld(t)
		w.apply("shop/blue", nbtest.Spec(""))
		for _, name := range []string{"a", "b"} {
			w.put(name, fmt.Sprintf(`{"podSelector":{"matchLabels":{"app":"db","n":%q}}}`, name))
			w.kube.wantPolicyState(t, "shop/"+name, `"ready":true`)
		}
		w.queue.Configure(limit(cost.Groups, 1))
		w.put("c", `{"podSelector":{"matchLabels":{"app":"web"}}}`)
		w.kube.wantPolicyState(t, "shop/c", "it needs 1 groups in OVN, and the other objects of namespace shop need 2: 1 is the limit")
		w.stop()
		w.kube.with(func() { w.kube.states["shop/c"] = `{"ready":true}` }) // the namespace can write this
		w = w.next(t, limit(cost.Groups, 1))
		w.kube.wantPolicyState(t, "shop/c", "it needs 1 groups in OVN, and the other objects of namespace shop need 2: 1 is the limit")
		for _, name := range []string{"a", "b"} {
			w.kube.wantPolicyState(t, "shop/"+name, `"ready":true`)
		}
	})
}

// TestBoundaryShareOfAddresses: the Services of one namespace cannot have all addresses of another one's network.
func TestBoundaryShareOfAddresses(t *testing.T) {
	w := newServiceWorld(t)
	w.apply("shop/blue", nbtest.Spec(`"subnets":"10.1.0.0/29"`)) // six addresses, of which a namespace may have one
	w.put("other/web0", "shop/blue", "app=web", "auto")
	w.wantServiceState(t, "other/web0", `"ready":true`)
	w.put("other/web1", "shop/blue", "app=web", "auto")
	w.wantServiceState(t, "other/web1", "the Services of namespace other have 1 addresses of network shop/blue, and a namespace may have 1")
	w.wantVIPs(t, "shop/blue", "other/web1", "gone")
	w.put("other/web2", "shop/blue", "app=web", "") // headless: it needs no address
	w.wantServiceState(t, "other/web2", `"ready":true`)
	for i := range 2 { // of the network's own namespace
		w.put(fmt.Sprint("shop/web", i), "blue", "app=web", "auto")
		w.wantServiceState(t, fmt.Sprint("shop/web", i), `"ready":true`)
	}
	w.remove("other/web0")
	w.wantServiceState(t, "other/web1", `"ready":true`)
}

// hasWords reports whether a text has all of these words.
func hasWords(text string, words ...string) bool {
	return !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(text, word) })
}
