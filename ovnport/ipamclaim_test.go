package ovnport_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnport"
)

// launcher is the sandbox of a virtual machine's pod on a node.
func launcher(i int) ovnport.Owner {
	return ovnport.Owner{
		Namespace: "shop", Pod: fmt.Sprint("launcher-", i), UID: fmt.Sprint("uid-", i), Sandbox: fmt.Sprint("sandbox-", i),
		Node: fmt.Sprint("node-", 1+i%2), Chassis: fmt.Sprint("chassis-", 1+i%2),
	}
}

func wantClaim(n *netmodel.Network, words ...string) ovnport.Request {
	r := want(n, "net1", words...)
	r.IPAMClaim = "shop/vm.blue"
	return r
}

// wantHeld compares what the IPAMClaim has with the rows of its addresses and of its port.
func (w *world) wantHeld(t *testing.T, n *netmodel.Network, port string, has string) {
	t.Helper()
	now := read(t, w.Server)
	row := now.claims[ovndb.IPAMClaimKey("shop/vm.blue")]
	if row == nil || ids(row)["ovn-multinet/ipam-claim-has"] != has {
		t.Fatalf("the IPAMClaim has %v, want %s", row, has)
	}
	var keys []string
	for i, word := range strings.Fields(has) {
		if i == 0 {
			hw, err := net.ParseMAC(word)
			if err != nil {
				t.Fatal(err)
			}
			if key := ovndb.MACKey(n.AddressBook(), hw); now.claims[key] != nil {
				keys = append(keys, key)
			}
			continue
		}
		address, _, _ := strings.Cut(word, "/")
		keys = append(keys, ovndb.AddressKey(n.AddressBook(), addr(address)))
	}
	slices.Sort(keys)
	var claims []string
	for key, claim := range now.claims {
		if ids(claim)["ovn-multinet/ipam-claim"] != "" && claim["name"] != row["name"] {
			claims = append(claims, key)
		}
	}
	slices.Sort(claims)
	listed := strings.Fields(ids(row)["ovn-multinet/claims"])
	slices.Sort(listed)
	if !slices.Equal(claims, keys) || !slices.Equal(listed, keys) {
		t.Errorf("NB has the claims %v, the IPAMClaim lists %v, want %v", claims, listed, keys)
	}
	got := ""
	for key, p := range now.ports {
		if ids(p)["ovn-multinet/ipam-claim"] != "" {
			got += fmt.Sprint(p["name"], " of ", ids(p)["ovn-multinet/pod"], " on ", p["options"].(map[string]string)["requested-chassis"])
			if key != ovndb.IPAMClaimPortKey("shop/vm.blue") {
				t.Errorf("the port has the key %s", key)
			}
		}
	}
	if got != port {
		t.Errorf("port %q, want %q", got, port)
	}
}

// TestIPAMClaim: the pods of a virtual machine have the same addresses and MAC, one after the other, on any node, and
// between them nobody else gets these. One read more than other pods is all that they cost.
func TestIPAMClaim(t *testing.T) {
	for name, keys := range map[string]string{
		"two families": netDual,
		"IPv6":         net6,
		"no address":   netMAC,
		"localnet":     `"topology":"localnet","physicalNetworkName":"phys","subnets":"10.1.0.0/24,fd01::/64"`,
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			n := w.network(t, "blue", keys)
			w.proxy.Reset()
			first := mustEnsure(t, w.nb, launcher(1), wantClaim(n))[0]
			w.wantCounts(t, 1, 0, 1)
			has := first.MAC.String()
			for _, a := range first.Addresses {
				has += " " + a.String()
			}
			const on = "shop/vm.blue/ipam:claim of launcher-%d on chassis-%d"
			w.wantHeld(t, n, fmt.Sprintf(on, 1, 2), has)
			for i := 2; i < 6; i++ {
				mustRelease(t, w.nb, launcher(i-1).Sandbox, first)
				w.wantHeld(t, n, "", has)
				for _, a := range first.Addresses {
					_, err := w.nb.Ensure(timeout(t), owner("web", "other"), []ovnport.Request{want(n, "net1", a.Addr().String())}, nobody(t))
					wantCode(t, err, conf.CodeInUse, a.Addr().String(), "is in use by IPAMClaim shop/vm.blue")
				}
				w.proxy.Reset()
				again := mustEnsure(t, w.nb, launcher(i), wantClaim(n))[0]
				w.wantCounts(t, 1, 0, 1)
				if fmt.Sprint(again) != fmt.Sprint(first) {
					t.Fatalf("pod %d has %v, the first one had %v", i, again, first)
				}
				w.wantHeld(t, n, fmt.Sprintf(on, i, 1+i%2), has)
			}
			mustEnsure(t, w.nb, launcher(5), wantClaim(n)) // the runtime asks again
			w.wantHeld(t, n, fmt.Sprintf(on, 5, 2), has)
		})
	}
}

