//go:build kube

package scenarios

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	nadv1 "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"

	"github.com/ovn-multinet/ovn-multinet/e2e/kube"
	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
	"github.com/ovn-multinet/ovn-multinet/e2e/labtest"
)

// options are what scenarios need beside a cluster.
var options = []lab.EnterOption{lab.WithoutOurs(), kube.WithContainerd2(), lab.WithPrevious()}

func TestMain(m *testing.M) { kube.Main(m, options...) }

// world is a cluster with the product installed.
type world struct {
	labtest.Test
	*kube.Cluster
}

// limit bounds each scenario, also on a machine that is ten times slower.
const limit = 30 * time.Minute

// newWorld takes further lines of the product's ConfigMap.
func newWorld(t *testing.T, settings ...string) *world {
	t.Helper()
	return newWorldOf(t, kube.Options{Nodes: 2}, settings...)
}

func newWorldOf(t *testing.T, o kube.Options, settings ...string) *world {
	t.Helper()
	w := bareWorld(t, o)
	w.Must(w.InstallProduct(w.Ctx, settings...))
	return w
}

// bareWorld is a cluster without the product.
func bareWorld(t *testing.T, o kube.Options) *world {
	t.Helper()
	return &world{labtest.New(t, limit), kube.Start(t, o)}
}

// run runs a part of a test on the same cluster.
func (w *world) run(name string, part func(*world)) {
	w.Part(name, func(t *testing.T) {
		part(&world{labtest.Test{T: labtest.Traced(t), Ctx: w.Ctx}, w.Cluster})
	})
}

func (w *world) kubectl(args ...string) string {
	out, err := w.Kubectl(w.Ctx, args...)
	w.Must(err)
	return out
}

func (w *world) multinet(args ...string) string {
	out, err := w.Multinet(w.Ctx, args...)
	w.Must(err)
	return out
}

func (w *world) nbctl(args ...string) string {
	out, err := w.NBCtl(w.Ctx, args...)
	w.Must(err)
	return out
}

// exec runs a command in a container of a pod.
func (w *world) exec(pod, container string, command ...string) string {
	out, err := w.Exec(w.Ctx, pod, container, command...)
	w.Must(err)
	return out
}

// on runs a command on a node.
func (w *world) on(n *kube.Node, command ...string) string {
	out, err := n.Run(w.Ctx, command...)
	w.Must(err)
	return out
}

func (w *world) getPod(pod string) *corev1.Pod {
	p, err := w.Pod(w.Ctx, pod)
	w.Must(err)
	return p
}

func (w *world) sandboxID(n *kube.Node, pod string) string {
	id, err := n.SandboxID(w.Ctx, pod)
	w.Must(err)
	return id
}

func (w *world) logs(pod, container string) string {
	text, err := w.Logs(w.Ctx, pod, container)
	w.Must(err)
	return text
}

// at is namespace/name of what is given as that or as a name in the default namespace.
func at(name string) (id, namespace, short string) {
	namespace, short, ok := strings.Cut(name, "/")
	if !ok {
		namespace, short = "default", name
	}
	return namespace + "/" + short, namespace, short
}

// nad is a NAD.
func nad(name, config string) string {
	_, namespace, name := at(name)
	return fmt.Sprintf("apiVersion: k8s.cni.cncf.io/v1\nkind: NetworkAttachmentDefinition\nmetadata: {name: %s, namespace: %s}\nspec: {config: '%s'}\n---\n", name, namespace, config)
}

