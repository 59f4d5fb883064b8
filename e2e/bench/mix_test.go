//go:build bench

package bench

import (
	"fmt"
	"net/url"
	"path"

	"github.com/ovn-multinet/ovn-multinet/e2e/labtest"
	"github.com/ovn-multinet/ovn-multinet/netmodel/policy"
)

// object is an object of the Kubernetes API.
type object map[string]any

// mix is a cluster of tenants, whose pods are all on one network: how many pods and nodes it has in how many
// namespaces. Each namespace has five policies, and there are five ClusterNetworkPolicies.
type mix struct{ namespaces, pods, nodes int }

const (
	tenantPolicies = 5
	teams          = 10 // each has every tenth namespace
)

func (m mix) namespaceName(i int) string { return fmt.Sprintf("tenant-%03d", i) }

func (m mix) nodeName(i int) string { return fmt.Sprintf("other-%d", i) }

// namespace is the i-th namespace.
func (m mix) namespace(i int) object {
	return object{"apiVersion": "v1", "kind": "Namespace", "metadata": object{
		"name": m.namespaceName(i), "labels": object{"team": m.team(i), "tenant": m.namespaceName(i)}}}
}

func (m mix) team(i int) string { return fmt.Sprint("team-", i%teams) }

// pod is the i-th pod. Pods of one namespace are on many nodes.
func (m mix) pod(i int) object {
	each := m.pods / m.namespaces
	namespace, n := i/each, i%each
	return podObject(m.namespaceName(namespace), fmt.Sprint("pod-", n), m.nodeName((namespace*7+n)%m.nodes), appOf(n))
}

// appOf is the label app of the n-th pod of a namespace.
func appOf(n int) string { return []string{"web", "db", "cache"}[n%3] }

func podObject(namespace, name, node, app string) object {
	return object{"apiVersion": "v1", "kind": "Pod",
		"metadata": object{"namespace": namespace, "name": name,
			"labels":      object{"app": app, "release": "stable", "pod-template-hash": "6d4cf56db6"},
			"annotations": object{labtest.NetworksAnnotation: portsNetwork}},
		"spec": object{"nodeName": node, "containers": []any{object{"name": "main", "image": "none"}}}}
}

// tenant has the policies of the i-th namespace.
func (m mix) tenant(i int) []object {
	name, ingress := m.namespaceName(i), []any{"Ingress"}
	app := func(app string) object { return object{"matchLabels": object{"app": app}} }
	port := func(n int) []any { return []any{object{"protocol": "TCP", "port": n}} }
	return []object{
		tenantPolicy(name, "deny", object{"podSelector": object{}, "policyTypes": ingress}),
		tenantPolicy(name, "same-namespace", object{"podSelector": object{}, "policyTypes": ingress,
			"ingress": []any{object{"from": []any{object{"podSelector": object{}}}}}}),
		tenantPolicy(name, "from-team", object{"podSelector": app("web"), "policyTypes": ingress, "ingress": []any{object{
			"from":  []any{object{"namespaceSelector": object{"matchLabels": object{"team": m.team(i)}}, "podSelector": app("web")}},
			"ports": port(8080)}}}),
		tenantPolicy(name, "blocks", object{"podSelector": app("db"), "policyTypes": ingress, "ingress": []any{object{
			"from":  []any{object{"ipBlock": object{"cidr": "192.0.2.0/24", "except": []any{"192.0.2.64/26"}}}},
			"ports": append(port(5432), object{"protocol": "TCP", "port": 6000, "endPort": 6100})}}}),
		tenantPolicy(name, "egress", object{"podSelector": app("db"), "policyTypes": []any{"Egress"}, "egress": []any{
			object{"to": []any{object{"podSelector": app("web")}}},
			object{"to": []any{object{"ipBlock": object{"cidr": "198.51.100.0/24"}}}, "ports": port(443)}}}),
	}
}

func tenantPolicy(namespace, name string, spec object) object {
	return object{"apiVersion": "k8s.cni.cncf.io/v1beta1", "kind": "MultiNetworkPolicy", "metadata": object{
		"namespace": namespace, "name": name, "annotations": object{policy.ForAnnotation: portsNetwork}}, "spec": spec}
}

// operators has the ClusterNetworkPolicies.
func (m mix) operators() []object {
	everyone := object{"namespaces": object{}}
	team := func(i int) object { return object{"namespaces": object{"matchLabels": object{"team": m.team(i)}}} }
	db := object{"pods": object{"namespaceSelector": object{}, "podSelector": object{"matchLabels": object{"app": "db"}}}}
	rule := func(action, side string, peer object) []any {
		return []any{object{"action": action, side: []any{peer}}}
	}
	cluster := func(name, tier string, priority int, spec object) object {
		spec["tier"], spec["priority"] = tier, priority
		return object{"apiVersion": "policy.networking.k8s.io/v1alpha2", "kind": "ClusterNetworkPolicy", "metadata": object{
			"name": name, "annotations": object{policy.ForAnnotation: policy.AllNetworks}}, "spec": spec}
	}
	return []object{
		cluster("monitoring", "Admin", 10, object{"subject": everyone, "ingress": rule("Accept", "from", team(0))}),
		cluster("untrusted", "Admin", 20, object{"subject": db, "ingress": rule("Deny", "from", team(9))}),
		cluster("metadata", "Admin", 30, object{"subject": everyone,
			"egress": rule("Deny", "to", object{"networks": []any{"169.254.169.254/32"}})}),
		cluster("databases", "Baseline", 10, object{"subject": db, "ingress": rule("Deny", "from", everyone)}),
		cluster("outside", "Baseline", 20, object{"subject": team(8),
			"egress": rule("Deny", "to", object{"networks": []any{"203.0.113.0/24"}})}),
	}
}

// path is the path of the object's kind in the API.
func (o object) path() string {
	meta := o["metadata"].(object)
	namespace, _ := meta["namespace"].(string)
	kind := map[string][2]string{
		"Namespace": {"/api/v1", "namespaces"}, "Node": {"/api/v1", "nodes"}, "Pod": {"/api/v1", "pods"},
		"ServiceAccount":       {"/api/v1", "serviceaccounts"},
		"MultiNetworkPolicy":   {"/apis/k8s.cni.cncf.io/v1beta1", "multi-networkpolicies"},
		"ClusterNetworkPolicy": {"/apis/policy.networking.k8s.io/v1alpha2", "clusternetworkpolicies"},
	}[o["kind"].(string)]
	if namespace == "" {
		return path.Join(kind[0], kind[1])
	}
	return path.Join(kind[0], "namespaces", url.PathEscape(namespace), kind[1])
}

func (o object) name() string { return o["metadata"].(object)["name"].(string) }
