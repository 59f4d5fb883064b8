package labtest

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	types100 "github.com/containernetworking/cni/pkg/types/100"
	nadv1 "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

// World is a lab with its controller and agents.
type World struct {
	Test
	*lab.Lab
	Base lab.Snapshot // before any pod
}

// Start starts the controller and the agents.
func (w *World) Start() {
	w.Must(w.StartController(w.Ctx))
	w.Must(w.StartAgents(w.Ctx))
	w.Must(w.Announced(w.Ctx))
}

// Sub is the world for a subtest.
func (w *World) Sub(t testing.TB) *World {
	return &World{Test{Traced(t), w.Ctx}, w.Lab, w.Base}
}

// Snapshot reads the state of the world.
func (w *World) Snapshot() lab.Snapshot {
	s, err := w.Lab.Snapshot(w.Ctx)
	w.Must(err)
	return s
}

// AsBefore waits until the world is as it was before any pod: the agent finishes what a DEL leaves to it soon after.
func (w *World) AsBefore() {
	w.Eventually(func() error {
		if diff := w.Base.Diff(w.Snapshot()); diff != "" {
			return fmt.Errorf("the world is not as before:\n%s", diff)
		}
		return nil
	})
}

// Pod makes a pod on the i-th node with the networks annotation, "" for none. The pod is not attached yet.
func (w *World) Pod(i int, name, networks string) *lab.Pod {
	annotations := map[string]string{}
	if networks != "" {
		annotations[NetworksAnnotation] = networks
	}
	p, err := w.Nodes[i].NewPod(w.Ctx, "shop", name, annotations)
	w.Must(err)
	return p
}

// Attached makes a pod and attaches it.
func (w *World) Attached(i int, name, networks string) *lab.Pod {
	p := w.Pod(i, name, networks)
	w.Add(p)
	return p
}

// Add calls ADD for a pod.
func (w *World) Add(p *lab.Pod, opts ...lab.CallOption) *types100.Result {
	result, err := p.Add(w.Ctx, opts...)
	w.Must(err)
	return result
}

// TryAdd calls ADD for a pod and returns its error.
func (w *World) TryAdd(p *lab.Pod, opts ...lab.CallOption) error {
	_, err := p.Add(w.Ctx, opts...)
	return err
}

// AddInTheEnd calls ADD for a pod until it succeeds: networks need a moment after their NADs. As a container runtime
// does, it calls DEL after an ADD that failed.
func (w *World) AddInTheEnd(p *lab.Pod) {
	ctx, cancel := context.WithTimeout(w.Ctx, Soon)
	defer cancel()
	w.Must(w.AddWithin(ctx, p))
}

// AddWithin is AddInTheEnd with a limit of the caller. It returns the last error.
func (w *World) AddWithin(ctx context.Context, p *lab.Pod) error {
	return lab.Eventually(ctx, func() error {
		err := w.TryAdd(p)
		if err != nil {
			w.Del(p)
		}
		return err
	})
}

// Del calls DEL for a pod.
func (w *World) Del(p *lab.Pod, opts ...lab.CallOption) { w.Must(p.Del(w.Ctx, opts...)) }

// End ends pods: DEL, their namespaces and their manifests.
func (w *World) End(pods ...*lab.Pod) {
	for _, p := range pods {
		w.Must(p.Close(w.Ctx))
	}
}

// Over ends pods and waits until the world is as it was before any pod.
func (w *World) Over(pods ...*lab.Pod) {
	w.End(pods...)
	w.AsBefore()
}

// NewSandbox makes the next sandbox of a pod.
func (w *World) NewSandbox(p *lab.Pod) *lab.Pod {
	next, err := p.NewSandbox(w.Ctx)
	w.Must(err)
	return next
}

// Links reads a pod's interfaces, by name.
func (w *World) Links(p *lab.Pod) map[string]lab.Link {
	links, err := p.Links(w.Ctx)
	w.Must(err)
	return links
}

