package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
	"github.com/ovn-multinet/ovn-multinet/e2e/labtest"
)

func TestMain(m *testing.M) { lab.Main(m, lab.WithPrevious(), lab.WithTables()) }

// The scenarios run at once, but for those that use the machine's folder of devices, or set the environment: go test runs
// these first.

// patience bounds each test: a scenario that hangs should say where, long before the test binary's own limit. Most take
// some seconds; a machine that is ten times slower, and busy, has to pass too.
const patience = 10 * time.Minute

// The networks of the tests, in namespace shop.
var nads = map[string]string{
	"blue":  `{"cniVersion":"1.0.0","name":"blue","type":"ovn-multinet","subnets":"10.1.0.0/16","excludeSubnets":"10.1.255.0/24","routes":[{"dst":"10.99.0.0/16","gw":"10.1.0.1"}]}`,
	"green": `{"cniVersion":"1.0.0","name":"green","type":"ovn-multinet","subnets":"10.2.0.0/16,fd02::/64","mtu":1400}`,
	"six":   `{"cniVersion":"1.0.0","name":"six","type":"ovn-multinet","subnets":"fd06::/64"}`,
	"wire":  `{"cniVersion":"1.0.0","name":"wire","type":"ovn-multinet"}`,
	"tiny":  `{"cniVersion":"1.0.0","name":"tiny","type":"ovn-multinet","subnets":"10.3.0.0/29"}`,
}

// world is a lab with agents and controller, its networks made, as it was before any pod.
type world struct{ *labtest.World }

// newWorld brings one up. before may change the nodes before the agents start.
func newWorld(t testing.TB, o lab.Options, before func(*lab.Lab)) *world {
	t.Helper()
	w := &world{&labtest.World{Test: labtest.New(t, patience), Lab: lab.Start(t, o)}}
	if before != nil {
		before(w.Lab)
	}
	w.Start()
	for name, config := range nads {
		w.network(name, config)
	}
	w.Base = w.Snapshot()
	return w
}

// parallelWorld is newWorld for a test that may run beside others.
func parallelWorld(t *testing.T, o lab.Options, before func(*lab.Lab)) *world {
	t.Helper()
	t.Parallel()
	return newWorld(t, o, before)
}

// sub is the world for a subtest.
func (w *world) sub(t *testing.T) *world { return &world{w.Sub(t)} }

// part runs a subtest in the same world.
func (w *world) part(name string, part func(*testing.T, *world)) {
	w.Part(name, func(t *testing.T) { part(t, w.sub(t)) })
}

// network writes a NAD and waits until the network is as it says.
func (w *world) network(nad, config string) {
	w.NAD(nad, config)
	w.inForce(nad, config)
}

// routes reads a pod's routes as "dst via gw dev", sorted.
func (w *world) routes(p *lab.Pod, family string) []string {
	out := w.Exec(p, "ip", "-json", family, "route")
	var list []struct{ Dst, Gateway, Dev string }
	w.Must(json.Unmarshal([]byte(out), &list))
	var words []string
	for _, r := range list {
		words = append(words, strings.TrimSpace(fmt.Sprintf("%s via %s dev %s", r.Dst, r.Gateway, r.Dev)))
	}
	slices.Sort(words)
	return words
}

// endpoint is what can ping: a pod or a machine.
type endpoint interface {
	fmt.Stringer
	Exec(ctx context.Context, command ...string) (string, error)
	Start(ctx context.Context, command ...string) (*lab.Process, error)
}

// mustNotReach asks on one interface, as if the address were its neighbour: a route must not be what stops it.
func (w *world) mustNotReach(p endpoint, ifName string, addrs ...string) {
	for _, addr := range addrs {
		if out, err := p.Exec(w.Ctx, "ping", "-c", "1", "-W", "1", "-I", ifName, addr); err == nil {
			w.T.Errorf("%s reaches %s by %s, which isolation must stop: %s", p, addr, ifName, out)
		}
	}
}

// equal compares and says what of.
func equal[T any](t testing.TB, what string, got, want T) {
	t.Helper()
	labtest.Equal(t, what, got, want)
}
