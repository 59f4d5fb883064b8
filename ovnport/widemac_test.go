package ovnport_test

import (
	"net/netip"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnport"
)

// These are the ports whose MAC is made from an IPv6 address of which another one may have the same lower 32 bits.

const net51 = `"subnets":"fd51:0:0:1::/64"`

// Addresses that are free are given, also those whose lower 32 bits are alike, and each port costs one transaction.
func TestAddressesWithTheSameLowerBits(t *testing.T) {
	w := newWorld(t)
	n := w.network(t, "blue", net51)
	first, second := owner("web-1", "sandbox-1"), owner("web-2", "sandbox-2")
	w.proxy.Reset()
	ports := mustEnsure(t, w.nb, first, want(n, "net1", "fd51:0:0:1:1::1"))
	ports = append(ports, mustEnsure(t, w.nb, second, want(n, "net1", "fd51:0:0:1:2::1"))...)
	w.wantCounts(t, 2, 0, 0)
	w.wantOneHolder(t)
	mustRelease(t, w.nb, first.Sandbox, ports[0])
	mustRelease(t, w.nb, second.Sandbox, ports[1])
	w.proxy.Reset()
	ports = mustEnsure(t, w.nb, first, want(n, "net1", "fd51:0:0:1:1::1"), want(n, "net2", "fd51:0:0:1:2::1"))
	w.wantCounts(t, 1, 0, 0)
	w.wantOneHolder(t)
	w.wantPorts(t, first, ports)
}

// A MAC that another port has is passed over, unless the pod asks for it. The pod keeps what it got: over a new
// sandbox, over the loss of its rows, and when it is made again while the other port stands.
func TestTakenMACIsPassedOver(t *testing.T) {
	const address = "fd51:0:0:1:1::1"
	tests := []struct {
		name    string
		network func(w *world, t *testing.T) *netmodel.Network
		subnet  netip.Prefix
	}{
		{"a network of its own", func(w *world, t *testing.T) *netmodel.Network {
			return w.network(t, "blue", net51)
		}, netip.MustParsePrefix("fd51:0:0:1::/64")},
		{"a wire", func(w *world, t *testing.T) *netmodel.Network {
			return w.onWire(t, "shop", "blue", 7, ","+net51)
		}, netip.Prefix{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			n := tt.network(w, t)
			made, _ := ovndb.LeaseMAC(tt.subnet, addr(address))
			other := mustEnsure(t, w.nb, owner("other", "sandbox-o"), want(n, "net1", "fd51:0:0:1::9", made.String()))
			o := owner("web-1", "sandbox-1")

			w.proxy.Reset()
			port := mustEnsure(t, w.nb, o, want(n, "net1", address))[0]
			w.wantCounts(t, 1, 1, 2) // the looks: at the rows in the way, and at the claim's port
			w.wantOneHolder(t)
			again := func(what string, p ovnport.Port, committed, refused, readOnly int) {
				t.Helper()
				w.wantCounts(t, committed, refused, readOnly)
				if p.MAC.String() != port.MAC.String() || p.UUID != port.UUID {
					t.Errorf("%s: %s %v, want %s %v", what, p.MAC, p.Addresses, port.MAC, port.Addresses)
				}
				w.wantOneHolder(t)
				read(t, w.Server).check(t)
			}
			w.proxy.Reset()
			// The second look finds the port owned.
			again("the same call again", mustEnsure(t, w.nb, o, want(n, "net1", address))[0], 0, 1, 2)
			o.Sandbox = "sandbox-2"
			w.proxy.Reset()
			again("a new sandbox", mustEnsure(t, w.nb, o, want(n, "net1", address))[0], 1, 1, 1)
			mustRelease(t, w.nb, o.Sandbox, port)
			w.proxy.Reset()
			again("made again", mustEnsure(t, w.nb, o, want(n, "net1", address))[0], 1, 1, 2)

			// NB loses its rows, and they are restored by what the journal has.
			w.NBCtl("lsp-del", port.Name)
			for _, claim := range port.Claims {
				w.Transact(t, ovndbtest.Op{"op": "delete", "table": "Copp",
					"where": []any{[]any{"_uuid", "==", ovndbtest.UUID(claim)}}})
			}
			w.proxy.Reset()
			journal, stands := want(n, "net1", address, port.MAC.String()), nobody(t)
			if err := w.nb.Restore(timeout(t), o, journal, port, stands); err != nil {
				t.Fatal(err)
			}
			s := read(t, w.Server)
			if bad := s.differs(o, port, n.PortSecurity); bad != "" {
				t.Error(bad)
			}
			again("restored", port, 1, 0, 1)

			w.proxy.Reset()
			taken := []ovnport.Request{want(n, "net1", "fd51:0:0:1:2::1", made.String())}
			_, err := w.nb.Ensure(timeout(t), owner("web-2", "sandbox-3"), taken, nobody(t))
			wantCode(t, err, conf.CodeInUse, "MAC "+made.String(), "shop/other")
			w.wantCounts(t, 0, 1, 2)
			mustRelease(t, w.nb, "sandbox-o", other...)
		})
	}
}
