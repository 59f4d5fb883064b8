//go:build kube

package scenarios

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

	corev1 "k8s.io/api/core/v1"

	nadv1 "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"

	"github.com/ovn-multinet/ovn-multinet/e2e/kube"
	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
	"github.com/ovn-multinet/ovn-multinet/images"
)

// productEnv names the folder with the programs as they are shipped; `make e2e` builds them and sets it.
const productEnv = "OVN_MULTINET_PRODUCT"

func TestMain(m *testing.M) {
	if os.Getenv(productEnv) == "" {
		fmt.Fprintf(os.Stderr, "%s is not set: run the suite by `make e2e`\n", productEnv)
		os.Exit(1)
	}
	kube.Main(m, lab.WithoutOurs())
}

// world is a cluster with the product installed.
type world struct {
	*kube.Cluster
	t   *testing.T
	ctx context.Context
}

func newWorld(t *testing.T) *world {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	t.Cleanup(cancel)
	w := &world{Cluster: kube.Start(t, kube.Options{Nodes: 2}), t: t, ctx: ctx}
	for _, img := range images.All(os.Getenv(productEnv)) {
		w.must(w.LoadImage(ctx, img.Name, img.Files, img.Entrypoint))
	}
	w.must(w.Apply(ctx, w.manifests()))
	for _, what := range []string{"daemonset/agent", "deployment/controller"} {
		_, err := w.Kubectl(ctx, "--namespace", "ovn-multinet", "rollout", "status", "--timeout=90s", what)
		w.must(err)
	}
	// The installer has chained the plugin on every node.
	for _, n := range w.Nodes {
		w.must(lab.Eventually(ctx, func() error {
			_, err := os.Stat(n.Path("/etc/cni/net.d/05-ovn-multinet.conflist"))
			return err
		}))
	}
	return w
}

// manifests are those that are shipped, with the lab's database in their ConfigMap and its certificates in their Secret.
func (w *world) manifests() string {
	w.t.Helper()
	files, err := filepath.Glob("../../../images/manifests/*.yaml")
	w.must(err)
	var all []string
	for _, f := range files {
		text, err := os.ReadFile(f)
		w.must(err)
		all = append(all, string(text))
	}
	// The certificates go where the manifests expect them; the address of NB is the operator's to fill in.
	endpoint, secret, err := w.ServeNBOverTLS(w.ctx, "ovn-multinet", "ovn-multinet-nb")
	w.must(err)
	const empty = `OVN_MULTINET_NB_ENDPOINTS: ""`
	text := strings.Join(all, "\n---\n")
	if strings.Count(text, empty) != 1 {
		w.t.Fatalf("the manifests do not have %q once", empty)
	}
	return strings.Replace(text, empty, fmt.Sprintf("OVN_MULTINET_NB_ENDPOINTS: %q", endpoint), 1) + "\n---\n" + secret
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// nad is a NAD in the default namespace.
func nad(name, config string) string {
	return fmt.Sprintf("apiVersion: k8s.cni.cncf.io/v1\nkind: NetworkAttachmentDefinition\nmetadata: {name: %s, namespace: default}\nspec: {config: '%s'}\n---\n", name, config)
}

// pod runs podtool on a node, probed by kubelet on eth0.
func pod(name, node, networks string) string {
	annotations := ""
	if networks != "" {
		annotations = fmt.Sprintf("\n  annotations: {k8s.v1.cni.cncf.io/networks: '%s'}", networks)
	}
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata:
  name: %s
  namespace: default%s
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
`, name, annotations, node, kube.PodtoolImage)
}

// link is an interface in a pod, as podtool prints it.
type link struct {
	Name, MAC string
	MTU       int
	Addresses []string
}

// links reads a pod's interfaces by exec, by name.
func (w *world) links(name string) map[string]link {
	w.t.Helper()
	out, err := w.Exec(w.ctx, "default/"+name, "main", "/podtool", "ip")
	w.must(err)
	var net struct{ Links []link }
	w.must(json.Unmarshal([]byte(out), &net))
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
	w.t.Helper()
	p, err := w.Pod(w.ctx, "default/"+name)
	w.must(err)
	return statusOf(w, p)
}

func statusOf(w *world, p *corev1.Pod) []nadv1.NetworkStatus {
	w.t.Helper()
	var status []nadv1.NetworkStatus
	w.must(json.Unmarshal([]byte(p.Annotations["k8s.v1.cni.cncf.io/network-status"]), &status))
	return status
}

// reaches pings until the other node's flows are there.
func (w *world) reaches(from, ifName, ip string) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, 20*time.Second)
	defer cancel()
	err := lab.Eventually(ctx, func() error {
		_, err := w.Exec(ctx, "default/"+from, "main", "/podtool", "ping", "-c", "1", "-W", "1", "-I", ifName, ip)
		return err
	})
	if err != nil {
		w.t.Errorf("%s does not reach %s by %s: %v", from, ip, ifName, err)
	}
}
