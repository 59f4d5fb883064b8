package images

import (
	"slices"
	"strings"
	"testing"

	nadv1 "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	batchv1 "k8s.io/api/batch/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
)

// TestNetworks: the controller accepts the networks of the chart, and the uninstall deletes them.
func TestNetworks(t *testing.T) {
	text, err := runHelm(t, "template", "x", "chart", "--set-json=networks="+`[
		{"name": "blue", "config": {"subnets": "10.1.0.0/16, fd01::/64", "mtu": 1400, "routes": [{"dst": "10.99.0.0/16"}]}},
		{"name": "green", "namespace": "shop", "config": {"cniVersion": "0.4.0", "name": "other", "type": "ovn-multinet",
			"topology": "layer3", "subnets": "10.128.0.0/16/24", "router": "core", "snat": false, "portSecurity": false,
			"routerGuests": [{"namespace": "web", "subnets": "10.2.0.0/16"}], "securityProfiles": ["web"]}},
		{"name": "vlan", "namespace": "shop", "config": {"topology": "localnet", "subnets": "10.3.0.0/24", "vlanID": 100,
			"physicalNetworkName": "provider", "excludeSubnets": "10.3.0.128/25", "gateway": "10.3.0.9"}}]`)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	want := []string{"default/blue", "shop/green", "shop/vlan"}
	var names []string
	for _, n := range objectsOf[nadv1.NetworkAttachmentDefinition](t, text, "NetworkAttachmentDefinition") {
		network, err := netmodel.ParseNetwork(n.Namespace, n.Name, []byte(n.Spec.Config))
		if err != nil {
			t.Errorf("%s/%s: %v", n.Namespace, n.Name, err)
			continue
		}
		names = append(names, network.NAD())
		if cniName := "\"name\":\"other\""; strings.Contains(n.Spec.Config, cniName) != (n.Name == "green") {
			t.Errorf("%s has the configuration %s", n.Name, n.Spec.Config)
		}
	}
	if !slices.Equal(names, want) {
		t.Errorf("the networks are %q, want %q", names, want)
	}
	job := objectsOf[batchv1.Job](t, text, "Job")[0].Spec.Template.Spec.Containers[0]
	if !slices.Contains(job.Args, "--networks="+strings.Join(want, ",")) {
		t.Errorf("the uninstall has the arguments %q", job.Args)
	}
	may := rbacv1.PolicyRule{}
	for _, role := range objectsOf[rbacv1.ClusterRole](t, text, "ClusterRole") {
		for _, rule := range role.Rules {
			if role.Name == "ovn-multinet-uninstall" && slices.Contains(rule.Verbs, "delete") {
				may = rule
			}
		}
	}
	if !slices.Equal(may.ResourceNames, []string{"blue", "green", "vlan"}) {
		t.Errorf("the uninstall may delete %+v", may)
	}
}

// TestNoNetworks: an uninstall without networks of the chart has no right to delete a network, nor to list all pods.
func TestNoNetworks(t *testing.T) {
	text, err := runHelm(t, "template", "x", "chart")
	if err != nil {
		t.Fatal(err)
	}
	for _, role := range objectsOf[rbacv1.ClusterRole](t, text, "ClusterRole") {
		for _, rule := range role.Rules {
			if role.Name == "ovn-multinet-uninstall" && (slices.Contains(rule.Verbs, "delete") || slices.Contains(rule.Resources, "pods")) {
				t.Errorf("the uninstall has the right %+v", rule)
			}
		}
	}
}
