//go:build kube

package scenarios

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

// coreRouter is a router of the whole cluster, by the object of this name.
func coreRouter(object string) string {
	return "apiVersion: ovn-multinet.io/v1alpha1\nkind: Router\nmetadata: {name: " + object + "}\n" +
		"spec: {router: /core, namespaces: {default: {subnets: 10.0.0.0/8}}}\n---\n"
}

// operatorsObjects: on the chart's own OVN, from a client that reaches only the API server, an operator creates a router,
// networks join it, and a second object of the same router is refused and named by the command check. An uninstall keeps
// the object, and the next installation uses it.
func (w *world) operatorsObjects() {
	network := func(name string, i int) string {
		return nad(name, fmt.Sprintf(`{"type":"ovn-multinet","router":"/core","subnets":"10.%d.0.0/24","routes":[{"dst":"10.%d.0.0/24"}]}`, 50+i, 51-i))
	}
	all := network("red", 0) + network("black", 1) + pod("a", "node1", "red") + pod("b", "node1", "black")
	joined := func() {
		w.T.Helper()
		w.Must(w.Apply(w.Ctx, all))
		w.Must(w.WaitReady(w.Ctx, "default/a", "default/b"))
		w.reaches("a", "net1", w.links("b")["net1"].ips()[0])
		w.object("router/core", "Accepted=True Ready=True", "")
	}
	w.Must(w.Apply(w.Ctx, coreRouter("core")))
	joined()
	w.Must(w.Apply(w.Ctx, coreRouter("again")))
	w.object("router/again", "Accepted=False Ready=False", "object Router/core describes it already")
	w.until(func() error {
		out, err := w.Multinet(w.Ctx, "check")
		if err == nil || !strings.Contains(out, "Router/again is refused: object Router/core describes it already") {
			return fmt.Errorf("check: %v\n%s", err, out)
		}
		return nil
	})
	w.kubectl("delete", "router/again")
	w.healthy()
	if got := w.kubectl("get", "router/core", "-o", "jsonpath={.status.users}: {.status.usedBy}"); got != `2: ["network default/black","network default/red"]` {
		w.T.Errorf("the router has the users %s", got)
	}
	w.Must(w.Delete(w.Ctx, all))
	w.Must(w.WaitGone(w.Ctx, "default/a", "default/b"))
	root, err := lab.ModuleRoot()
	w.Must(err)
	w.kubectl("delete", "--timeout=180s", "-f", filepath.Join(root, "examples", "hello"))
	w.until(func() error {
		if got := w.kubectl("get", "router/core", "-o", "jsonpath={.status.users}{.metadata.finalizers}"); got != "0" {
			return fmt.Errorf("nobody needs the router, and it has %s", got)
		}
		return nil
	})
	if out, err := w.Helm(w.Ctx, "uninstall", "ovn-multinet", "--timeout=15m"); err != nil {
		w.T.Fatalf("%v\n%s", err, out)
	}
	if got := strings.TrimSpace(w.kubectl("get", "ovn-multinet", "-o", "name")); got != "router.ovn-multinet.io/core" {
		w.T.Fatalf("the uninstall leaves the objects %s", got)
	}
	w.Must(w.InstallChart(w.Ctx, readmeValues+"controller: {limits: {default: {bytes: 10000}}}\n"))
	w.healthy() // a pod that starts before its node is ready has no networks
	joined()
	w.limited()
}

// limited: a value of the chart limits what the objects of a namespace may need, the refusal says how much, and a command
// shows what is left.
func (w *world) limited() {
	var routes []string
	for i := range 120 {
		routes = append(routes, fmt.Sprintf(`{"dst":"10.80.%d.0/24"}`, i))
	}
	w.Must(w.Apply(w.Ctx, nad("wide", `{"type":"ovn-multinet","subnets":"10.70.0.0/16","routes":[`+strings.Join(routes, ",")+`]}`)))
	w.eventOf("wide", "Warning", "NetworkRefused", "10000 is the limit")
	if out := w.multinet("limits", "-n", "default"); !regexp.MustCompile(`default +bytes +\d+ +10000`).MatchString(out) {
		w.T.Errorf("the limits are\n%s", out)
	}
}
