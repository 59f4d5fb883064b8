//go:build sriov

package scenarios

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
	"github.com/ovn-multinet/ovn-multinet/e2e/labtest"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
)

// patience bounds each scenario. What takes a second on a machine takes ten on one that is emulated by a busy one.
const patience = 15 * time.Minute

const resourceAnnotation = "k8s.v1.cni.cncf.io/resourceName"

// allowed is what the node's operator lets delegates run in the scenarios.
var allowed = []string{"host-device", "sriov", "recorder"}

// The OVN networks of the scenarios, in namespace shop.
var nads = map[string]string{
	"blue":  `{"cniVersion":"1.0.0","name":"blue","type":"ovn-multinet","subnets":"10.1.0.0/16"}`,
	"green": `{"cniVersion":"1.0.0","name":"green","type":"ovn-multinet","subnets":"10.2.0.0/16,fd02::/64","mtu":1400}`,
}

// world is the guest's lab with agents and controller, as it was before any pod.
type world struct {
	*labtest.World

	vfs     [2][]vf           // of the two physical functions, on the first node
	kubelet *lab.PodResources // of the first node
	plugin  string            // gives virtual functions to pods in this scenario
}

// theWorld is one for all scenarios: each has to leave it as it was, and that the next one finds it so is part of the test.
var theWorld struct {
	sync.Once
	world
	failed []string // scenarios
}

// newWorld brings it up with the first scenario.
func newWorld(t *testing.T) *world {
	t.Helper()
	own := theWorld.world
	w := &own
	w.World = &labtest.World{Test: labtest.New(t, patience)}
	if before := theWorld.World; before != nil {
		w.Lab, w.Base = before.Lab, before.Base
	}
	t.Cleanup(func() {
		if !t.Failed() || w.Lab == nil {
			return
		}
		if len(theWorld.failed) == 0 {
			w.tellLogs()
		}
		theWorld.failed = append(theWorld.failed, t.Name())
	})
	theWorld.Do(func() {
		w.up()
		theWorld.world = *w
	})
	switch {
	case w.Base == nil:
		t.Fatal("the world did not come up")
	case len(theWorld.failed) > 0:
		if diff := w.Base.Diff(w.Snapshot()); diff != "" {
			t.Fatalf("one of %v did not leave the world as it was:\n%s", theWorld.failed, diff)
		}
	}
	return w
}

func (w *world) up() {
	var err error
	w.Lab, err = lab.New(w.Ctx, lab.Options{
		Name: "sriov", Nodes: 2, KernelDatapath: true, NodeHere: true, Physical: "provider",
		PluginConf: func(_ *lab.Node, entry map[string]any) {
			entry["allowedDelegates"], entry["allowedIPAM"] = allowed, []string{"static"}
		},
	})
	w.Must(err)
	for i := range w.vfs {
		w.vfs[i], err = findVFs(fmt.Sprintf("pf%d", i))
		w.Must(err)
	}
	w.configureGateway()
	// It ends with the guest.
	w.kubelet, _, err = w.Nodes[0].ServePodResources()
	w.Must(err)
	w.Start()
	for name, config := range nads {
		w.NAD(name, config)
	}
	for name := range nads {
		w.Eventually(func() error { return w.ready(name) })
	}
	w.gatewayStands()
	w.Base = w.Snapshot()
}

// ready reports whether the controller has made a network.
func (w *world) ready(name string) error {
	text, err := os.ReadFile(filepath.Join(w.Manifests, "shop."+name+".network.json"))
	if err != nil {
		return err
	}
	var state struct{ Network netmodel.NetworkState }
	if err := json.Unmarshal(text, &state); err != nil {
		return err
	}
	if !state.Network.Ready {
		return fmt.Errorf("network %s is not ready: %s", name, state.Network.Reason)
	}
	return nil
}

// tellLogs prints the ends of the logs: the guest's files go with the guest.
func (w *world) tellLogs() {
	for _, n := range w.Nodes {
		paths := []string{n.PluginLog}
		for _, p := range []*lab.Process{n.Agent, n.OVNController, n.VSwitchd} {
			if p != nil {
				paths = append(paths, p.LogPath())
			}
		}
		for _, path := range paths {
			text, err := os.ReadFile(path)
			lines := slices.DeleteFunc(strings.Split(string(text), "\n"), func(line string) bool { return strings.Contains(line, "level=DEBUG") })
			w.T.Logf("%s: %v\n%s", path, err, strings.Join(lines[max(0, len(lines)-15):], "\n"))
		}
	}
}

// equal compares and says what of.
func equal[T any](t testing.TB, what string, got, want T) {
	t.Helper()
	labtest.Equal(t, what, got, want)
}
