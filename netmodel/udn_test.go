package netmodel

import (
	"strings"
	"testing"
)

// TestNADsOfUserDefinedNetworks: ovn-kubernetes makes NADs of this form from a UserDefinedNetwork and a
// ClusterUserDefinedNetwork.
func TestNADsOfUserDefinedNetworks(t *testing.T) {
	for _, tt := range []struct{ name, config, id, want string }{
		{"layer2", `{"allowPersistentIPs":true,"cniVersion":"1.0.0","mtu":1400,"name":"shop_blue","netAttachDefName":"shop/blue",
			"role":"secondary","subnets":"10.100.0.0/16,fd10::/64","topology":"layer2","type":"ovn-k8s-cni-overlay"}`,
			"shop_blue", "10.100.0.0/16 gw 10.100.0.1, fd10::/64 gw fd10::1, mtu 1400"},
		{"layer2 of an older version", `{"cniVersion":"1.0.0","name":"shop.blue","netAttachDefName":"shop/blue","role":"secondary",
			"subnets":"10.100.0.0/16","topology":"layer2","type":"ovn-k8s-cni-overlay"}`, "shop.blue", "10.100.0.0/16 gw 10.100.0.1"},
		{"layer2 without addresses", `{"cniVersion":"1.0.0","name":"shop_blue","netAttachDefName":"shop/blue","role":"secondary",
			"topology":"layer2","type":"ovn-k8s-cni-overlay"}`, "shop_blue", ""},
		{"layer3", `{"cniVersion":"1.0.0","name":"shop_blue","netAttachDefName":"shop/blue","role":"secondary",
			"subnets":"10.100.0.0/16/24,fd10::/59/64","topology":"layer3","type":"ovn-k8s-cni-overlay"}`,
			"shop_blue", "layer3, 10.100.0.0/16/24, fd10::/59/64"},
		{"layer3 of the cluster, the size of node subnets left out", `{"cniVersion":"1.0.0","name":"cluster_udn_tenant-blue",
			"netAttachDefName":"shop/blue","role":"secondary","subnets":"10.100.0.0/16","topology":"layer3","type":"ovn-k8s-cni-overlay"}`,
			"cluster_udn_tenant-blue", "layer3, 10.100.0.0/16/24"},
		{"localnet of the cluster", `{"cniVersion":"1.0.0","excludeSubnets":"192.168.100.1/32,192.168.100.2/32","mtu":1500,
			"name":"cluster_udn_tenant-blue","netAttachDefName":"shop/blue","physicalNetworkName":"tenantblue","role":"secondary",
			"subnets":"192.168.100.0/24","topology":"localnet","type":"ovn-k8s-cni-overlay","vlanID":200}`, "cluster_udn_tenant-blue",
			"localnet, 192.168.100.0/24 gw 192.168.100.1, without 192.168.100.1/32, without 192.168.100.2/32, VLAN 200 of tenantblue, mtu 1500"},
	} {
		n, err := ParseNetwork("shop", "blue", []byte(tt.config))
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
		} else if got := show(n); got != tt.want || n.ID() != tt.id {
			t.Errorf("%s: %s is %q, want %s, %q", tt.name, n.ID(), got, tt.id, tt.want)
		}
	}
	for _, tt := range []struct{ name, config, says string }{
		{"primary", `{"cniVersion":"1.0.0","joinSubnets":"100.65.0.0/16,fd99::/64","name":"shop_blue","netAttachDefName":"shop/blue",
			"role":"primary","subnets":"10.100.0.0/16","topology":"layer2","type":"ovn-k8s-cni-overlay"}`, `role: "primary" is not served`},
		{"two subnets of a family", `{"cniVersion":"1.0.0","name":"shop_blue","netAttachDefName":"shop/blue","role":"secondary",
			"subnets":"10.100.0.0/16/24,10.200.0.0/16/24","topology":"layer3","type":"ovn-k8s-cni-overlay"}`,
			"subnets: 10.100.0.0/16 and 10.200.0.0/16 are of one family, only one of each is served"},
	} {
		if _, err := ParseNetwork("shop", "blue", []byte(tt.config)); err == nil || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %v, want %s", tt.name, err, tt.says)
		}
	}
}
