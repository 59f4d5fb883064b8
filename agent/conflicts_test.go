package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"golang.org/x/sys/unix"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
)

// waiting is wire, with ADDs that wait for other hosts.
const waiting = `{"type":"ovn-multinet","topology":"localnet","physicalNetworkName":"ext","vlanID":100,"subnets":"10.9.0.0/24","addressConflictWait":"10s"}`

const rival = "02:00:00:00:00:09"

// planProbing is a plan of a plugin that opens sockets, or does not.
func (r *rig) planProbing(id string, opens bool) (*agentapi.Plan, error) {
	p := &agentapi.Plan{}
	err := r.call(agentapi.OpPlan, agentapi.PlanRequest{Sandbox: r.sandbox(id), Probing: opens,
		Annotations: map[string]string{conf.NetworksAnnotation: "blue,wire"}}, p)
	return p, err
}

// Where ADDs wait for other hosts, a plugin that cannot wait is refused, and no port is written.
func TestNoWaitIsRefused(t *testing.T) {
	r := newLocalnet(t, waiting, "ovn-bridge-mappings=ext:lo")
	r.ovs.VSCtl("--no-wait", "add-br", "lo")
	r.start()
	_, err := r.planProbing("c1", false)
	wantCoded(t, err, conf.CodeTryAgain, "interface net2: network shop/wire: addressConflictWait: the plugin of this node does not serve it")
	if ports := r.ports(); len(ports) > 0 {
		t.Errorf("ports %v", ports)
	}
	p, err := r.planProbing("c2", true)
	r.must(err)
	if p.Interfaces[0].Probe != nil || p.Interfaces[1].Probe == nil || p.Interfaces[1].Probe.Wait != 10_000 {
		t.Errorf("overlay %+v, localnet %+v", p.Interfaces[0].Probe, p.Interfaces[1].Probe)
	}
	err = r.call(agentapi.OpBind, agentapi.BindRequest{
		Sandbox: r.sandbox("c2"), Plan: *p, Primary: json.RawMessage(`{"cniVersion":"1.0.0"}`),
	}, nil)
	wantCoded(t, err, conf.CodeTryAgain, "interface net2: network shop/wire: addressConflictWait: the plugin sent 0 sockets "+
		"to search for other hosts, not 1")
}

// Only ports with addresses on physical networks are searched for.
func TestProbeOf(t *testing.T) {
	has := []netip.Prefix{netip.MustParsePrefix("10.9.0.7/24")}
	for _, topology := range []string{netmodel.Layer2, netmodel.Layer3, netmodel.Localnet} {
		n := &netmodel.Network{Topology: topology}
		if got := probeOf(n, has); (got != nil) != (topology == netmodel.Localnet) || probeOf(n, nil) != nil {
			t.Errorf("%s: %v, without addresses %v", topology, got, probeOf(n, nil))
		}
	}
}

// rivalHost is the other end of a pod's socket: a host that answers each question for the address.
func rivalHost(t *testing.T) (socket int) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	mac, err := net.ParseMAC(rival)
	if err != nil {
		t.Fatal(err)
	}
	end := os.NewFile(uintptr(fds[1]), "rival")
	t.Cleanup(func() { unix.Close(fds[0]); end.Close() })
	go func() {
		frame := make([]byte, 256)
		for {
			if _, err := end.Read(frame); err != nil {
				return
			}
			reply := slices.Concat(frame[6:12], mac, frame[12:20], []byte{0, 2}, mac, frame[38:42], frame[6:12], make([]byte, 4))
			if _, err := end.Write(reply); err != nil {
				return
			}
		}
	}()
	return fds[0]
}

// A host that answers for a pod's address fails the ADD of a network whose ADDs wait; on another one its owner is told
// once, and NB has a note until another sandbox has the port. The next ADD gets another dynamic address.
func TestConflict(t *testing.T) {
	for _, tt := range []struct{ name, config string }{{"the ADD waits", waiting}, {"the ADD does not wait", wire}} {
		t.Run(tt.name, func(t *testing.T) {
			r := newLocalnet(t, tt.config, "ovn-bridge-mappings=ext:lo")
			r.ovs.VSCtl("--no-wait", "add-br", "lo")
			r.start()
			p, err := r.planProbing("c1", true)
			r.must(err)
			address := p.Interfaces[1].Addresses[0].Addr()
			bound := make(chan error, 1)
			c := &agentapi.Client{Socket: r.conf.Socket, Sockets: []int{rivalHost(t)}}
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			go func() {
				bound <- c.Call(ctx, agentapi.OpBind, agentapi.BindRequest{
					Sandbox: r.sandbox("c1"), Plan: *p, Primary: json.RawMessage(`{"cniVersion":"1.0.0"}`),
				}, nil)
			}()
			const patch = "patch-br-int-to-shop/wire:localnet" // as ovn-controller and ovs-vswitchd make it
			r.ovs.VSCtl("--no-wait", "add-port", "br-int", patch, "--", "set", "Interface", patch, "type=patch", "ofport=7")
			b := &binding{rig: r, id: "c1"}
			b.installed("net1")
			b.installed("net2")
			err = <-bound
			said := fmt.Sprintf("address %s is used by another host, with MAC %s", address, rival)
			note := func() string {
				for _, row := range r.nb.Dump(t, "Logical_Switch_Port") {
					if row["name"] == "shop/web/net2" {
						return row["external_ids"].(map[string]string)["ovn-multinet/address-conflicts"]
					}
				}
				return "(no row)"
			}
			warnings := func() (list []string) {
				_, events := r.source.told()
				return slices.DeleteFunc(events, func(e string) bool { return !strings.Contains(e, "AddressConflict") })
			}
			if tt.config == waiting {
				wantCoded(t, err, conf.CodeInUse, "interface net2: network shop/wire: "+said)
				r.must(r.call(agentapi.OpRelease, agentapi.Release{
					Version: agentapi.Version, Sandbox: r.sandbox("c1"), Planned: true, Ports: []agentapi.Port{p.Interfaces[1].Port},
				}, &agentapi.Released{}))
				next, err := r.planProbing("c2", true)
				r.must(err)
				if got := next.Interfaces[1].Addresses[0].Addr(); got == address {
					t.Errorf("the next ADD gets %s again", got)
				}
				if status, _ := r.source.told(); status != "" || note() != "" || len(warnings()) != 0 {
					t.Errorf("status %q, note %q, Events %q", status, note(), warnings())
				}
			} else {
				r.must(err)
				r.eventually("noted", func() bool { return note() == address.String()+"="+rival })
				if list := warnings(); len(list) != 1 || !strings.HasPrefix(list[0],
					"Warning AddressConflict: interface net2 on network shop/wire: "+said+"; give that host another address") {
					t.Errorf("Events %q", list)
				}
				_, err := r.planProbing("c2", true) // a newer sandbox of the pod
				r.must(err)
				if got := note(); got != "" {
					t.Errorf("the port of the next sandbox has the note %q", got)
				}
			}
			if n := testutil.ToFloat64(r.agent.metrics.searches.WithLabelValues(searchedConflict)); n != 1 {
				t.Errorf("%v searches ended with a conflict", n)
			}
		})
	}
}
