package kube

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/dsnet/try"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	clientwatch "k8s.io/client-go/tools/watch"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

// Kubectl runs kubectl as the admin and returns what it wrote to its standard output, trimmed.
func (c *Cluster) Kubectl(ctx context.Context, args ...string) (string, error) {
	return c.kubectl(ctx, nil, args...)
}

func (c *Cluster) kubectl(ctx context.Context, stdin io.Reader, args ...string) (string, error) {
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, c.program(kubelab), append([]string{"kubectl", "--kubeconfig=" + c.Kubeconfig}, args...)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, &stdout, &stderr
	err := lab.StartIn(c.CentralNetNS(), cmd)
	if err == nil {
		err = cmd.Wait()
	}
	out := strings.TrimSpace(stdout.String())
	if err != nil {
		return out, fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(stderr.Bytes()))
	}
	return out, nil
}

// Multinet runs `kubectl multinet` of the installed product as the cluster's admin, on a machine that reaches the API
// server and nothing else.
func (c *Cluster) Multinet(ctx context.Context, args ...string) (string, error) {
	return c.MultinetAs(ctx, c.Kubeconfig, args...)
}

// MultinetAs is Multinet with another kubeconfig.
func (c *Cluster) MultinetAs(ctx context.Context, kubeconfig string, args ...string) (string, error) {
	program := filepath.Join(os.Getenv(ProductEnv), "kubectl-multinet")
	return c.laptop.Exec(ctx, append([]string{"env", "KUBECONFIG=" + kubeconfig, program}, args...)...)
}

// Apply makes objects what the YAML says, whoever changed them before.
func (c *Cluster) Apply(ctx context.Context, yaml string) error {
	_, err := c.kubectl(ctx, strings.NewReader(yaml), "apply", "--server-side", "--force-conflicts", "-f", "-")
	return err
}

// Delete deletes the objects of the YAML and waits until they are gone. Absent is fine.
func (c *Cluster) Delete(ctx context.Context, yaml string) error {
	_, err := c.kubectl(ctx, strings.NewReader(yaml), "delete", "--ignore-not-found", "--wait", "-f", "-")
	return err
}

// Exec runs a command in a container of a pod, "" for its first, through the API server and kubelet, and returns what
// it wrote to its standard output, trimmed. pod is namespace/name.
func (c *Cluster) Exec(ctx context.Context, pod, container string, command ...string) (string, error) {
	return c.ExecOn(ctx, "", pod, container, command...)
}

// ExecOn is Exec with a text as the command's standard input.
func (c *Cluster) ExecOn(ctx context.Context, stdin, pod, container string, command ...string) (string, error) {
	namespace, name, err := split(pod)
	if err != nil {
		return "", err
	}
	args := []string{"exec", "--namespace=" + namespace, name}
	if stdin != "" {
		args = append(args, "--stdin")
	}
	if container != "" {
		args = append(args, "--container="+container)
	}
	return c.kubectl(ctx, strings.NewReader(stdin), append(append(args, "--"), command...)...)
}

// Logs returns what a container of a pod wrote, "" for its only one. pod is namespace/name.
func (c *Cluster) Logs(ctx context.Context, pod, container string) (string, error) {
	namespace, name, err := split(pod)
	if err != nil {
		return "", err
	}
	logs := c.Client.CoreV1().Pods(namespace).GetLogs(name, &corev1.PodLogOptions{Container: container})
	b, err := logs.DoRaw(ctx)
	return string(b), err
}

// Pod reads a pod; its name is namespace/name.
func (c *Cluster) Pod(ctx context.Context, pod string) (*corev1.Pod, error) {
	namespace, name, err := split(pod)
	if err != nil {
		return nil, err
	}
	return c.Client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
}

func split(pod string) (namespace, name string, err error) {
	namespace, name, ok := strings.Cut(pod, "/")
	if !ok {
		return "", "", fmt.Errorf("a pod is namespace/name, not %q", pod)
	}
	return namespace, name, nil
}

