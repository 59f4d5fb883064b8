package nad

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
)

// layer3Cluster is the NADs of networks that give each node blocks; node1 has 10.128.3.0/24 and fd03:0:0:3::/64 of those
// of shop/l3, and the like of the others.
var layer3Cluster = map[string]string{
	"shop/l3":      config(`"topology":"layer3","subnets":"10.128.0.0/16/24,fd03::/48/64","excludeSubnets":"10.128.3.128/26"`),
	"shop/routed":  config(`"topology":"layer3","subnets":"10.129.0.0/16/24","routes":[{"dst":"192.0.2.0/24"}]`),
	"shop/whole":   config(`"topology":"layer3","subnets":"10.130.3.0/24/24"`),
	"shop/blue":    config(`"subnets":"10.1.0.0/24"`),
	"shop/rival":   config(`"subnets":"10.2.0.0/24","routes":[{"dst":"192.0.2.0/24"}]`),
	"shop/to-l3":   config(`"subnets":"10.3.0.0/24","routes":[{"dst":"10.128.0.0/16"}]`),
	"shop/fleet":   `{"cniVersion":"0.3.1","name":"fleet","type":"ovn-k8s-cni-overlay","topology":"layer3","subnets":"10.131.0.0/16/24","netAttachDefName":"shop/fleet"}`,
	"infra/fleet":  `{"cniVersion":"0.3.1","name":"fleet","type":"ovn-k8s-cni-overlay","topology":"layer3","subnets":"10.131.0.0/16/24","netAttachDefName":"infra/fleet"}`,
	"shop/outside": `{"cniVersion":"1.0.0","name":"x","type":"macvlan"}`,
}

// node1 answers with the network as node1 has it: the fourth block of each subnet. It notes who asks.
func node1(asked *[]string) func(*Attachment) (*netmodel.Network, error) {
	return func(a *Attachment) (*netmodel.Network, error) {
		*asked = append(*asked, a.Interface)
		n := a.Network
		blocks := make([]netip.Prefix, len(n.Subnets))
		for i := range blocks {
			blocks[i] = n.NodeSubnet(i, min(3, n.NodeSubnetCount(i)-1))
		}
		return n.ForNode("node1", blocks), nil
	}
}

// settled is Select, Resolve and Settle of a pod in the namespace shop on node1.
func settled(t *testing.T, text string) (attachments []Attachment, asked []string, err error) {
	t.Helper()
	requests, err := ParseRequests(networks(text), "shop", "eth0")
	if err != nil {
		t.Fatal(err)
	}
	get, _ := getter(layer3Cluster)
	attachments, err = Resolve(context.Background(), "shop", requests, Rules{}, get)
	if err == nil {
		err = ApplyNodeSubnets(attachments, node1(&asked))
	}
	return attachments, asked, err
}

// showSettled writes "interface switch addresses [routes]" of each attachment.
func showSettled(attachments []Attachment) string {
	var words []string
	for _, a := range attachments {
		word := a.Interface
		if a.Network != nil {
			word += " " + a.Network.SwitchName()
		}
		for _, ip := range a.IPs {
			word += " " + ip.String()
		}
		for _, r := range a.Routes {
			word += fmt.Sprintf(" [%s %s]", r.Dst, r.GW)
		}
		words = append(words, word)
	}
	return strings.Join(words, "; ")
}

