package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/httpstream"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
)

// agentBinary is the path of the agent's program in its image.
const agentBinary = "/ovn-multinetd"

// agentLabel is the label of the agents' pods.
const agentLabel = "app=ovn-multinet-agent"

// agents returns the names of the running agents' pods, by node.
func agents(ctx context.Context, core kubernetes.Interface, selector fields.Selector) (map[string]string, error) {
	pods, err := core.CoreV1().Pods(installed).List(ctx, metav1.ListOptions{
		LabelSelector: agentLabel, FieldSelector: selector.String(),
	})
	if err != nil {
		return nil, err
	}
	names := map[string]string{}
	for i := range pods.Items {
		if p := &pods.Items[i]; p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil {
			names[p.Spec.NodeName] = p.Name
		}
	}
	return names, nil
}

// runOnNode runs a command in the agent's container on a node. If the command fails, the error has its stderr.
func runOnNode(ctx context.Context, config *rest.Config, node string, command []string, out io.Writer) error {
	core, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	names, err := agents(ctx, core, fields.OneTermEqualSelector("spec.nodeName", node))
	if err != nil {
		return err
	}
	if names[node] == "" {
		return fmt.Errorf("no agent of ovn-multinet runs on node %q: kubectl -n %s get pods -o wide", node, installed)
	}
	return execIn(ctx, config, core, target{node, names[node], agentContainer}, command, nil, out)
}

// runOnAll runs a command on each node with an agent, and returns the outputs by node. After an error on one node, it
// continues with the next node.
func runOnAll(ctx context.Context, config *rest.Config, command []string) (said map[string][]byte, err error) {
	core, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	names, err := agents(ctx, core, fields.Everything())
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("no agent of ovn-multinet runs: kubectl -n %s get pods", installed)
	}
	said = map[string][]byte{}
	var errs []error
	for _, node := range slices.Sorted(maps.Keys(names)) {
		var out bytes.Buffer
		if err := execIn(ctx, config, core, target{node, names[node], agentContainer}, command, nil, &out); err != nil {
			errs = append(errs, err)
			continue
		}
		said[node] = out.Bytes()
	}
	return said, errors.Join(errs...)
}

// agentContainer is the name of the agent's container in its pod.
const agentContainer = "agent"

// target is a container of a pod. node is for errors.
type target struct{ node, pod, container string }

// execIn runs a command in a container of a pod. stdin may be nil.
func execIn(
	ctx context.Context, config *rest.Config, core kubernetes.Interface, in target, command []string,
	stdin io.Reader, out io.Writer,
) error {
	var complaint bytes.Buffer
	err := execute(ctx, config, core, in, command, stdin, out, &complaint)
	node := in.node
	said := strings.Join(strings.Fields(complaint.String()), " ")
	switch {
	case err == nil || said == "":
		return err
	case strings.Contains(said, "unknown flag: "), strings.Contains(said, "unknown command "):
		return fmt.Errorf(
			"node %s: the agent there is older than this command, finish the upgrade of the node (it says: %s)", node, said)
	}
	return fmt.Errorf("node %s: %s", node, said)
}

// execute runs a command in a container of a pod, by the API server.
func execute(
	ctx context.Context, config *rest.Config, core kubernetes.Interface, in target, command []string,
	stdin io.Reader, out, complaint io.Writer,
) error {
	options := &corev1.PodExecOptions{
		Container: in.container, Command: command, Stdin: stdin != nil, Stdout: true, Stderr: true,
	}
	address := core.CoreV1().RESTClient().Post().Resource("pods").Namespace(installed).Name(in.pod).SubResource("exec").
		VersionedParams(options, scheme.ParameterCodec).URL()
	executor, err := newExecutor(config, address)
	if err != nil {
		return err
	}
	return executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: stdin, Stdout: out, Stderr: complaint})
}

// newExecutor returns an executor like kubectl's: it tries WebSocket, and then SPDY, because API servers before 1.30
// support only SPDY.
func newExecutor(config *rest.Config, target *url.URL) (remotecommand.Executor, error) {
	old, err := remotecommand.NewSPDYExecutor(config, "POST", target)
	if err != nil {
		return nil, err
	}
	executor, err := remotecommand.NewWebSocketExecutor(config, "GET", target.String())
	if err != nil {
		return nil, err
	}
	return remotecommand.NewFallbackExecutor(executor, old, func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	})
}
