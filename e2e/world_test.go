package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	nadv1 "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

func TestMain(m *testing.M) { lab.Main(m, lab.WithPrevious()) }

// The scenarios run at once, but for those that use the machine's folder of devices, or set the environment: go test runs
// these first.

// patience bounds each test: a scenario that hangs should say where, long before the test binary's own limit. Most take
// some seconds; a machine that is ten times slower, and busy, has to pass too.
const patience = 10 * time.Minute

// soon bounds what is to come about by itself after a call: the agent's retry of a release takes some seconds.
var soon = sooner(3 * time.Minute)

// sooner lets who expects failures wait less long for them.
func sooner(usual time.Duration) time.Duration {
	if d, err := time.ParseDuration(os.Getenv("OVN_MULTINET_SOON")); err == nil {
		return d
	}
	return usual
}

const networksAnnotation = "k8s.v1.cni.cncf.io/networks"

// The networks of the tests, in namespace shop.
var nads = map[string]string{
	"blue":  `{"cniVersion":"1.0.0","name":"blue","type":"ovn-multinet","subnets":"10.1.0.0/16","excludeSubnets":"10.1.255.0/24","routes":[{"dst":"10.99.0.0/16","gw":"10.1.0.1"}]}`,
	"green": `{"cniVersion":"1.0.0","name":"green","type":"ovn-multinet","subnets":"10.2.0.0/16,fd02::/64","mtu":1400}`,
	"six":   `{"cniVersion":"1.0.0","name":"six","type":"ovn-multinet","subnets":"fd06::/64"}`,
	"wire":  `{"cniVersion":"1.0.0","name":"wire","type":"ovn-multinet"}`,
	"tiny":  `{"cniVersion":"1.0.0","name":"tiny","type":"ovn-multinet","subnets":"10.3.0.0/29"}`,
}

// world is a lab with agents and controller, its networks made, as it was before any pod.
type world struct {
	*lab.Lab
	t    testing.TB
	ctx  context.Context
	base lab.Snapshot
}

// newWorld brings one up. before may change the nodes before the agents start.
func newWorld(t testing.TB, o lab.Options, before func(*lab.Lab)) *world {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	w := &world{Lab: lab.Start(t, o), t: t, ctx: ctx}
	if before != nil {
		before(w.Lab)
	}
	w.must(w.StartController(ctx))
	w.must(w.StartAgents(ctx))
	w.must(w.Announced(ctx))
	for name, config := range nads {
		w.network(name, config)
	}
	w.base = w.snapshot()
	return w
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// network writes a NAD and waits until the network is as it says.
func (w *world) network(nad, config string) {
	w.t.Helper()
	w.nad(nad, config)
	w.inForce(nad, config)
}

func (w *world) snapshot() lab.Snapshot {
	w.t.Helper()
	s, err := w.Snapshot(w.ctx)
	w.must(err)
	return s
}

// asBefore waits until the world is as it was before any pod: what a DEL leaves to the agent is done soon after.
func (w *world) asBefore() {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, soon)
	defer cancel()
	err := lab.Eventually(ctx, func() error {
		if diff := w.base.Diff(w.snapshot()); diff != "" {
			return fmt.Errorf("the world is not as before:\n%s", diff)
		}
		return nil
	})
	w.must(err)
}

// pod makes a pod on the i-th node with the networks annotation, "" for none. It is not attached yet.
func (w *world) pod(i int, name, networks string) *lab.Pod {
	w.t.Helper()
	annotations := map[string]string{}
	if networks != "" {
		annotations[networksAnnotation] = networks
	}
	p, err := w.Nodes[i].NewPod(w.ctx, "shop", name, annotations)
	w.must(err)
	return p
}

// attached makes a pod and attaches it.
func (w *world) attached(i int, name, networks string) *lab.Pod {
	w.t.Helper()
	p := w.pod(i, name, networks)
	w.add(p)
	return p
}

func (w *world) add(p *lab.Pod, opts ...lab.CallOption) {
	w.t.Helper()
	_, err := p.Add(w.ctx, opts...)
	w.must(err)
}

func (w *world) del(p *lab.Pod, opts ...lab.CallOption) {
	w.t.Helper()
	w.must(p.Del(w.ctx, opts...))
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

// routes reads a pod's routes as "dst via gw dev", sorted.
func (w *world) routes(p *lab.Pod, family string) []string {
	w.t.Helper()
	out, err := p.Exec(w.ctx, "ip", "-json", family, "route")
	w.must(err)
	var list []struct{ Dst, Gateway, Dev string }
	w.must(json.Unmarshal([]byte(out), &list))
	var words []string
	for _, r := range list {
		words = append(words, strings.TrimSpace(fmt.Sprintf("%s via %s dev %s", r.Dst, r.Gateway, r.Dev)))
	}
	slices.Sort(words)
	return words
}

// status reads a pod's network-status from beside its manifest.
func (w *world) status(p *lab.Pod) []nadv1.NetworkStatus {
	w.t.Helper()
	text, err := os.ReadFile(filepath.Join(w.Manifests, p.UID+".status.json"))
	w.must(err)
	var file struct {
		Namespace, Name, UID string
		Status               []nadv1.NetworkStatus `json:"network-status"`
	}
	w.must(json.Unmarshal(text, &file))
	if file.Namespace != p.Namespace || file.Name != p.Name || file.UID != p.UID {
		w.t.Errorf("status file of %s names %s/%s %s", p, file.Namespace, file.Name, file.UID)
	}
	return file.Status
}

// endpoint is what can ping: a pod or a machine.
type endpoint interface {
	fmt.Stringer
	Exec(ctx context.Context, command ...string) (string, error)
	Start(ctx context.Context, command ...string) (*lab.Process, error)
}

// reaches tells whether an address answers a ping. An answer that must not come is waited for only briefly: a ping that
// is to succeed on this lab takes a millisecond.
func (w *world) reaches(p endpoint, addr string) error {
	_, err := p.Exec(w.ctx, "ping", "-c", "1", "-W", "1", addr)
	return err
}

// mustReach gives OVN the moment that the other node's flows may still need: ovn-installed speaks only of the
// pod's own node.
func (w *world) mustReach(p endpoint, addrs ...string) {
	w.t.Helper()
	for _, addr := range addrs {
		ctx, cancel := context.WithTimeout(w.ctx, soon)
		err := lab.Eventually(ctx, func() error { return w.reaches(p, addr) })
		cancel()
		if err != nil {
			w.t.Errorf("%s does not reach %s: %v", p, addr, err)
		}
	}
}

// mustNotReach asks on one interface, as if the address were its neighbour: a route must not be what stops it.
func (w *world) mustNotReach(p endpoint, ifName string, addrs ...string) {
	w.t.Helper()
	for _, addr := range addrs {
		if out, err := p.Exec(w.ctx, "ping", "-c", "1", "-W", "1", "-I", ifName, addr); err == nil {
			w.t.Errorf("%s reaches %s by %s, which isolation must stop: %s", p, addr, ifName, out)
		}
	}
}

// equal compares and says what of.
func equal[T any](t testing.TB, what string, got, want T) {
	t.Helper()
	if g, w := fmt.Sprintf("%+v", got), fmt.Sprintf("%+v", want); g != w {
		t.Errorf("%s:\n got %s\nwant %s", what, g, w)
	}
}
