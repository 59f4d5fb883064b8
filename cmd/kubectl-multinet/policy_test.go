package main

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/netmodel/policy"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbrows"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/policies"
	"github.com/ovn-multinet/ovn-multinet/ovnport"
)

// fillPolicies makes networks blue, red and green in namespace shop, of which red and green are on one router, with the
// pods web, db, multi and lone of shop and web of infra. MultiNetworkPolicy shop/db and ClusterNetworkPolicies guard and
// base are for shop/blue.
func fillPolicies(t *testing.T, server *ovndbtest.Server) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	db := open(ctx, t, server)
	networks, ports := nbtest.NewClient(db, nil), ovnport.NewNB(db)
	of := map[string]*netmodel.Network{
		"blue":  network(t, "shop", "blue", `{"type":"ovn-multinet","subnets":"10.1.0.0/24,fd01::/64"}`),
		"red":   network(t, "shop", "red", `{"type":"ovn-multinet","subnets":"10.2.0.0/24","router":"core"}`),
		"green": network(t, "shop", "green", `{"type":"ovn-multinet","subnets":"10.3.0.0/24","router":"core"}`),
	}
	for _, n := range of {
		if _, err := networks.Ensure(ctx, n, []string{n.NAD()}); err != nil {
			t.Fatal(err)
		}
	}
	keys := map[string]string{}
	for _, p := range []struct {
		namespace, pod string
		ips            []string // of net1, net2 and so on
		networks       []string
	}{
		{"shop", "web", []string{"10.1.0.10"}, []string{"blue"}},
		{"shop", "db", []string{"10.1.0.11"}, []string{"blue"}},
		{"shop", "multi", []string{"10.1.0.12", "10.2.0.12"}, []string{"blue", "red"}},
		{"shop", "lone", []string{"10.3.0.13"}, []string{"green"}},
		{"infra", "web", []string{"10.1.0.14"}, []string{"blue"}},
	} {
		owner := ovnport.Owner{Namespace: p.namespace, Pod: p.pod, UID: p.pod, Sandbox: p.namespace + p.pod, Node: "node-a", Chassis: "node-a"}
		var want []ovnport.Request
		for i, name := range p.networks {
			ip := netip.MustParseAddr(p.ips[i])
			r := ovnport.Request{Interface: "net" + string(rune('1'+i)), Network: of[name], IPs: []netip.Prefix{netip.PrefixFrom(ip, 24)}}
			if name == "blue" {
				r.IPs = append(r.IPs, netip.PrefixFrom(netip.AddrFrom16([16]byte{0xfd, 1, 15: ip.As4()[3]}), 64))
			}
			want = append(want, r)
		}
		made, err := ports.Ensure(ctx, owner, want, nil)
		if err != nil {
			t.Fatal(err)
		}
		keys[p.namespace+"/"+p.pod] = made[0].UUID
	}
	members := func(pods ...string) (list []string) {
		for _, pod := range pods {
			list = append(list, keys[pod])
		}
		return list
	}
	rows := policies.New(nbrows.NewStore(db))
	ensure := func(namespace string, members map[policy.Selector][]string, specs map[string]string) {
		var all []*policy.Policy
		for name, spec := range specs {
			o := policy.NewObject(namespace, name, 1, map[string]string{policy.ForAnnotation: "shop/blue"}, []byte(spec), 0)
			if o.Policy == nil {
				t.Fatal(o.Refusal)
			}
			all = append(all, o.Policy)
		}
		set, _ := policy.NewSet("shop/blue", namespace, all, false)
		_, err := rows.Ensure(ctx, &policies.Wanted{
			Set: set, Members: members, Here: func(policy.Selector) bool { return true },
			ChangedLabels: func(present map[string]string) map[string]string { return present },
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	ensure("shop", map[policy.Selector][]string{
		{Pods: "app=db"}: members("shop/db"), {Pods: "app=web"}: members("shop/web"),
	}, map[string]string{"db": `{"podSelector":{"matchLabels":{"app":"db"}},"ingress":[{"from":[{"podSelector":{"matchLabels":{"app":"web"}}},` +
		`{"ipBlock":{"cidr":"192.0.2.0/24"}}],"ports":[{"port":5432},{"protocol":"UDP","port":5,"endPort":9}]}]}`})
	all := policy.Selector{Anywhere: true}
	ensure("", map[policy.Selector][]string{
		all: members("shop/web", "shop/db", "shop/multi", "infra/web"), {Anywhere: true, Namespaces: "team=infra"}: members("infra/web"),
	}, map[string]string{
		"guard": `{"tier":"Admin","priority":5,"subject":{"namespaces":{}},"ingress":[{"name":"no-infra","action":"Deny","from":[{"namespaces":{"matchLabels":{"team":"infra"}}}]}]}`,
		"base":  `{"tier":"Baseline","priority":0,"subject":{"namespaces":{}},"egress":[{"action":"Deny","to":[{"networks":["198.51.100.0/24"]}]}]}`,
	})
}