// TestIPAMClaimIsTaken: as long as a pod has the port, another one gets it only if the caller allows it.
func TestIPAMClaimIsTaken(t *testing.T) {
	w := newWorld(t)
	n := w.network(t, "blue", net4)
	had := mustEnsure(t, w.nb, launcher(1), wantClaim(n))[0]
	refused := errors.New("the pod runs")
	before := read(t, w.Server)
	_, err := w.nb.Ensure(timeout(t), launcher(2), []ovnport.Request{wantClaim(n)}, func(_ context.Context, older ovnport.Owner) error {
		if older.Pod != "launcher-1" || older.Node != "node-2" {
			t.Errorf("asked about %+v", older)
		}
		return refused
	})
	if !errors.Is(err, refused) {
		t.Errorf("error %v", err)
	}
	w.wantUnchanged(t, before)
	has := mustEnsure(t, w.nb, launcher(2), wantClaim(n))[0]
	if fmt.Sprint(has) != fmt.Sprint(had) {
		t.Errorf("%v after %v", has, had)
	}
	mustRelease(t, w.nb, launcher(1).Sandbox, had) // the late DEL of the older pod
	w.wantHeld(t, n, "shop/vm.blue/ipam:claim of launcher-2 on chassis-1", had.MAC.String()+" "+had.Addresses[0].String())
}

// TestIPAMClaimChanges: another MAC in the pod's annotation replaces that of the IPAMClaim, and a subnet that the network
// has got since gives it one more address. What does not fit is refused.
func TestIPAMClaimChanges(t *testing.T) {
	w := newWorld(t)
	n := w.network(t, "blue", net4)
	ensure := func(i int, n *netmodel.Network, words ...string) {
		t.Helper()
		mustRelease(t, w.nb, launcher(i).Sandbox, mustEnsure(t, w.nb, launcher(i), wantClaim(n, words...))...)
	}
	ensure(1, n, "10.1.0.7")
	w.wantHeld(t, n, "", "0a:58:0a:01:00:07 10.1.0.7/24")
	ensure(2, n, "10.1.0.9") // an address that the IPAMClaim asks for does not count any more
	w.wantHeld(t, n, "", "0a:58:0a:01:00:07 10.1.0.7/24")
	ensure(3, n, "02:00:00:00:00:01")
	w.wantHeld(t, n, "", "02:00:00:00:00:01 10.1.0.7/24")
	ensure(4, n, "02:00:00:00:00:02")
	w.wantHeld(t, n, "", "02:00:00:00:00:02 10.1.0.7/24")
	ensure(5, n)
	w.wantHeld(t, n, "", "02:00:00:00:00:02 10.1.0.7/24")

	more := parseNetwork(t, "blue", netDual)
	w.accept(t, more, more.NAD())
	ports := mustEnsure(t, w.nb, launcher(6), wantClaim(more))
	w.wantHeld(t, more, "shop/vm.blue/ipam:claim of launcher-6 on chassis-1",
		"02:00:00:00:00:02 10.1.0.7/24 "+ports[0].Addresses[1].String())
	mustRelease(t, w.nb, launcher(6).Sandbox, ports...)

	for want, request := range map[string]ovnport.Request{
		"IPAMClaim shop/vm.blue has addresses of network shop/blue, not of network shop/red":          wantClaim(w.network(t, "red", net4)),
		"IPAMClaim shop/vm.blue has the address 10.1.0.7, which is in no subnet of network shop/blue": wantClaim(parseNetwork(t, "blue", `"subnets":"10.9.0.0/24"`)),
	} {
		before := read(t, w.Server)
		_, err := w.nb.Ensure(timeout(t), launcher(7), []ovnport.Request{request}, nobody(t))
		wantCode(t, err, conf.CodeInvalidConfig, "interface net1: "+want)
		w.wantUnchanged(t, before)
	}
}

// TestIPAMClaimsAtOnce: pods of a virtual machine that begin at once get the same addresses.
func TestIPAMClaimsAtOnce(t *testing.T) {
	w := newWorld(t)
	n := w.network(t, "blue", netDual)
	var all sync.WaitGroup
	texts := make([]string, 6)
	for i := range texts {
		client := w.other(t)
		all.Go(func() {
			ports, err := client.Ensure(timeout(t), launcher(i), []ovnport.Request{wantClaim(n)}, anyone)
			if err != nil {
				t.Error(err)
				return
			}
			texts[i] = fmt.Sprint(ports)
		})
	}
	all.Wait()
	if slices.Sort(texts); texts[0] != texts[len(texts)-1] {
		t.Errorf("the pods got %q", texts)
	}
}