// WaitReady returns when the pods, each namespace/name, are Ready. They need not exist yet.
func (c *Cluster) WaitReady(ctx context.Context, pods ...string) error {
	var all errgroup.Group
	for _, pod := range pods {
		all.Go(func() error {
			var last *corev1.Pod
			err := c.waitPod(ctx, pod, func(p *corev1.Pod) bool {
				last = p
				return p != nil && podReady(p)
			})
			if err != nil {
				return fmt.Errorf("wait for pod %s to be Ready: %w: %s", pod, err, c.whyNot(last))
			}
			return nil
		})
	}
	return all.Wait()
}

// WaitGone returns when the pods, each namespace/name, have been deleted.
func (c *Cluster) WaitGone(ctx context.Context, pods ...string) error {
	var all errgroup.Group
	for _, pod := range pods {
		all.Go(func() error {
			if err := c.waitPod(ctx, pod, func(p *corev1.Pod) bool { return p == nil }); err != nil {
				return fmt.Errorf("wait for pod %s to be gone: %w", pod, err)
			}
			return nil
		})
	}
	return all.Wait()
}

// waitPod watches a pod until done, which is given nil while there is none.
func (c *Cluster) waitPod(ctx context.Context, pod string, done func(*corev1.Pod) bool) error {
	namespace, name, err := split(pod)
	if err != nil {
		return err
	}
	return waitFor(ctx, c.Client.CoreV1().RESTClient(), "pods", namespace, name, done)
}

// waitFor watches one object until done, which is given nil while there is none.
func waitFor[T any, P interface {
	*T
	runtime.Object
}](ctx context.Context, client cache.Getter, resource, namespace, name string, done func(P) bool) error {
	source := cache.NewListWatchFromClient(client, resource, namespace, fields.OneTermEqualSelector("metadata.name", name))
	absent := func(store cache.Store) (bool, error) { return len(store.ListKeys()) == 0 && done(nil), nil }
	_, err := clientwatch.UntilWithSync(ctx, source, P(new(T)), absent, func(e watch.Event) (bool, error) {
		object, ok := e.Object.(P)
		if !ok {
			return false, fmt.Errorf("watch of %s %s: %v", resource, name, e.Object)
		}
		if e.Type == watch.Deleted {
			object = nil
		}
		return done(object), nil
	})
	return err
}

