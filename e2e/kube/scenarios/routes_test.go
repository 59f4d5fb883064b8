//go:build kube

package scenarios

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

// services are an HTTP server and a name server behind addresses of the service network.
const services = `apiVersion: v1
kind: Service
metadata: {name: web, namespace: default}
spec:
  clusterIP: 10.96.2.1
  selector: {app: servers}
  ports: [{port: 80, targetPort: 8080}]
---
apiVersion: v1
kind: Service
metadata: {name: names, namespace: default}
spec:
  clusterIP: 10.96.2.53
  selector: {app: servers}
  ports: [{port: 53, targetPort: 53, protocol: UDP}]
---
`

// defaultRouteMoved: a pod whose default route goes by an OVN network is Ready by kubelet's probes and reaches pods, services,
// names and the API server by its first interface, as pods do; all else goes by the network.
func (w *world) defaultRouteMoved() {
	servers := strings.Replace(pod("servers", "node2", ""), "  namespace: default", "  namespace: default\n  labels: {app: servers}", 1)
	servers = strings.Replace(servers, "  - name: main", "  - {name: names, image: localhost/podtool:lab, imagePullPolicy: Never, args: [dns]}\n  - name: main", 1)
	w.Must(w.Apply(w.Ctx, services))
	w.T.Cleanup(func() { w.Must(w.Delete(w.Ctx, services)) })
	w.made("servers", servers)
	moved := pod("moved", "node1", `[{"name":"blue","default-route":["10.1.0.1"]}]`)
	moved = strings.Replace(moved, "spec:\n", "spec:\n  dnsPolicy: None\n  dnsConfig: {nameservers: [10.96.2.53]}\n", 1)
	w.made("moved", moved)

	routes := w.routes("moved")
	isDefault := func(r string) bool { return strings.HasPrefix(r, "default ") || strings.HasPrefix(r, "0.0.0.0/0 ") }
	if defaults := slices.DeleteFunc(slices.Clone(routes), func(r string) bool { return !isDefault(r) }); len(defaults) != 1 ||
		!strings.HasSuffix(defaults[0], " via 10.1.0.1 dev net1") {
		w.T.Errorf("default routes are %q, of %q", defaults, routes)
	}
	peer := w.links("peer")["eth0"].ips()[0]
	for _, c := range []struct {
		what, want string
		command    []string
	}{
		{"a pod of the other node", "peer", []string{"get", "http://" + peer + ":8080/hostname"}},
		{"a service", "servers", []string{"get", "http://10.96.2.1/hostname"}},
		{"a name", "192.0.2.53", []string{"lookup", "some.name.example."}},
		{"the API server", "gitVersion", []string{"api", "/version"}},
	} {
		w.Must(lab.Eventually(w.Ctx, func() error { // a service is there when kube-proxy has seen it
			out, err := w.Exec(w.Ctx, "default/moved", "main", append([]string{"/podtool"}, c.command...)...)
			if err != nil || !strings.Contains(out, c.want) {
				return fmt.Errorf("%s: %q, %v; want %s", c.what, out, err, c.want)
			}
			return nil
		}))
	}
}