// TestIPAMClaimsFillASubnet: addresses of IPAMClaims without a pod are in use, also when the subnet is nearly full.
func TestIPAMClaimsFillASubnet(t *testing.T) {
	w := newWorld(t)
	n := w.network(t, "blue", `"subnets":"10.1.0.0/28"`)
	used := map[string]bool{}
	for i := range 13 { // 16 without the network, the gateway and the broadcast address
		r := want(n, "net1")
		if i%2 == 0 {
			r.IPAMClaim = fmt.Sprint("shop/vm", i)
		}
		ports := mustEnsure(t, w.nb, launcher(i), r)
		if a := ports[0].Addresses[0].String(); used[a] {
			t.Errorf("%s is given twice", a)
		} else {
			used[a] = true
		}
		if r.IPAMClaim != "" {
			mustRelease(t, w.nb, launcher(i).Sandbox, ports...)
		}
	}
	_, err := w.nb.Ensure(timeout(t), launcher(20), []ovnport.Request{want(n, "net1")}, nobody(t))
	wantCode(t, err, conf.CodeNoAddressLeft)
}

// TestStaleIPAMClaim: a claim whose IPAMClaim has no row any more, after a change by hand, gives the address up.
func TestStaleIPAMClaim(t *testing.T) {
	w := newWorld(t)
	n := w.network(t, "blue", netDual)
	lose := func(key string) {
		w.Transact(t, ovndbtest.Op{"op": "delete", "table": "Copp", "where": []any{[]any{"_uuid", "==", ovndbtest.UUID(key)}}})
	}
	start := func(i int, words ...string) {
		t.Helper()
		mustRelease(t, w.nb, launcher(i).Sandbox, mustEnsure(t, w.nb, launcher(i), wantClaim(n, words...))...)
	}
	start(1, "10.1.0.7", "fd01::7")
	lose(ovndb.IPAMClaimKey("shop/vm.blue"))
	mustRelease(t, w.nb, "other", mustEnsure(t, w.nb, owner("web", "other"), want(n, "net1", "10.1.0.7"))...)
	start(2, "10.1.0.7", "fd01::7")
	lose(ovndb.AddressKey(n.ID(), addr("fd01::7")))
	start(3) // the claim of the address is written again
	w.wantHeld(t, n, "", "0a:58:0a:01:00:07 10.1.0.7/24 fd01::7/64")
}

// TestRestoredIPAMClaim: NB has lost the rows of a running pod, all of them or some.
func TestRestoredIPAMClaim(t *testing.T) {
	w := newWorld(t)
	n := w.network(t, "blue", netDual)
	port := mustEnsure(t, w.nb, launcher(1), wantClaim(n, "10.1.0.7", "fd01::7"))[0]
	request := wantClaim(n, "10.1.0.7", "fd01::7", port.MAC.String())
	const has = "0a:58:0a:01:00:07 10.1.0.7/24 fd01::7/64"
	rows := func() map[string][]string {
		return map[string][]string{
			"Copp": {ovndb.IPAMClaimKey("shop/vm.blue"), ovndb.AddressKey(n.ID(), addr("10.1.0.7"))},
			"port": {ovndb.SwitchKey(n.ID())},
		}
	}
	for name, lost := range map[string]map[string][]string{
		"all": rows(), "the port": {"port": rows()["port"]}, "the IPAMClaim's row": {"Copp": rows()["Copp"][:1]},
		"an address": {"Copp": rows()["Copp"][1:]},
	} {
		t.Run(name, func(t *testing.T) {
			for _, key := range lost["Copp"] {
				w.Transact(t, ovndbtest.Op{"op": "delete", "table": "Copp",
					"where": []any{[]any{"_uuid", "==", ovndbtest.UUID(key)}}})
			}
			if lost["port"] != nil {
				w.Transact(t, ovndbtest.Op{"op": "update", "table": "Logical_Switch", "where": []any{},
					"row": ovndbtest.Op{"ports": ovndbtest.Set[any]()}})
				missing, err := w.nb.Incomplete(timeout(t), launcher(1).Sandbox, []ovnport.Port{port})
				if err != nil || !missing[port.Name] {
					t.Fatalf("missing %v: %v", missing, err)
				}
			}
			if err := w.nb.Restore(timeout(t), launcher(1), request, port, nobody(t)); err != nil {
				t.Fatal(err)
			}
			w.wantHeld(t, n, "shop/vm.blue/ipam:claim of launcher-1 on chassis-2", has)
		})
	}
	other := wantClaim(n, "10.1.0.8", "fd01::7")
	if err := w.nb.Restore(timeout(t), launcher(1), other, port, nobody(t)); !errors.Is(err, ovnport.ErrNetworkChanged) {
		t.Errorf("restored with another address: %v", err)
	}
}