func podReady(p *corev1.Pod) bool {
	for _, condition := range p.Status.Conditions {
		if condition.Type == corev1.PodReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

// whyNot is what the cluster says of a pod that is not Ready: its last events.
func (c *Cluster) whyNot(p *corev1.Pod) string {
	if p == nil {
		return "there is none"
	}
	// The caller's context has ended.
	events, err := c.Client.CoreV1().Events(p.Namespace).List(context.Background(), metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("involvedObject.uid", string(p.UID)).String(),
	})
	if err != nil {
		return err.Error()
	}
	said := []string{"phase " + string(p.Status.Phase)}
	for _, e := range events.Items {
		said = append(said, e.Reason+": "+e.Message)
	}
	return strings.Join(said, "; ")
}

func (c *Cluster) waitNodes(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	for _, p := range c.processes() {
		go func() {
			if err := p.Wait(ctx); ctx.Err() == nil {
				cancel(fmt.Errorf("%s ended: %w\n%s", p.Name, cmp.Or(err, errors.New("exit status 0")), p.LastLines(5)))
			}
		}()
	}
	var all errgroup.Group
	for _, n := range c.Nodes {
		all.Go(func() error {
			if err := waitFor(ctx, c.Client.CoreV1().RESTClient(), "nodes", "", n.Name, nodeReady); err != nil {
				return fmt.Errorf("wait for %s to be Ready: %w", n.Name, cmp.Or(context.Cause(ctx), err))
			}
			return nil
		})
	}
	return all.Wait()
}

// nodeReady reports whether pods may be put on a node.
func nodeReady(n *corev1.Node) bool {
	if n == nil || len(n.Spec.Taints) > 0 {
		return false
	}
	for _, condition := range n.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

// WaitAccount returns when a namespace has the service account that pods have by default: without it none can be made.
func (c *Cluster) WaitAccount(ctx context.Context, namespace string) error {
	return waitFor(ctx, c.Client.CoreV1().RESTClient(), "serviceaccounts", namespace, "default",
		func(a *corev1.ServiceAccount) bool { return a != nil })
}

// LoadImage gives every node an image with nothing in it but these files, executable: path in the image to path
// here. Pods use it with imagePullPolicy Never.
func (c *Cluster) LoadImage(ctx context.Context, name string, files map[string]string, entrypoint []string) error {
	var all errgroup.Group
	for _, n := range c.Nodes {
		all.Go(func() error { return n.loadImage(ctx, name, files, entrypoint) })
	}
	return all.Wait()
}

// Node returns the node of that name, nil when there is none.
func (c *Cluster) Node(name string) *Node {
	for _, n := range c.Nodes {
		if n.Name == name {
			return n
		}
	}
	return nil
}

// A sandbox is what containerd knows of a pod's first container.
type sandbox struct {
	ID   string
	Spec struct {
		Linux struct {
			Namespaces []struct{ Type, Path string }
		} `json:"linux"`
	}
}

var errNoSandbox = errors.New("it has no sandbox there")

// sandbox returns the running one of a pod, which is namespace/name.
func (n *Node) sandbox(ctx context.Context, pod string) (_ *sandbox, err error) {
	defer try.Handle(&err)
	p := try.E1(n.cluster.Pod(ctx, pod))
	uid := string(p.UID)
	if mirrored := p.Annotations[corev1.MirrorPodAnnotationKey]; mirrored != "" {
		uid = mirrored // a static pod has another UID on its node than in the API
	}
	filter := fmt.Sprintf(`labels."io.cri-containerd.kind"==sandbox,labels."io.kubernetes.pod.uid"==%s`, uid)
	ids := try.E1(n.Run(ctx, "ctr", "--namespace", "k8s.io", "containers", "list", "--quiet", filter))
	running := try.E1(n.Run(ctx, "ctr", "--namespace", "k8s.io", "tasks", "list"))
	for _, id := range strings.Fields(ids) {
		if !isRunning(running, id) {
			continue
		}
		info := try.E1(n.Run(ctx, "ctr", "--namespace", "k8s.io", "containers", "info", id))
		s := &sandbox{}
		return s, json.Unmarshal([]byte(info), s)
	}
	return nil, fmt.Errorf("sandbox of pod %s on %s: %w", pod, n.Name, errNoSandbox)
}

// isRunning reads ctr's list of tasks: id, pid, status.
func isRunning(tasks, id string) bool {
	for line := range strings.Lines(tasks) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == id {
			return f[2] == "RUNNING"
		}
	}
	return false
}

// SandboxID is containerd's id of the pod's running sandbox; pod is namespace/name.
func (n *Node) SandboxID(ctx context.Context, pod string) (string, error) {
	s, err := n.sandbox(ctx, pod)
	if err != nil {
		return "", err
	}
	return s.ID, nil
}

// PodNetNS is the path, for the program, of the pod's network namespace; pod is namespace/name.
func (n *Node) PodNetNS(ctx context.Context, pod string) (string, error) {
	s, err := n.sandbox(ctx, pod)
	if err != nil {
		return "", err
	}
	for _, namespace := range s.Spec.Linux.Namespaces {
		if namespace.Type == "network" && namespace.Path != "" {
			return n.Path(filepath.Join("/run/netns", filepath.Base(namespace.Path))), nil
		}
	}
	return "", fmt.Errorf("pod %s has no network namespace of its own", pod)
}

// PodNetNamespaces are the names of all network namespaces that containerd has made on the node and not removed.
func (n *Node) PodNetNamespaces() ([]string, error) {
	entries, err := os.ReadDir(n.Path("/run/netns"))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, err
}

// KillPause kills the first process of the pod's sandbox, so that kubelet has to make another sandbox; pod is
// namespace/name.
func (n *Node) KillPause(ctx context.Context, pod string) error {
	s, err := n.sandbox(ctx, pod)
	if err != nil {
		return err
	}
	_, err = n.Run(ctx, "ctr", "--namespace", "k8s.io", "tasks", "kill", "--signal", "SIGKILL", s.ID)
	return err
}