// pod runs podtool on a node, probed by kubelet on eth0.
func pod(name, node, networks string) string {
	_, namespace, name := at(name)
	annotations := ""
	if networks != "" {
		annotations = fmt.Sprintf("\n  annotations: {k8s.v1.cni.cncf.io/networks: '%s'}", networks)
	}
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata:
  name: %s
  namespace: %s%s
spec:
  nodeName: %s
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: %s
    imagePullPolicy: Never
    args: [serve]
    readinessProbe: {httpGet: {path: /healthz, port: 8080}, periodSeconds: 1}
---
`, name, namespace, annotations, node, kube.PodtoolImage)
}

// link is an interface in a pod, as podtool prints it.
type link struct {
	Name, MAC string
	MTU       int
	Addresses []string
}

// links reads a pod's interfaces by exec, by name.
func (w *world) links(name string) map[string]link {
	id, _, _ := at(name)
	out := w.exec(id, "main", "/podtool", "ip")
	var net struct{ Links []link }
	w.Must(json.Unmarshal([]byte(out), &net))
	byName := map[string]link{}
	for _, l := range net.Links {
		// Link-local addresses are the kernel's own.
		l.Addresses = slices.DeleteFunc(l.Addresses, func(a string) bool { return strings.HasPrefix(a, "fe80:") })
		if l.Name != "lo" {
			byName[l.Name] = l
		}
	}
	return byName
}

// routes reads a pod's routes by exec, as "DST via GATEWAY dev INTERFACE".
func (w *world) routes(name string) []string {
	id, _, _ := at(name)
	out := w.exec(id, "main", "/podtool", "ip")
	var net struct {
		Routes []struct{ Dst, Via, Dev string }
	}
	w.Must(json.Unmarshal([]byte(out), &net))
	var routes []string
	for _, r := range net.Routes {
		routes = append(routes, fmt.Sprintf("%s via %s dev %s", r.Dst, r.Via, r.Dev))
	}
	return routes
}

// agentLog is what the agent of a node has logged.
func (w *world) agentLog(node string) string {
	list, err := w.Client.CoreV1().Pods("ovn-multinet").List(w.Ctx, metav1.ListOptions{
		LabelSelector: "app=ovn-multinet-agent", FieldSelector: "spec.nodeName=" + node,
	})
	w.Must(err)
	if len(list.Items) != 1 {
		w.T.Fatalf("%d agents on %s", len(list.Items), node)
	}
	log := w.logs("ovn-multinet/"+list.Items[0].Name, "agent")
	return log
}

// ips are a link's addresses without prefix lengths.
func (l link) ips() []string {
	var ips []string
	for _, a := range l.Addresses {
		ip, _, _ := strings.Cut(a, "/")
		ips = append(ips, ip)
	}
	return ips
}

// status reads a pod's network-status from the API.
func (w *world) status(name string) []nadv1.NetworkStatus {
	p := w.getPod("default/" + name)
	return statusOf(w, p)
}

func statusOf(w *world, p *corev1.Pod) []nadv1.NetworkStatus {
	var status []nadv1.NetworkStatus
	w.Must(json.Unmarshal([]byte(p.Annotations["k8s.v1.cni.cncf.io/network-status"]), &status))
	return status
}

// reaches pings until the other node's flows are there.
func (w *world) reaches(from, ifName, ip string) {
	ctx, cancel := context.WithTimeout(w.Ctx, patience)
	defer cancel()
	err := lab.Eventually(ctx, func() error {
		return w.ping(ctx, from, ifName, ip, 1, time.Second)
	})
	if err != nil {
		w.T.Errorf("%s does not reach %s by %s: %v", from, ip, ifName, err)
	}
}

// ping sends echo requests, one a second, and fails when one is not answered.
func (w *world) ping(ctx context.Context, from, ifName, ip string, count int, wait time.Duration) error {
	id, _, _ := at(from)
	out, err := w.Exec(ctx, id, "main", "/podtool", "ping", "-c", fmt.Sprint(count), "-W", fmt.Sprint(wait.Seconds()), "-I", ifName, ip)
	if err == nil && !strings.HasSuffix(out, fmt.Sprintf("%d of %d answered", count, count)) {
		err = fmt.Errorf("ping %s from %s by %s: %s", ip, from, ifName, out)
	}
	return err
}

// keepsReaching pings without a pause until what it returns is called, which fails the test if a ping was lost.
func (w *world) keepsReaching(from, ifName, ip string) (done func()) {
	w.reaches(from, ifName, ip)
	stop, lost := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			err := w.ping(w.Ctx, from, ifName, ip, 2, 5*time.Second)
			select {
			case <-stop:
				lost <- err
				return
			default:
			}
			if err != nil {
				lost <- err
				return
			}
		}
	}()
	return func() {
		close(stop)
		if err := <-lost; err != nil {
			w.T.Errorf("%s did not reach %s by %s all the time: %v", from, ip, ifName, err)
		}
	}
}
