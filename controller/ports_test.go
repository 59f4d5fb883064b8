package controller_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/netmodel/policy"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbtest"
)

// ports gives named ports to pods.
func (w *policyWorld) ports(pod string, ports ...string) {
	w.kube.with(func() { w.kube.pods[pod].Ports = ports })
}

const byName = `{"podSelector":{},"policyTypes":["Ingress","Egress"],"ingress":[{"ports":[{"port":"http"}]}],` +
	`"egress":[{"to":[{"namespaceSelector":{"matchLabels":{"team":"a"}}}],"ports":[{"port":"http"}]}]}`

// TestNumbersOfPods: NB has a group for each number that the pods have, and agents read which names are used. A new pod
// with another number gets its group, also before it is bound to a node, in one transaction.
func TestNumbersOfPods(t *testing.T) {
	w := newPolicyWorld(t)
	w.apply("shop/blue", nbtest.Spec(""))
	w.ports("shop/a", "tcp/http=80")
	w.ports("shop/b", "tcp/http=90", "udp/http=91")
	w.ports("other/c", "tcp/http=70")
	w.put("p", byName)
	w.kube.wantPolicyState(t, "shop/p", `"ready":true`)
	w.settle(t)
	for selector, want := range map[string]string{
		"port tcp/http=80 of all pods": "0", "port tcp/http=90 of all pods": "1", "port udp/http=91 of all pods": "gone",
		"port tcp/http=70 of all pods": "gone", "port tcp/http=70 of all pods of namespaces with team=a": "2",
		"port tcp/http=80 of all pods of namespaces with team=a": "gone", "port tcp/http of all pods": "gone",
	} {
		if got := w.group(t, selector); got != want {
			t.Errorf("%s: %q, want %q", selector, got, want)
		}
	}
	index, err := policy.NewMatcher(w.indexOf(t), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if missing, _ := index.Missing(nil, []string{"tcp/http=60"}); missing != "tcp/http=60" {
		t.Errorf("agents miss %q, want 60", missing)
	}
	w.Proxy.Reset()
	w.kube.with(func() {
		w.kube.pods["shop/new"] = &netmodel.Pod{Namespace: "shop", Name: "new", UID: podKey(9), Ports: []string{"tcp/http=60"}}
	})
	w.queue.PortsChanged("shop")
	eventually(t, "", func() string { return w.group(t, "port tcp/http=60 of all pods") })
	w.settle(t)
	if got := w.Proxy.Counts(); got.Committed != 1 || got.Refused != 0 {
		t.Errorf("%d transactions committed and %d refused, want 1 and 0", got.Committed, got.Refused)
	}
	w.kube.with(func() { w.kube.pods["shop/b"].Ports = nil; delete(w.kube.pods, "shop/new") })
	w.queue.PolicyChanged("shop")
	eventually(t, "gone", func() string { return w.group(t, "port tcp/http=90 of all pods") })
}

// indexOf returns the row that agents of namespace shop read.
func (w *policyWorld) indexOf(t *testing.T) map[string]string {
	t.Helper()
	for _, row := range w.Dump(t, "Copp") {
		if row["_uuid"] == ovndb.PolicyKey("shop/blue", "shop") {
			return row["external_ids"].(map[string]string)
		}
	}
	t.Fatal("there is no index")
	return nil
}

// TestPodsWithNamesCostNothing: if no policy names a port.
func TestPodsWithNamesCostNothing(t *testing.T) {
	w := newPolicyWorld(t)
	w.apply("shop/blue", nbtest.Spec(""))
	w.ports("shop/a", "tcp/http=80")
	w.put("p", fromWeb)
	w.kube.wantPolicyState(t, "shop/p", `"ready":true`)
	w.settle(t)
	w.Proxy.Reset()
	w.queue.PortsChanged("shop")
	w.settle(t)
	if got := w.Proxy.Counts(); got.Committed+got.ReadOnly != 0 {
		t.Errorf("%+v, want no transaction", got)
	}
}

// TestNumbersOfOthers: the pods of another namespace do not take the place of the own ones, and the state tells.
func TestNumbersOfOthers(t *testing.T) {
	w := newPolicyWorld(t)
	w.apply("shop/blue", nbtest.Spec(""))
	w.kube.with(func() {
		w.kube.namespaces = map[string]map[string]string{"shop": {"team": "a"}, "other": {"team": "a"}}
		for i := range 100 {
			name := fmt.Sprint("many-", i)
			w.kube.pods["other/"+name] = &netmodel.Pod{
				Namespace: "other", Name: name, UID: name, Node: "n2", Ports: []string{fmt.Sprint("tcp/http=", 1+i)},
			}
		}
	})
	w.ports("shop/a", "tcp/http=8080")
	w.put("p", byName)
	w.kube.wantPolicyState(t, "shop/p", "pods have more numbers for this name than are served")
	w.settle(t)
	w.kube.with(func() {
		if state := w.kube.states["shop/p"]; !strings.Contains(state, `"ready":true`) {
			t.Errorf("state %s, want ready", state)
		}
	})
	for _, selector := range []string{
		"port tcp/http=8080 of all pods", "port tcp/http=8080 of all pods of namespaces with team=a",
	} {
		if got := w.group(t, selector); got != "0" {
			t.Errorf("%s: %q, want pod 0", selector, got)
		}
	}
}
