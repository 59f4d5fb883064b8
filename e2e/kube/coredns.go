package kube

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/dsnet/try"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
	"github.com/ovn-multinet/ovn-multinet/internal/buildcache"
)

// coreDNSEnv is the folder of CoreDNS; told to the inner process.
const coreDNSEnv = "OVN_MULTINET_KUBE_COREDNS"

// CoreDNSImage has CoreDNS as its entry point: an image for pods, with imagePullPolicy Never.
const CoreDNSImage = "localhost/coredns:lab"

// NameServer is the address of the cluster's name server, which StartCoreDNS makes, for pods' nameservers.
const NameServer = "10.96.0.10"

// WithCoreDNS has [Main] or [Enter] build CoreDNS: a minute or two, once per version.
func WithCoreDNS() lab.EnterOption { return building(coreDNSEnv, buildCoreDNS) }

func buildCoreDNS(ctx context.Context) (_ string, err error) {
	defer try.Handle(&err)
	source := filepath.Join(try.E1(lab.ModuleRoot()), "e2e", "coredns")
	const flags = "-s -w"
	return buildcache.Entry("coredns", try.E1(sourceKey(source, flags)), func(dir string) error {
		fmt.Fprintln(os.Stderr, "building CoreDNS: a minute or two on two cores, once per version")
		return lab.GoBuild(ctx, source, "-ldflags="+flags, "-o", filepath.Join(dir, "coredns"), ".")
	})
}

// StartCoreDNS makes CoreDNS the cluster's name server, and returns when it is ready: it knows all Services. Pods do not
// ask it unless their dnsConfig names it.
func (c *Cluster) StartCoreDNS(ctx context.Context) (err error) {
	defer try.Handle(&err)
	dir := os.Getenv(coreDNSEnv)
	if dir == "" {
		return errors.New("StartCoreDNS without its program: give WithCoreDNS to kube.Main or kube.Enter")
	}
	files := map[string]string{"/coredns": filepath.Join(dir, "coredns")}
	try.E(c.LoadImage(ctx, CoreDNSImage, files, []string{"/coredns"}))
	try.E(c.Apply(ctx, coreDNSManifests))
	_, err = c.Kubectl(ctx, "--namespace=kube-system", "rollout", "status", "--timeout=5m", "deployment/coredns")
	return err
}

// coreDNSManifests are kubeadm's, without what depends on the world outside of a cluster, and without metrics.
const coreDNSManifests = `apiVersion: v1
kind: ServiceAccount
metadata: {name: coredns, namespace: kube-system}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: "system:coredns"}
rules:
- apiGroups: [""]
  resources: [endpoints, services, pods, namespaces]
  verbs: [list, watch]
- apiGroups: [discovery.k8s.io]
  resources: [endpointslices]
  verbs: [list, watch]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: "system:coredns"}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "system:coredns"}
subjects:
- {kind: ServiceAccount, name: coredns, namespace: kube-system}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: coredns, namespace: kube-system}
data:
  Corefile: |
    .:53 {
        errors
        health
        ready
        kubernetes cluster.local in-addr.arpa ip6.arpa {
           pods insecure
           ttl 30
        }
        cache 30 {
           disable success cluster.local
           disable denial cluster.local
        }
    }
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: coredns, namespace: kube-system}
spec:
  selector: {matchLabels: {k8s-app: kube-dns}}
  template:
    metadata: {labels: {k8s-app: kube-dns}}
    spec:
      serviceAccountName: coredns
      dnsPolicy: Default
      volumes: [{name: config, configMap: {name: coredns}}]
      containers:
      - name: coredns
        image: ` + CoreDNSImage + `
        imagePullPolicy: Never
        args: [-conf, /etc/coredns/Corefile]
        volumeMounts: [{name: config, mountPath: /etc/coredns, readOnly: true}]
        livenessProbe: {httpGet: {path: /health, port: 8080}, initialDelaySeconds: 60, timeoutSeconds: 5}
        readinessProbe: {httpGet: {path: /ready, port: 8181}, periodSeconds: 1}
        securityContext:
          allowPrivilegeEscalation: false
          capabilities: {add: [NET_BIND_SERVICE], drop: [ALL]}
          readOnlyRootFilesystem: true
---
apiVersion: v1
kind: Service
metadata: {name: kube-dns, namespace: kube-system}
spec:
  clusterIP: ` + NameServer + `
  selector: {k8s-app: kube-dns}
  ports:
  - {name: dns, port: 53, protocol: UDP}
  - {name: dns-tcp, port: 53, protocol: TCP}
`