func TestApplyNodeSubnets(t *testing.T) {
	const l3 = "shop/l3@node1"
	const ways = " [10.128.0.0/16 10.128.3.1] [fd03::/48 fd03:0:0:3::1]"
	tests := []struct{ name, text, want, asked string }{
		{"no such network", "blue,outside", "net1 shop/blue; net2", ""},
		{"the node's part", "l3", "net1 " + l3 + ways, "net1"},
		{"twice: asked once, routed once", "l3,blue,l3", "net1 " + l3 + ways + "; net2 shop/blue; net3 " + l3, "net1"},
		{"its own routes by the block's gateway", "routed", "net1 shop/routed@node1 [10.129.0.0/16 10.129.3.1] [192.0.2.0/24 10.129.3.1]", "net1"},
		{"one block is the whole", "whole", "net1 shop/whole@node1", "net1"},
		{"two networks", "outside,l3,routed", "net1; net2 " + l3 + ways + "; net3 shop/routed@node1 [10.129.0.0/16 10.129.3.1] [192.0.2.0/24 10.129.3.1]", "net2 net3"},
		{"two NADs of one network", "fleet,infra/fleet", "net1 fleet@node1 [10.131.0.0/16 10.131.3.1]; net2 fleet@node1", "net1 net2"},
		{"fixed addresses get the block's prefix length", `[{"name":"l3","ips":["fd03:0:0:3::7","10.128.3.7"]}]`,
			"net1 " + l3 + " fd03:0:0:3::7/64 10.128.3.7/24" + ways, "net1"},
		{"or have it", `[{"name":"l3","ips":["10.128.3.7/24"]}]`, "net1 " + l3 + " 10.128.3.7/24" + ways, "net1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, asked, err := settled(t, tt.text)
			if err != nil {
				t.Fatal(err)
			}
			if text := showSettled(got); text != tt.want || strings.Join(asked, " ") != tt.asked {
				t.Errorf("got  %s (asked of %v)\nwant %s (asked of %s)", text, asked, tt.want, tt.asked)
			}
		})
	}
}

func TestApplyNodeSubnetsRefuses(t *testing.T) {
	ips := func(list string) string { return `[{"name":"blue"},{"name":"l3","ips":[` + list + `]}]` }
	tests := []struct{ name, text, want string }{
		{"of another node's block", ips(`"10.128.4.7"`),
			"interface net2: address 10.128.4.7 is outside node node1's subnets 10.128.3.0/24,fd03:0:0:3::/64 of network shop/l3"},
		{"one of two of another node's", ips(`"10.128.3.7","fd03:0:0:4::7"`),
			"interface net2: address fd03:0:0:4::7 is outside node node1's subnets 10.128.3.0/24,fd03:0:0:3::/64 of network shop/l3"},
		{"of no node's", ips(`"10.127.3.7"`), "interface net2: address 10.127.3.7 is outside the subnets 10.128.0.0/16,fd03::/48 of network shop/l3"},
		{"the network's prefix length", ips(`"10.128.3.7/16"`), "interface net2: ips: 10.128.3.7/16 has not the prefix length of its subnet 10.128.3.0/24"},
		{"the block's own address", ips(`"10.128.3.0"`), "interface net2: address 10.128.3.0 is the network address of 10.128.3.0/24"},
		{"the block's broadcast address", ips(`"10.128.3.255"`), "interface net2: address 10.128.3.255 is the broadcast address of 10.128.3.0/24"},
		{"the block's gateway", ips(`"fd03:0:0:3::1"`), "interface net2: address fd03:0:0:3::1 is the gateway of network shop/l3"},
		{"excluded", ips(`"10.128.3.130"`), "interface net2: address 10.128.3.130 is excluded by excludeSubnets 10.128.3.128/26 of network shop/l3"},
		{"one route by two networks", "rival,routed", "networks shop/rival and shop/routed both route 192.0.2.0/24"},
		{"the network is another's route", "to-l3,l3", "networks shop/to-l3 and shop/l3 both route 10.128.0.0/16"},
		{"bandwidth", `[{"name":"l3","bandwidth":{"egressRate":1,"egressBurst":1}}]`, "interface net1: bandwidth on network shop/l3: it is not served on OVN networks"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, _, err := settled(t, tt.text)
			if err == nil {
				t.Fatal("it is taken")
			}
			if code, msg, details := conf.Describe(err); code != conf.CodeInvalidConfig || details == "" || msg != tt.want {
				t.Errorf("got  %d %s (details %q)\nwant %d %s", code, msg, details, conf.CodeInvalidConfig, tt.want)
			}
		})
	}
}

