package kube

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sync/errgroup"

	"github.com/dsnet/try"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

// The addresses of a cluster.
const (
	etcdURL     = "http://127.0.0.1:2379" // in the central namespace
	apiPort     = "6443"
	apiURL      = "https://" + lab.CentralIP + ":" + apiPort
	podCIDR     = "10.244.0.0/16"
	serviceCIDR = "10.96.0.0/16"
	apiService  = "10.96.0.1"
)

// The parts of the control plane, by the users that Kubernetes' own roles are for.
var (
	admin       = identity{name: "admin", groups: []string{"system:masters"}}
	controllers = identity{name: "system:kube-controller-manager"}
	scheduler   = identity{name: "system:kube-scheduler"}
	proxy       = identity{name: "system:kube-proxy"}
	flannel     = identity{name: "flannel"}
	apiServer   = identity{name: "kube-apiserver", hosts: []string{
		"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local",
		"localhost", "127.0.0.1", lab.CentralIP, apiService,
	}}
	apiServerAtKubelets = identity{name: "kube-apiserver-kubelet-client", groups: []string{"system:masters"}}
	apiServerAtOthers   = identity{name: "front-proxy-client"}
)

func (c *Cluster) startControlPlane(ctx context.Context) (err error) {
	defer try.Handle(&err)
	try.E(c.writePKI())
	for _, start := range []func(context.Context) error{c.startEtcd, c.startAPIServer} {
		try.E(start(ctx))
	}
	var both errgroup.Group
	both.Go(func() error { return c.startControllers(ctx) })
	both.Go(func() error { return c.startScheduler(ctx) })
	return both.Wait()
}

func (c *Cluster) writePKI() error {
	var err error
	if c.pki, err = newPKI(); err != nil {
		return err
	}
	var errs []error
	for name, id := range map[string]identity{"apiserver": apiServer, "apiserver-kubelet-client": apiServerAtKubelets} {
		pair, err := c.pki.ca.issue(id)
		errs = append(errs, err, pair.write(c.pkiDir(), name))
	}
	frontProxyClient, err := c.pki.frontProxy.issue(apiServerAtOthers)
	errs = append(errs, err, frontProxyClient.write(c.pkiDir(), "front-proxy-client"),
		c.pki.ca.write(c.pkiDir(), "ca"), c.pki.frontProxy.write(c.pkiDir(), "front-proxy-ca"),
		c.pki.accounts.write(c.pkiDir(), "accounts"))
	public, err := c.pki.accounts.public()
	errs = append(errs, err, os.WriteFile(c.pkiFile("accounts.pub"), public, 0o644))
	for name, id := range map[string]identity{"controllers": controllers, "scheduler": scheduler} {
		errs = append(errs, c.pki.writeKubeconfig(c.kubeconfig(name), apiURL, id))
	}
	return errors.Join(errs...)
}

func (c *Cluster) dir() string                   { return filepath.Join(c.Lab.Dir, "kube") }
func (c *Cluster) pkiDir() string                { return filepath.Join(c.dir(), "pki") }
func (c *Cluster) pkiFile(name string) string    { return filepath.Join(c.pkiDir(), name) }
func (c *Cluster) kubeconfig(name string) string { return filepath.Join(c.dir(), name+".kubeconfig") }

// central starts a program in the central namespace.
func (c *Cluster) central(ctx context.Context, name string, ready func(context.Context) error, args ...string) (*lab.Process, error) {
	return c.Lab.Run(ctx, lab.Spec{
		Name: name, NetNS: c.CentralNetNS(), Log: filepath.Join(c.dir(), name+".log"), Ready: ready,
		Args: append([]string{c.program(kubelab), name}, args...),
	})
}

func (c *Cluster) startEtcd(ctx context.Context) (err error) {
	c.Etcd, err = c.central(ctx, "etcd", nil, // kube-apiserver waits for it
		"--data-dir="+filepath.Join(c.dir(), "etcd"), "--unsafe-no-fsync", "--log-level=warn",
		"--listen-client-urls="+etcdURL, "--advertise-client-urls="+etcdURL,
		"--listen-peer-urls=http://127.0.0.1:2380")
	return err
}

func (c *Cluster) startAPIServer(ctx context.Context) (err error) {
	defer try.Handle(&err)
	try.E(errors.Join(c.pki.writeKubeconfig(c.Kubeconfig, apiURL, admin), c.connect()))
	c.APIServer, err = c.central(ctx, "kube-apiserver", c.answers("/readyz"),
		"--etcd-servers="+etcdURL, "--advertise-address="+lab.CentralIP, "--secure-port="+apiPort,
		"--service-cluster-ip-range="+serviceCIDR, "--allow-privileged", "--profiling=false",
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
		"--cert-dir="+c.pkiDir(), "--client-ca-file="+c.pkiFile("ca.crt"),
		"--tls-cert-file="+c.pkiFile("apiserver.crt"), "--tls-private-key-file="+c.pkiFile("apiserver.key"),
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file="+c.pkiFile("accounts.pub"),
		"--service-account-signing-key-file="+c.pkiFile("accounts.key"),
		"--kubelet-certificate-authority="+c.pkiFile("ca.crt"),
		"--kubelet-client-certificate="+c.pkiFile("apiserver-kubelet-client.crt"),
		"--kubelet-client-key="+c.pkiFile("apiserver-kubelet-client.key"),
		"--kubelet-preferred-address-types=InternalIP", "--enable-aggregator-routing", // there is no kube-proxy here
		"--requestheader-client-ca-file="+c.pkiFile("front-proxy-ca.crt"),
		"--requestheader-allowed-names="+apiServerAtOthers.name,
		"--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file="+c.pkiFile("front-proxy-client.crt"),
		"--proxy-client-key-file="+c.pkiFile("front-proxy-client.key"))
	return err
}

// answers is a readiness check: the API server answers 200 at path.
func (c *Cluster) answers(path string) func(context.Context) error {
	return func(ctx context.Context) error {
		return c.Client.Discovery().RESTClient().Get().AbsPath(path).Do(ctx).Error()
	}
}

func (c *Cluster) startControllers(ctx context.Context) (err error) {
	kubeconfig := c.kubeconfig("controllers")
	c.Controllers, err = c.central(ctx, "kube-controller-manager", nil,
		"--kubeconfig="+kubeconfig, "--authentication-kubeconfig="+kubeconfig, "--authorization-kubeconfig="+kubeconfig,
		"--cert-dir="+c.pkiDir(), "--bind-address=127.0.0.1", "--leader-elect=false", "--profiling=false",
		"--use-service-account-credentials", "--root-ca-file="+c.pkiFile("ca.crt"),
		"--service-account-private-key-file="+c.pkiFile("accounts.key"),
		"--cluster-signing-cert-file="+c.pkiFile("ca.crt"), "--cluster-signing-key-file="+c.pkiFile("ca.key"),
		"--allocate-node-cidrs=false", "--service-cluster-ip-range="+serviceCIDR)
	return err
}

func (c *Cluster) startScheduler(ctx context.Context) (err error) {
	kubeconfig := c.kubeconfig("scheduler")
	c.Scheduler, err = c.central(ctx, "kube-scheduler", nil,
		"--kubeconfig="+kubeconfig, "--authentication-kubeconfig="+kubeconfig, "--authorization-kubeconfig="+kubeconfig,
		"--cert-dir="+c.pkiDir(), "--bind-address=127.0.0.1", "--leader-elect=false", "--profiling=false")
	return err
}
