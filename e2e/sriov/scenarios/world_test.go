//go:build sriov

package scenarios

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	nadv1 "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
)

const (
	// patience bounds each scenario. What takes a second on a machine takes ten on one that is emulated by a busy one.
	patience = 5 * time.Minute
	// soon bounds what is to come about by itself after a call.
	soon = time.Minute
)

const (
	networksAnnotation = "k8s.v1.cni.cncf.io/networks"
	resourceAnnotation = "k8s.v1.cni.cncf.io/resourceName"
)

// allowed is what the node's operator lets delegates run in the scenarios.
var allowed = []string{"host-device", "sriov", "recorder"}

// The OVN networks of the scenarios, in namespace shop.
var nads = map[string]string{
	"blue":  `{"cniVersion":"1.0.0","name":"blue","type":"ovn-multinet","subnets":"10.1.0.0/16"}`,
	"green": `{"cniVersion":"1.0.0","name":"green","type":"ovn-multinet","subnets":"10.2.0.0/16,fd02::/64","mtu":1400}`,
}

// world is the guest's lab with agents and controller, as it was before any pod.
type world struct {
	*lab.Lab
	t    *testing.T
	ctx  context.Context
	base lab.Snapshot

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
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	own := theWorld.world
	w := &own
	w.t, w.ctx = t, ctx
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
	case w.base == nil:
		t.Fatal("the world did not come up")
	case len(theWorld.failed) > 0:
		if diff := w.base.Diff(w.snapshot()); diff != "" {
			t.Fatalf("one of %v did not leave the world as it was:\n%s", theWorld.failed, diff)
		}
	}
	return w
}

func (w *world) up() {
	w.t.Helper()
	var err error
	w.Lab, err = lab.New(w.ctx, lab.Options{
		Name: "sriov", Nodes: 2, KernelDatapath: true, NodeHere: true,
		PluginConf: func(_ *lab.Node, entry map[string]any) {
			entry["allowedDelegates"], entry["allowedIPAM"] = allowed, []string{"static"}
		},
	})
	w.must(err)
	for i := range w.vfs {
		w.vfs[i], err = findVFs(fmt.Sprintf("pf%d", i))
		w.must(err)
	}
	// It ends with the guest.
	w.kubelet, _, err = w.Nodes[0].ServePodResources()
	w.must(err)
	w.must(w.StartController(w.ctx))
	w.must(w.StartAgents(w.ctx))
	w.must(w.Announced(w.ctx))
	for name, config := range nads {
		w.definition(name, "", config)
	}
	for name := range nads {
		w.eventually(func() error { return w.ready(name) })
	}
	w.base = w.snapshot()
}

// ready tells whether the controller has made a network.
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
			w.t.Logf("%s: %v\n%s", path, err, strings.Join(lines[max(0, len(lines)-15):], "\n"))
		}
	}
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// definition writes a NAD into namespace shop, for devices of a resource if one is named.
func (w *world) definition(name, resource, config string) {
	w.t.Helper()
	annotations := ""
	if resource != "" {
		annotations = fmt.Sprintf("\n  annotations:\n    %s: %s", resourceAnnotation, resource)
	}
	w.must(w.WriteManifest(name+".yaml", fmt.Sprintf(
		"apiVersion: k8s.cni.cncf.io/v1\nkind: NetworkAttachmentDefinition\nmetadata:\n  namespace: shop\n  name: %s%s\nspec:\n  config: '%s'\n",
		name, annotations, config)))
}

func (w *world) snapshot() lab.Snapshot {
	w.t.Helper()
	s, err := w.Snapshot(w.ctx)
	w.must(err)
	return s
}

func (w *world) eventually(cond func() error) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, soon)
	defer cancel()
	w.must(lab.Eventually(ctx, cond))
}

// asBefore waits until the world is as it was before any pod: what a DEL leaves to the agent is done soon after.
func (w *world) asBefore() {
	w.t.Helper()
	w.eventually(func() error {
		if diff := w.base.Diff(w.snapshot()); diff != "" {
			return fmt.Errorf("the world is not as before:\n%s", diff)
		}
		return nil
	})
}

// pod makes a pod on the i-th node. It is not attached yet.
func (w *world) pod(i int, name, networks string) *lab.Pod {
	w.t.Helper()
	p, err := w.Nodes[i].NewPod(w.ctx, "shop", name, map[string]string{networksAnnotation: networks})
	w.must(err)
	return p
}

func (w *world) add(p *lab.Pod, opts ...lab.CallOption) {
	w.t.Helper()
	_, err := p.Add(w.ctx, opts...)
	w.must(err)
}

// attached makes a pod and attaches it.
func (w *world) attached(i int, name, networks string) *lab.Pod {
	w.t.Helper()
	p := w.pod(i, name, networks)
	w.add(p)
	return p
}

// end takes pods away altogether.
func (w *world) end(pods ...*lab.Pod) {
	w.t.Helper()
	for _, p := range pods {
		w.must(p.Close(w.ctx))
	}
}

// links reads a pod's interfaces, by name.
func (w *world) links(p *lab.Pod) map[string]lab.Link {
	w.t.Helper()
	links, err := p.Links(w.ctx)
	w.must(err)
	return links
}

// status reads a pod's network-status from beside its manifest.
func (w *world) status(p *lab.Pod) []nadv1.NetworkStatus {
	w.t.Helper()
	text, err := os.ReadFile(filepath.Join(w.Manifests, p.UID+".status.json"))
	w.must(err)
	var file struct {
		Status []nadv1.NetworkStatus `json:"network-status"`
	}
	w.must(json.Unmarshal(text, &file))
	return file.Status
}

// mustReach gives the network the moment that it may still need.
func (w *world) mustReach(p *lab.Pod, addrs ...string) {
	w.t.Helper()
	for _, addr := range addrs {
		w.eventually(func() error {
			_, err := p.Exec(w.ctx, "ping", "-c", "1", "-W", "2", addr)
			return err
		})
	}
}

// equal compares and says what of.
func equal[T any](t testing.TB, what string, got, want T) {
	t.Helper()
	if g, w := fmt.Sprintf("%+v", got), fmt.Sprintf("%+v", want); g != w {
		t.Errorf("%s:\n got %s\nwant %s", what, g, w)
	}
}