// Why a node has no part of a network is said of the interface that asks, with the cause, and nobody is asked after that.
func TestApplyNodeSubnetsPassesErrors(t *testing.T) {
	requests, err := ParseRequests(networks("blue,l3,routed"), "shop", "eth0")
	if err != nil {
		t.Fatal(err)
	}
	get, _ := getter(layer3Cluster)
	attachments, err := Resolve(context.Background(), "shop", requests, Rules{}, get)
	if err != nil {
		t.Fatal(err)
	}
	down := errors.New("connection refused")
	asked := 0
	err = ApplyNodeSubnets(attachments, func(*Attachment) (*netmodel.Network, error) { asked++; return nil, down })
	if !errors.Is(err, down) || err.Error() != "interface net2: connection refused" || asked != 1 {
		t.Errorf("error %v after %d questions", err, asked)
	}
}

// The pod is settled more than once when a network changes meanwhile: what it asked for stays as it was.
func TestApplyNodeSubnetsKeepsRequests(t *testing.T) {
	requests, err := ParseRequests(networks(`[{"name":"l3","ips":["10.128.3.7","fd03:0:0:3::7/64"]}]`), "shop", "eth0")
	if err != nil {
		t.Fatal(err)
	}
	before := slices.Clone(requests[0].IPs)
	get, _ := getter(layer3Cluster)
	attachments, err := Resolve(context.Background(), "shop", requests, Rules{}, get)
	if err != nil {
		t.Fatal(err)
	}
	var asked []string
	if err := ApplyNodeSubnets(attachments, node1(&asked)); err != nil || !slices.Equal(requests[0].IPs, before) {
		t.Errorf("%v, %v; were %v", err, requests[0].IPs, before)
	}
}

// Gateways that are left out are the block's, and those of other nodes' blocks are out of reach.
func TestRoutingOfANodesPart(t *testing.T) {
	tests := []struct{ name, networks, routes, want, refused string }{
		{"default routes of both families", `[{"name":"blue"},{"name":"l3","default-route":[]}]`, "", "net2 10.128.3.1 fd03:0:0:3::1", ""},
		{"a default route that is named", `[{"name":"l3","default-route":["10.128.3.9"]}]`, "", "net1 10.128.3.9", ""},
		{"by another node's gateway", `[{"name":"l3","default-route":["10.128.4.1"]}]`, "", "",
			"interface net1: default-route: 10.128.4.1 is in none of the subnets of network shop/l3, the pod could not reach it"},
		{"a route of the pod", "l3", `[{"dst":"198.51.100.0/24","interface":"net1"}]`, "[198.51.100.0/24 10.128.3.1 net1]", ""},
		{"a route of the pod by its gateway", "blue,l3", `[{"dst":"2001:db8::/32","gw":"fd03:0:0:3::9"}]`, "[2001:db8::/32 fd03:0:0:3::9 net2]", ""},
		{"a route of the pod by another node's", "l3", `[{"dst":"198.51.100.0/24","gw":"10.128.4.9","interface":"net1"}]`, "",
			"annotation ovn-multinet/routes: entry 0: 10.128.4.9 is in none of the subnets of network shop/l3, the pod could not reach it"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			attachments, _, err := settled(t, tt.networks)
			if err != nil {
				t.Fatal(err)
			}
			annotations := map[string]string{}
			if tt.routes != "" {
				annotations[conf.RoutesAnnotation] = tt.routes
			}
			r, err := ParseRouting(annotations, attachments, "eth0")
			if tt.refused != "" {
				if code, msg, _ := describe(err); code != conf.CodeInvalidConfig || msg != tt.refused {
					t.Errorf("got %d %s, want %s", code, msg, tt.refused)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			if r.Default != nil {
				got = strings.Join(append([]string{r.Default.Interface}, strings.Fields(strings.Trim(fmt.Sprint(r.Gateways), "[]"))...), " ")
			}
			for _, route := range r.Routes {
				got += fmt.Sprintf("[%s %s %s]", route.Dst, route.GW, route.Interface)
			}
			if got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

// describe is conf.Describe of what may be no error.
func describe(err error) (code uint, msg, details string) {
	if err == nil {
		return 0, "", ""
	}
	return conf.Describe(err)
}
