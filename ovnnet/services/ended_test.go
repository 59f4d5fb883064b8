package services_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/ended"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbtest"
)

// ended are the connections in the list of a scope.
func (w *world) ended(t *testing.T, scope string) string {
	t.Helper()
	list, err := ended.ReadServed(nbtest.WithLimit(t), w.Networks.DB, scope)
	if err != nil {
		t.Fatal(err)
	}
	var words []string
	for _, c := range list {
		word := c.Protocol + " " + c.Vip.String()
		if c.Backend.IsValid() {
			word += " " + c.Backend.String()
		}
		words = append(words, word)
	}
	return strings.Join(words, "; ")
}

func (w *world) wantEnded(t *testing.T, scope, want string) {
	t.Helper()
	if got := w.ended(t, scope); got != want {
		t.Errorf("ended connections %q, want %q", got, want)
	}
}

// TestEndedServed: the transaction that changes a Service lists the connections that it ends. Of UDP, these are those to
// a backend that goes; of each protocol, all of a port or an address that the Service does not have any more.
// Connections to what is a backend again are not listed.
func TestEndedServed(t *testing.T) {
	w := newWorld(t)
	w.network(t, "blue", nbtest.NetDual)
	const on, v4 = "network shop/blue", "10.1.0.200"
	w.ensure(t, wanted(t, "web", v4, both, "10.1.0.7", "10.1.0.8"), 1)
	w.wantEnded(t, on, "")
	w.ensure(t, wanted(t, "web", v4, both, "10.1.0.8"), 1)
	w.wantEnded(t, on, "udp 10.1.0.200:53 10.1.0.7:53")
	w.ensure(t, wanted(t, "web", v4, both), 1)
	w.wantEnded(t, on, "udp 10.1.0.200:53 10.1.0.7:53; udp 10.1.0.200:53 10.1.0.8:53")
	w.ensure(t, wanted(t, "web", v4, both, "10.1.0.7"), 1)
	w.wantEnded(t, on, "udp 10.1.0.200:53 10.1.0.8:53")
	w.ensure(t, wanted(t, "web", v4, tcp, "10.1.0.7"), 1)
	w.wantEnded(t, on, "udp 10.1.0.200:53")
	w.remove(t, "web", 1)
	w.wantEnded(t, on, "tcp 10.1.0.200:80; udp 10.1.0.200:53")

	// Another Service takes the address: its own connections do not end, and those to the former backend do.
	w.ensure(t, wanted(t, "other", v4, tcp, "10.1.0.9"), 1)
	w.wantEnded(t, on, "tcp 10.1.0.200:80 10.1.0.7:8080; udp 10.1.0.200:53")
	w.ensure(t, wanted(t, "other", v4, tcp, "10.1.0.9", "10.1.0.7"), 1)
	w.wantEnded(t, on, "udp 10.1.0.200:53")
}

// TestBoundaryEndedServed: old entries go with the next change, and a list has a bound: the latest entries stay.
func TestBoundaryEndedServed(t *testing.T) {
	w := newWorld(t)
	w.network(t, "blue", nbtest.NetDual)
	const on = "network shop/blue"
	end := func() {
		w.ensure(t, wanted(t, "web", "10.1.0.200", both, "10.1.0.7"), 1)
		w.ensure(t, wanted(t, "web", "10.1.0.200", both), 1)
	}
	end()
	add := func(vip, value string) {
		t.Helper()
		op := ovndb.SetPair("Copp", ovndb.EndedServedKey(on), "external_ids", "ovn-multinet/ended:"+vip, value)
		if _, err := w.Networks.DB.Transact(nbtest.WithLimit(t), []ovsdb.Operation{op}); err != nil {
			t.Fatal(err)
		}
	}
	add("udp 10.1.0.201:53", "10.1.0.8:53@1700000000")
	end()
	w.wantEnded(t, on, "udp 10.1.0.200:53 10.1.0.7:53")
	var words []string
	for i := range 5000 {
		words = append(words, fmt.Sprintf("10.2.%d.%d:53@%d", i/250, i%250, time.Now().Unix()-3000+int64(i)/2))
	}
	add("udp 10.1.0.201:53", strings.Join(words, " "))
	add("tcp 10.1.0.202:80", fmt.Sprintf("all@%d", time.Now().Unix()-3300))
	end()
	all := w.ended(t, on)
	if n := strings.Count(all, ";") + 1; n != 4096 || !strings.Contains(all, " 10.2.19.249:53") || !strings.Contains(all, "tcp 10.1.0.202:80;") || strings.Contains(all, " 10.2.0.0:53") {
		t.Errorf("%d entries, want 4096, the latest", n)
	}
}
