package check

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/ovn-multinet/ovn-multinet/node/nodefacts"
)

// inspectionLabel is the label of the namespaces of inspections.
const inspectionLabel = "ovn-multinet/inspection"

// Inspector reads the facts of nodes by a short-lived pod on each node.
type Inspector struct {
	Core    kubernetes.Interface
	Plan    Plan
	Timeout time.Duration // for one node
}

const (
	atOnce    = 20                     // pods at the same time
	pollEvery = 500 * time.Millisecond // of each pod
	// toDelete is the time for the deletion of the pods, also after the user has interrupted the command.
	toDelete = 60 * time.Second
	hostRoot = "/host"
)

// Inspect returns the facts of the nodes, and why a node has none. The pods have a namespace of their own. The
// namespace and the pods are deleted also if ctx ends. An error says that they could not be made or deleted.
func (i *Inspector) Inspect(ctx context.Context, nodes []string) (
	facts map[string]*nodefacts.Facts, failed map[string]error, err error,
) {
	namespace, err := i.Core.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		GenerateName: "ovn-multinet-check-",
		Labels:       map[string]string{inspectionLabel: "true", "pod-security.kubernetes.io/enforce": "privileged"},
	}}, metav1.CreateOptions{})
	if err != nil {
		return nil, nil, fmt.Errorf("create a namespace for the inspection of nodes: %w", err)
	}
	defer func() { err = errors.Join(err, i.end(ctx, namespace.Name)) }()
	facts, failed = map[string]*nodefacts.Facts{}, map[string]error{}
	var lock sync.Mutex
	var all errgroup.Group
	all.SetLimit(atOnce)
	for _, node := range nodes {
		all.Go(func() error {
			f, err := i.inspect(ctx, namespace.Name, node)
			lock.Lock()
			defer lock.Unlock()
			if err != nil {
				failed[node] = err
			} else {
				facts[node] = f
			}
			return nil
		})
	}
	return facts, failed, all.Wait()
}

// end deletes the namespace with its pods, and waits until they are gone.
func (i *Inspector) end(ctx context.Context, namespace string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), toDelete)
	defer cancel()
	namespaces := i.Core.CoreV1().Namespaces()
	err := namespaces.Delete(ctx, namespace, metav1.DeleteOptions{})
	if err == nil {
		err = wait.PollUntilContextCancel(ctx, pollEvery, true, func(ctx context.Context) (bool, error) {
			_, err := namespaces.Get(ctx, namespace, metav1.GetOptions{})
			return apierrors.IsNotFound(err), nil
		})
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("the inspection's namespace is not gone: kubectl delete namespace %s: %w", namespace, err)
	}
	return nil
}

// inspect runs the pod of a node and reads its answer.
func (i *Inspector) inspect(ctx context.Context, namespace, node string) (*nodefacts.Facts, error) {
	ctx, cancel := context.WithTimeout(ctx, i.Timeout)
	defer cancel()
	pods := i.Core.CoreV1().Pods(namespace)
	var pod *corev1.Pod
	logs := func() ([]byte, error) { return pods.GetLogs(pod.Name, &corev1.PodLogOptions{}).DoRaw(ctx) }
	last := errors.New("the API server does not answer")
	err := wait.PollUntilContextCancel(ctx, pollEvery, true, func(ctx context.Context) (bool, error) {
		if pod == nil {
			made, err := pods.Create(ctx, i.pod(node), metav1.CreateOptions{})
			if err != nil { // also until the namespace has its ServiceAccount
				last = err
				return false, nil
			}
			pod = made
		}
		now, err := pods.Get(ctx, pod.Name, metav1.GetOptions{})
		if err != nil {
			last = err
			return false, nil
		}
		last = errors.New(whyNotReady(now))
		switch {
		case now.Status.Phase == corev1.PodSucceeded:
			return true, nil
		case now.Status.Phase == corev1.PodFailed: // an older image does not have the command
			if said, err := logs(); err == nil {
				last = fmt.Errorf("%w: %s", last, said)
			}
			return false, last
		case hopeless(now):
			return false, last
		}
		return false, nil
	})
	if err != nil {
		return nil, last
	}
	text, err := logs()
	if err != nil {
		return nil, err
	}
	f := &nodefacts.Facts{}
	if err := json.Unmarshal(text, f); err != nil {
		const other = "image %s does not answer as ovn-multinet-install does: %s"
		return nil, fmt.Errorf(other, i.Plan.Image, oneLine(string(text)))
	}
	return f, nil
}

// hopeless reports whether a container will not start: its image cannot be pulled, or its program does not exist.
func hopeless(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool {
		return s.State.Waiting != nil && slices.Contains([]string{"ErrImageNeverPull", "ImagePullBackOff", "InvalidImageName",
			"CreateContainerConfigError", "CreateContainerError", "RunContainerError"}, s.State.Waiting.Reason)
	})
}

// pod returns the pod for a node. It has no capability and no token, and it mounts the node's root folder read-only.
// The scheduler does not choose its node, so it also runs on a node that takes no new pods.
func (i *Inspector) pod(node string) *corev1.Pod {
	no, yes, rootUser := false, true, int64(0)
	grace, deadline := int64(0), int64(i.Timeout/time.Second)+1
	p := &i.Plan
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "inspection-", Labels: map[string]string{inspectionLabel: "true"}},
		Spec: corev1.PodSpec{
			NodeName: node, HostNetwork: true, HostPID: true, RestartPolicy: corev1.RestartPolicyNever,
			DNSPolicy: corev1.DNSClusterFirstWithHostNet, AutomountServiceAccountToken: &no, EnableServiceLinks: &no,
			TerminationGracePeriodSeconds: &grace, ActiveDeadlineSeconds: &deadline,
			Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			Containers: []corev1.Container{{
				Name: "inspection", Image: p.Image, ImagePullPolicy: corev1.PullIfNotPresent,
				Args: []string{"inspect", "--host-root=" + hostRoot, "--net-dir=" + p.NetDir, "--bin-dir=" + p.BinDir,
					"--primary=" + p.Primary, "--ovs-socket=" + p.OVSSocket, "--nb-endpoints=" + strings.Join(p.Endpoints, ",")},
				SecurityContext: &corev1.SecurityContext{
					RunAsUser: &rootUser, AllowPrivilegeEscalation: &no, ReadOnlyRootFilesystem: &yes,
					Capabilities:   &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
					SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
				},
				VolumeMounts: []corev1.VolumeMount{{Name: "host", MountPath: hostRoot, ReadOnly: true}},
			}},
			Volumes: []corev1.Volume{{Name: "host", VolumeSource: corev1.VolumeSource{
				HostPath: &corev1.HostPathVolumeSource{Path: "/"},
			}}},
		},
	}
}

// Inspectable returns the nodes that can run a pod of an inspection, and findings on the others.
func (c *Cluster) Inspectable() (nodes []string, others []Finding) {
	for i := range c.Nodes {
		n := &c.Nodes[i]
		switch {
		case !usable(n): // checkNodes has named it
		case silent(n):
			why := errors.New("kubelet of the node does not report")
			others = append(others, unread("inspection", "start kubelet on the node", why).at(n.Name))
		default:
			nodes = append(nodes, n.Name)
		}
	}
	return nodes, others
}

// Failed returns the findings on nodes that could not be inspected.
func Failed(failed map[string]error) (all []Finding) {
	for node, err := range failed {
		all = append(all, unread("inspection", "load the plugin's image onto the node, or name another one with --image",
			errors.New(oneLine(err.Error()))).at(node))
	}
	return all
}