// Status reads a pod's network-status from the file beside its manifest.
func (w *World) Status(p *lab.Pod) []nadv1.NetworkStatus {
	var file struct {
		Namespace, Name, UID string
		Status               []nadv1.NetworkStatus `json:"network-status"`
	}
	w.Must(json.Unmarshal(w.Read(filepath.Join(w.Manifests, p.UID+".status.json")), &file))
	if file.Namespace != p.Namespace || file.Name != p.Name || file.UID != p.UID {
		w.T.Errorf("status file of %s names %s/%s %s", p, file.Namespace, file.Name, file.UID)
	}
	return file.Status
}

// Endpoint is what runs commands on a network: a pod, a node or a machine.
type Endpoint interface {
	Exec(ctx context.Context, command ...string) (string, error)
}

// Exec runs a command and returns what it printed.
func (w *World) Exec(at Endpoint, command ...string) string {
	out, err := at.Exec(w.Ctx, command...)
	w.Must(err)
	return out
}

// Reaches reports whether an address answers a ping. A ping that is to succeed takes a millisecond here, so one that
// is to fail waits only a second.
func (w *World) Reaches(from Endpoint, addr string) error {
	_, err := from.Exec(w.Ctx, "ping", "-c", "1", "-W", "1", addr)
	return err
}

// MustReach gives OVN the time that the other node's flows may still need: ovn-installed speaks only of the pod's own node.
func (w *World) MustReach(from Endpoint, addrs ...string) {
	for _, addr := range addrs {
		ctx, cancel := context.WithTimeout(w.Ctx, Soon)
		err := lab.Eventually(ctx, func() error { return w.Reaches(from, addr) })
		cancel()
		if err != nil {
			w.T.Errorf("%s does not reach %s: %v", from, addr, err)
		}
	}
}

// NADName reads "<namespace>/<name>", or a name in namespace shop.
func NADName(nad string) (namespace, name string) {
	if namespace, name, ok := strings.Cut(nad, "/"); ok {
		return namespace, name
	}
	return "shop", nad
}

// NADFile is the file of a NAD's manifest.
func NADFile(nad string) string { return strings.ReplaceAll(nad, "/", ".") + ".yaml" }

// Manifest is the YAML of a NAD, with annotations as keys and values.
func Manifest(nad, config string, annotations ...string) string {
	namespace, name := NADName(nad)
	lines := ""
	for i := 0; i < len(annotations); i += 2 {
		lines += fmt.Sprintf("\n    %s: %q", annotations[i], annotations[i+1])
	}
	return fmt.Sprintf(`apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata:
  namespace: %s
  name: %s
  annotations:%s
spec:
  config: '%s'
`, namespace, name, cmp.Or(lines, " {}"), config)
}

// NAD writes a NAD and waits for nothing.
func (w *World) NAD(nad, config string, annotations ...string) {
	w.Must(w.WriteManifest(NADFile(nad), Manifest(nad, config, annotations...)))
}

// NBCtl runs ovn-nbctl.
func (w *World) NBCtl(args ...string) string {
	out, err := w.Lab.NBCtl(w.Ctx, args...)
	w.Must(err)
	return out
}

// RestoreNB has the server of the lab's own NB start on another file: a copy, or none for an empty database.
func (w *World) RestoreNB(content []byte) {
	w.Must(w.NB.Kill())
	w.Must(os.RemoveAll(w.NBFile()))
	if content == nil {
		w.Must(w.NewNBFile(w.Ctx))
	} else {
		w.Must(os.WriteFile(w.NBFile(), content, 0o600))
	}
	w.Must(w.NB.Restart(w.Ctx))
}

// VSCtl runs ovs-vsctl on a node.
func (w *World) VSCtl(n *lab.Node, args ...string) string {
	out, err := n.VSCtl(w.Ctx, args...)
	w.Must(err)
	return out
}

// Multinet runs kubectl multinet.
func (w *World) Multinet(args ...string) string {
	out, err := w.Lab.Multinet(w.Ctx, args...)
	w.Must(err)
	return out
}
