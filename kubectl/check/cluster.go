package check

import (
	"context"
	"fmt"
	"slices"

	nadv1 "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	nadclient "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/client/clientset/versioned"
	"github.com/ovn-multinet/ovn-multinet/ovnrun/authority"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/kubernetes"
)

// Namespace is the namespace of ovn-multinet, and the name of its ConfigMap.
const Namespace = "ovn-multinet"

// The labels of our pods, and the container that installs the plugin.
const (
	agentLabel, agentApp       = "app", "ovn-multinet-agent"
	controllerApp              = "ovn-multinet-controller"
	centralApp                 = "ovn-multinet-ovn-central"
	nodeApp                    = "ovn-multinet-ovn-node"
	attachApp                  = "ovn-multinet-attach"
	installerContainer         = "installer"
	nadGroup                   = "k8s.cni.cncf.io"
	nadResource                = "network-attachment-definitions"
	maxPage              int64 = 500
)

// secrets are the names of the Secrets with keys for NB: those of agents, of controllers, and of both.
var secrets = []string{"ovn-multinet-nb-agent", "ovn-multinet-nb-controller", "ovn-multinet-nb"}

// Cluster is what the API server says of a cluster. A nil object does not exist.
type Cluster struct {
	Version      *version.Info
	Policies     bool     // ValidatingAdmissionPolicy v1 is served
	NADVersions  []string // the versions of NetworkAttachmentDefinition that are served
	Nodes        []corev1.Node
	DaemonSets   []appsv1.DaemonSet
	Bindings     []rbacv1.ClusterRoleBinding
	NADs         []nadv1.NetworkAttachmentDefinition
	Flannel      []corev1.ConfigMap // kube-flannel-cfg, of each namespace that has one
	ServiceCIDRs []networkingv1.ServiceCIDR
	Services     []string // the addresses of the API server's Service
	Namespace    *corev1.Namespace
	Config       *corev1.ConfigMap
	Authority    map[string]string // what the ConfigMap of OVN's certificates says; nil: the chart runs no OVN
	Agents       *appsv1.DaemonSet
	Controllers  *appsv1.Deployment
	Pods         []corev1.Pod               // of our namespace
	Secrets      map[string]map[string]bool // the keys of each Secret that exists
	Leftover     []string                   // namespaces of inspections that were killed
	// WithoutNetworks are the pods "<namespace>/<name>" that run without the networks of their annotation.
	WithoutNetworks []string

	unread []Finding
}

// Read reads the cluster. It returns an error if the API server does not answer at all. What the user may not read
// becomes a finding.
func Read(ctx context.Context, core kubernetes.Interface, nads nadclient.Interface) (*Cluster, error) {
	c := &Cluster{Secrets: map[string]map[string]bool{}}
	var err error
	if c.Version, err = core.Discovery().ServerVersion(); err != nil {
		return nil, fmt.Errorf("the API server does not answer: %w", err)
	}
	c.readServed(core)
	c.readLists(ctx, core)
	c.readServiceNetwork(ctx, core)
	c.readOurs(ctx, core)
	c.readSecrets(ctx, core)
	if c.Installed() {
		c.readPods(ctx, core)
	}
	if slices.Contains(c.NADVersions, "v1") {
		c.readNADs(ctx, nads)
	}
	return c, nil
}

// cannot notes an error of a request. An object that does not exist is no error.
func (c *Cluster) cannot(what, right string, err error) bool {
	if err != nil && !apierrors.IsNotFound(err) {
		c.unread = append(c.unread, unread(what, "run this command with the right to "+right, err))
	}
	return err != nil
}

func (c *Cluster) readServed(core kubernetes.Interface) {
	const group, kind = "admissionregistration.k8s.io/v1", "validatingadmissionpolicies"
	list, err := core.Discovery().ServerResourcesForGroupVersion(group)
	if !c.cannot("admission-policies", "read "+group, err) {
		c.Policies = slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == kind })
	}
	groups, err := core.Discovery().ServerGroups()
	if c.cannot("nad-crd", "read the API groups", err) {
		return
	}
	for _, g := range groups.Groups {
		if g.Name != nadGroup {
			continue
		}
		for _, v := range g.Versions {
			list, err := core.Discovery().ServerResourcesForGroupVersion(v.GroupVersion)
			if !c.cannot("nad-crd", "read "+v.GroupVersion, err) &&
				slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == nadResource }) {
				c.NADVersions = append(c.NADVersions, v.Version)
			}
		}
	}
}

// pages lists a resource page by page.
func pages[L metav1.ListInterface](
	ctx context.Context, list func(context.Context, metav1.ListOptions) (L, error), each func(L),
) error {
	opts := metav1.ListOptions{Limit: maxPage}
	for {
		page, err := list(ctx, opts)
		if err != nil {
			return err
		}
		each(page)
		if opts.Continue = page.GetContinue(); opts.Continue == "" {
			return nil
		}
	}
}

func (c *Cluster) readNodes(ctx context.Context, core kubernetes.Interface) {
	err := pages(ctx, core.CoreV1().Nodes().List, func(l *corev1.NodeList) { c.Nodes = append(c.Nodes, l.Items...) })
	c.cannot("nodes", "list nodes", err)
}

