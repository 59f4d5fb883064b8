package e2e

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

// TestBoundaryLooseNetworks: OVN remembers each MAC that a port without port security sends from, and bounds their number
// nowhere. So such a network needs a grant of the operator. When the grant goes, running pods stay and no new one comes.
func TestBoundaryLooseNetworks(t *testing.T) {
	const granted = "portSecurityOff: {namespaces: [shop]}\n"
	const refused = "portSecurity: false is not granted to namespace shop; the operator would have to write " +
		"portSecurityOff: {namespaces: [shop]} (the chart's value controller.portSecurityOff)"
	w := parallelWorld(t, lab.Options{Nodes: 2}, func(l *lab.Lab) { controllerConfig(t, l, "{}\n") })
	config := rogueNetworks["loose"]
	w.NAD("loose", config)
	w.notReady("loose", refused)
	w.refused(w.TryAdd(w.Pod(0, "no", "loose")), conf.CodeTryAgain, refused)
	w.noSwitch("shop/loose")
	configured := func(config string) {
		w.Must(w.StopController(w.Ctx))
		controllerConfig(t, w.Lab, config)
		w.Must(w.StartController(w.Ctx))
	}
	configured(granted)
	w.inForce("loose", config)
	a, b := w.Attached(0, "a", "loose"), w.Attached(1, "b", "loose")
	w.learns("loose", a, 40)
	configured("{}\n")
	w.notReady("loose", refused)
	w.refused(w.TryAdd(w.Pod(1, "late", "loose")), conf.CodeTryAgain, refused)
	w.MustReach(a, w.Links(b)["net1"].IPs()...)
	// With port security OVN learns nothing, whatever a pod sends.
	strict, peer := w.Attached(0, "strict", "green"), w.Attached(1, "peer", "green")
	before := w.macs("shop/green")
	w.sendFromMACs(strict, 40)
	w.MustReach(strict, w.Links(peer)["net1"].IPs()...)
	equal(t, "MACs that OVN has learned with port security", w.macs("shop/green"), before)
	w.End(a, b, strict, peer)
	w.endNetworks("loose")
}

// learns sends from as many MACs. OVN learns each: the measurement that the grant rests on.
func (w *world) learns(network string, p *lab.Pod, count int) {
	w.Eventually(func() error {
		w.sendFromMACs(p, count)
		if got := w.macs("shop/" + network); got < count {
			return fmt.Errorf("OVN has learned %d MACs", got)
		}
		return nil
	})
}

// sendFromMACs sends a frame to all from each of as many MACs.
func (w *world) sendFromMACs(p *lab.Pod, count int) {
	own := netip.MustParseAddr(w.Links(p)["net1"].IPs()[0])
	for i := range count {
		w.send(p, "net1", asked(net.HardwareAddr{0x02, 0xbb, 0, 0, 0, byte(i)}, own, own.Next()))
	}
}

// macs is the number of MACs that OVN has learned on a switch.
func (w *world) macs(sw string) int {
	key, err := w.SBCtl(w.Ctx, "--bare", "--columns=tunnel_key", "find", "Datapath_Binding", "external_ids:name="+sw)
	w.Must(err)
	out, err := w.SBCtl(w.Ctx, "--bare", "--columns=_uuid", "find", "FDB", "dp_key="+strings.TrimSpace(key))
	w.Must(err)
	return len(strings.Fields(out))
}
