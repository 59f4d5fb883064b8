package netmodel

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
)

// TestVirtualAddressesRefused: virtual addresses that cannot be meant are refused in words.
func TestVirtualAddressesRefused(t *testing.T) {
	const nets = `"subnets":"10.1.0.0/24,fd01::/64","virtualAddresses":`
	many := strings.TrimSuffix(strings.Repeat(`{"address":"10.1.0.%d","selector":{"app":"a"}},`, MaxVirtualAddresses+1), ",")
	for i := range MaxVirtualAddresses + 1 {
		many = strings.Replace(many, "%d", fmt.Sprint(10+i), 1)
	}
	const labels = `"0":"","1":"","2":"","3":"","4":"","5":"","6":"","7":"","8":""`
	for _, tt := range []struct{ keys, says string }{
		{nets + `[{"selector":{"app":"a"}}]`, `virtualAddresses[0].address: "" is not an IP address`},
		{nets + `[{"ip":"10.1.0.9"}]`, `virtualAddresses[0]: unknown key "ip"`},
		{nets + `[{"address":"10.2.0.9","selector":{"app":"a"}}]`, "virtualAddresses[0].address: 10.2.0.9 is in none of the subnets"},
		{nets + `[{"address":"10.1.0.1","selector":{"app":"a"}}]`, "virtualAddresses[0].address: 10.1.0.1 is the gateway"},
		{nets + `[{"address":"10.1.0.255","selector":{"app":"a"}}]`, "virtualAddresses[0].address: address 10.1.0.255 is the broadcast address of"},
		{nets + `[{"address":"10.1.0.9"}]`, `virtualAddresses[0].selector: 0 labels, write 1 to 8, like {"app": "router"}`},
		{nets + `[{"address":"10.1.0.9","selector":{` + labels + `}}]`, "virtualAddresses[0].selector: 9 labels"},
		{nets + `[{"address":"10.1.0.9","selector":{"app":"a b"}}]`, `virtualAddresses[0].selector: "app": "a b" is no label`},
		{nets + `[{"address":"10.1.0.9","selector":{"app":"a","app":"b"}}]`, `virtualAddresses[0].selector: key "app" is given twice`},
		{nets + `[{"address":"10.1.0.9","selector":{"app":null}}]`, `virtualAddresses[0].selector: "app": null is no label`},
		{nets + `[{"address":"10.1.0.9","selector":["app"]}]`, "virtualAddresses[0].selector: "},
		{nets + `[{"address":"10.1.0.9","selector":{"-app":"a"}}]`, `virtualAddresses[0].selector: "-app": "a" is no label`},
		{nets + `[{"address":"10.1.0.9","selector":{"app":"a"},"namespace":"a/b"}]`, `virtualAddresses[0].namespace: "a/b" is no namespace`},
		{nets + `[{"address":"10.1.0.9","selector":{"app":"a"},"vrid":256}]`, "virtualAddresses[0].vrid: 256 is not from 1 to 255"},
		{nets + `[{"address":"10.1.0.9","selector":{"app":"a"}},{"address":"10.1.0.9","selector":{"app":"b"}}]`, "virtualAddresses: 10.1.0.9 is there twice"},
		{nets + "[" + many + "]", "virtualAddresses: 17 are more than 16"},
		{`"subnets":"10.1.0.0/30","virtualAddresses":[{"address":"10.1.0.2","selector":{"app":"a"}}]`, "virtualAddresses: nothing of 10.1.0.0/30 is left for pods"},
		{`"topology":"layer3","subnets":"10.1.0.0/16","virtualAddresses":[{"address":"10.1.0.9","selector":{"app":"a"}}]`, "virtualAddresses: leave it out"},
		{`"virtualAddresses":[{"address":"10.1.0.9","selector":{"app":"a"}}]`, "virtualAddresses[0].address: 10.1.0.9 is in none of the subnets"},
	} {
		_, err := ParseNetwork("shop", "blue", []byte(config(tt.keys)))
		if err == nil || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %v, want %s", tt.keys, err, tt.says)
		}
	}
}

// TestVirtualAddressesOf: a pod may have those that its namespace and all its labels say. They are not leased, and no pod may
// request one. Their virtual MACs are those of RFC 9568.
func TestVirtualAddressesOf(t *testing.T) {
	n := mustParse(t, config(`"subnets":"10.1.0.0/28,fd01::/64","virtualAddresses":[{"address":"10.1.0.9","selector":{"app":"a","tier":"x"},"vrid":7},`+
		`{"address":"fd01::9","selector":{"app":"a"},"vrid":255},{"address":"10.1.0.10","namespace":"web","selector":{"app":"a"}}]`))
	for _, tt := range []struct{ namespace, labels, want string }{
		{"shop", "app=a tier=x other=y", "10.1.0.9(00:00:5e:00:01:07) fd01::9(00:00:5e:00:02:ff) "},
		{"shop", "app=a", "fd01::9(00:00:5e:00:02:ff) "},
		{"shop", "tier=x", ""},
		{"web", "app=a tier=x", "10.1.0.10() "},
		{"other", "app=a tier=x", ""},
	} {
		pod := &Pod{Namespace: tt.namespace, Labels: map[string]string{}}
		for _, word := range strings.Fields(tt.labels) {
			key, value, _ := strings.Cut(word, "=")
			pod.Labels[key] = value
		}
		got := ""
		for _, v := range n.VirtualAddressesOf(pod) {
			got += fmt.Sprintf("%s(%s) ", v.Address, v.MAC())
		}
		if got != tt.want {
			t.Errorf("%s %s may have %q, want %q", tt.namespace, tt.labels, got, tt.want)
		}
	}
	if size := n.Leasable(0).Size(); size != 11 { // without the gateway and two virtual addresses
		t.Errorf("%d addresses are leased", size)
	}
	if err := n.CheckFixed(netip.MustParseAddr("fd01::9")); err == nil || !strings.Contains(err.Error(), "in virtualAddresses") {
		t.Errorf("a pod requests one: %v", err)
	}
}

// TestVirtualAddressesStay: with pods on the network, one may be added, and its labels may change; it cannot go, and cannot
// come to another namespace.
func TestVirtualAddressesStay(t *testing.T) {
	of := func(list string) *Network {
		return mustParse(t, config(`"subnets":"10.1.0.0/24","virtualAddresses":[`+list+`]`))
	}
	const nine, ten = `{"address":"10.1.0.9","selector":{"app":"a"}}`, `{"address":"10.1.0.10","selector":{"app":"a"}}`
	for _, tt := range []struct{ to, says string }{
		{nine, ""}, {ten + "," + nine, ""}, {`{"address":"10.1.0.9","selector":{"app":"b"},"vrid":9}`, ""},
		{ten, "virtualAddresses: 10.1.0.9 cannot be removed"}, {"", "virtualAddresses: 10.1.0.9 cannot be removed"},
		{`{"address":"10.1.0.9","selector":{"app":"a"},"namespace":"web"}`, "virtualAddresses: the namespace of 10.1.0.9 cannot become web, it is shop"},
	} {
		if err := of(nine).CheckChange(of(tt.to)); fmt.Sprint(err) != tt.says && (err != nil || tt.says != "") {
			t.Errorf("to %s: %v, want %q", tt.to, err, tt.says)
		}
	}
}