func (c *Cluster) readDaemonSets(ctx context.Context, core kubernetes.Interface, namespace, right string) {
	err := pages(ctx, core.AppsV1().DaemonSets(namespace).List, func(l *appsv1.DaemonSetList) {
		c.DaemonSets = append(c.DaemonSets, l.Items...)
	})
	c.cannot(primaryWhat, right, err)
}

func (c *Cluster) readLists(ctx context.Context, core kubernetes.Interface) {
	c.readNodes(ctx, core)
	c.readDaemonSets(ctx, core, "", "list daemonsets in all namespaces")
	err := pages(ctx, core.RbacV1().ClusterRoleBindings().List, func(l *rbacv1.ClusterRoleBindingList) {
		c.Bindings = append(c.Bindings, l.Items...)
	})
	c.cannot("second-install", "list clusterrolebindings", err)
	for _, namespace := range []string{"kube-flannel", "kube-system"} {
		m, err := core.CoreV1().ConfigMaps(namespace).Get(ctx, "kube-flannel-cfg", metav1.GetOptions{})
		if !c.cannot("primary-network", "get configmaps in "+namespace, err) {
			c.Flannel = append(c.Flannel, *m)
		}
	}
	earlier, err := core.CoreV1().Namespaces().List(ctx, metav1.ListOptions{LabelSelector: inspectionLabel})
	if !c.cannot("inspection", "list namespaces", err) {
		for i := range earlier.Items {
			c.Leftover = append(c.Leftover, earlier.Items[i].Name)
		}
	}
}

// readServiceNetwork reads the networks of Services. Before Kubernetes 1.33 no object has them, so only the addresses
// of the API server's own Service are known.
func (c *Cluster) readServiceNetwork(ctx context.Context, core kubernetes.Interface) {
	cidrs, err := core.NetworkingV1().ServiceCIDRs().List(ctx, metav1.ListOptions{})
	if !c.cannot("subnets", "list servicecidrs", err) {
		c.ServiceCIDRs = cidrs.Items
	}
	service, err := core.CoreV1().Services("default").Get(ctx, "kubernetes", metav1.GetOptions{})
	if !c.cannot("subnets", "get services in default", err) {
		c.Services = service.Spec.ClusterIPs
	}
}

func (c *Cluster) readOurs(ctx context.Context, core kubernetes.Interface) {
	const in = " in " + Namespace
	namespace, err := core.CoreV1().Namespaces().Get(ctx, Namespace, metav1.GetOptions{})
	if c.cannot("namespace", "get namespaces", err) {
		return
	}
	c.Namespace = namespace
	config, err := core.CoreV1().ConfigMaps(Namespace).Get(ctx, Namespace, metav1.GetOptions{})
	if !c.cannot("nb-endpoints", "get configmaps"+in, err) {
		c.Config = config
	}
	trusted, err := core.CoreV1().ConfigMaps(Namespace).Get(ctx, authority.ConfigMapName, metav1.GetOptions{})
	if !c.cannot("distrusted", "get configmaps"+in, err) {
		c.Authority = trusted.Data
	}
	agents, err := core.AppsV1().DaemonSets(Namespace).Get(ctx, "agent", metav1.GetOptions{})
	if !c.cannot("agents", "get daemonsets"+in, err) {
		c.Agents = agents
	}
	controllers, err := core.AppsV1().Deployments(Namespace).Get(ctx, "controller", metav1.GetOptions{})
	if !c.cannot("controllers", "get deployments"+in, err) {
		c.Controllers = controllers
	}
	err = pages(ctx, core.CoreV1().Pods(Namespace).List, func(l *corev1.PodList) { c.Pods = append(c.Pods, l.Items...) })
	c.cannot("agents", "list pods"+in, err)
}

func (c *Cluster) readSecrets(ctx context.Context, core kubernetes.Interface) {
	if c.Namespace == nil {
		return
	}
	for _, name := range secrets {
		s, err := core.CoreV1().Secrets(Namespace).Get(ctx, name, metav1.GetOptions{})
		if c.cannot("nb-secrets", "get secrets in "+Namespace, err) {
			continue
		}
		c.Secrets[name] = map[string]bool{}
		for key, value := range s.Data {
			c.Secrets[name][key] = len(value) > 0
		}
	}
}

func (c *Cluster) readNADs(ctx context.Context, nads nadclient.Interface) {
	err := pages(ctx, nads.K8sCniCncfIoV1().NetworkAttachmentDefinitions("").List,
		func(l *nadv1.NetworkAttachmentDefinitionList) { c.NADs = append(c.NADs, l.Items...) })
	c.cannot("subnets", "list network-attachment-definitions in all namespaces", err)
}

// Installed reports whether the cluster has our agents.
func (c *Cluster) Installed() bool { return c.Agents != nil }

// bringsOVN reports whether the installed chart runs OVN.
func (c *Cluster) bringsOVN() bool {
	return c.Config != nil && c.Config.Data["OVN_MULTINET_NB_MEMBERS"] != ""
}

// unreadable reports whether a check could not be made.
func (c *Cluster) unreadable(what string) bool {
	return slices.ContainsFunc(c.unread, func(f Finding) bool { return f.What == what })
}
