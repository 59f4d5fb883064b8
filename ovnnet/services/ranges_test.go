package services_test

import (
	"slices"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbtest"
)

// TestRanges: pods and Services that request no address get one of the network's ranges, and no other. Others may be
// requested. Who has an address keeps it when the ranges change.
func TestRanges(t *testing.T) {
	const ranges = nbtest.Net4 + `,"ranges":[{"from":"10.1.0.100","to":"10.1.0.101"},{"from":"10.1.0.150","to":"10.1.0.150"}]`
	w := newWorld(t)
	w.network(t, "blue", ranges)
	n, ports := nbtest.Network(t, "blue", ranges), w.agent(t)
	var got []string
	virtual := w.ensure(t, wanted(t, "web", "auto", tcp), 1)
	got = append(got, virtual[1:len(virtual)-1])
	for _, name := range []string{"a", "b"} {
		address, err := attach(t, ports, n, name)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, address)
	}
	if slices.Sort(got); !slices.Equal(got, []string{"10.1.0.100", "10.1.0.101", "10.1.0.150"}) {
		t.Errorf("pods and Service have %q, want the ranges", got)
	}
	if _, err := attach(t, ports, n, "c"); !conf.HasCode(err, conf.CodeNoAddressLeft) {
		t.Errorf("a pod beyond the ranges: %v, want code %d", err, conf.CodeNoAddressLeft)
	}
	w.wantRefused(t, wanted(t, "mail", "auto", tcp), "network shop/blue has no address left")
	if address, err := attach(t, ports, n, "c", "10.1.0.9"); address != "10.1.0.9" {
		t.Errorf("a pod that requests 10.1.0.9 has %s, %v", address, err)
	}
	w.network(t, "blue", nbtest.Net4+`,"ranges":[{"from":"10.1.0.200","to":"10.1.0.200"}]`)
	if now := w.ensure(t, wanted(t, "web", "auto", tcp), 0); now != virtual {
		t.Errorf("the Service has %s now, and had %s", now, virtual)
	}
}
