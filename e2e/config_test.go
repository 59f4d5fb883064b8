package e2e

import (
	"fmt"
	"strings"
	"testing"
)

// TestConfigIsFollowed: the operator's configuration counts and ends while one controller runs, and pods with it. A file with
// a mistake changes nothing.
func TestConfigIsFollowed(t *testing.T) {
	t.Parallel()
	w := newWireWorld(t, "physicalNetworks: {}\n")
	w.nad("v100", onVLAN(100, ""))
	state := func(want string) {
		t.Helper()
		w.eventually(func() error {
			s, ok := w.state("v100")
			if got := fmt.Sprint(ok, s.Ready, " ", s.Reason); !strings.HasPrefix(got, want) {
				return fmt.Errorf("the state is %s, want %s", got, want)
			}
			return nil
		})
	}
	const refused = "true false physical network provider, VLAN 100, is not granted"
	state(refused)
	controllerConfig(t, w.Lab, grantedVLANs)
	state("true true")
	p, peer := w.attached(0, "a", "v100"), w.attached(1, "b", "v100")
	w.mustReach(p, w.inCore(peer)...)

	controllerConfig(t, w.Lab, strings.Replace(grantedVLANs, "vlans:", "vlan:", 1))
	w.says(w.Controller, "the changed configuration is invalid")
	late := w.attached(0, "late", "v100") // what it said before counts
	controllerConfig(t, w.Lab, "physicalNetworks: {}\n")
	state(refused)
	w.mustReach(p, w.inCore(peer)...)
	equal(t, "times that a controller led", strings.Count(read(t, w.Controller.LogPath()), "msg=leading"), 1)
	w.end(p, peer, late)
	w.endNetworks("v100")
}
