package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/httpstream"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
)

// forgetCommand runs the agent's own command of that name, where the journal is: in its container on the node.
func forgetCommand() *cobra.Command {
	var clients clientOptions
	var node, output string
	var timeout time.Duration
	cmd := &cobra.Command{
		Use: "forget --node NODE [CONTAINER]", Short: "List the networks of other plugins that would not go from a node, or give those of a container up",
		Args: cobra.MaximumNArgs(1),
		Long: `A plugin whose DEL fails is asked again by every later DEL on the node, and the devices of its network stay with the
container until it succeeds. If it never will, forget gives them up: what the plugin left on the node is then yours to clean
up, and kubelet may give the devices to other pods.

It runs "ovn-multinetd forget" in the agent's pod on the node, so you need the right to create pods/exec in the namespace
ovn-multinet. On a node without a cluster, run that as root.`,
		Example: "  kubectl multinet forget --node worker-1\n  kubectl multinet forget --node worker-1 4f1d27a3",
		RunE: func(cmd *cobra.Command, args []string) error {
			if node == "" {
				return errors.New("--node is empty: name the node, as kubectl get nodes lists it")
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			config, _, err := clients.load()
			if err != nil {
				return err
			}
			return runOnNode(ctx, config, node, append([]string{"/ovn-multinetd", "forget", "--output", output, "--"}, args...), cmd.OutOrStdout())
		},
	}
	clients.flags(cmd.Flags())
	cmd.Flags().StringVar(&node, "node", "", "name of the node")
	cmd.Flags().StringVarP(&output, "output", "o", "table", "table or json")
	cmd.Flags().DurationVar(&timeout, "timeout", 30*time.Second, "how long to wait for the cluster and for the agent")
	return cmd
}

// agentLabel is that of the agents' pods.
const agentLabel = "app=ovn-multinet-agent"

// runOnNode runs a command in the agent's container on a node. What it complains about is the error.
func runOnNode(ctx context.Context, config *rest.Config, node string, command []string, out io.Writer) error {
	core, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	pods, err := core.CoreV1().Pods(installed).List(ctx, metav1.ListOptions{
		LabelSelector: agentLabel, FieldSelector: fields.OneTermEqualSelector("spec.nodeName", node).String(),
	})
	if err != nil {
		return err
	}
	for i := range pods.Items {
		if p := &pods.Items[i]; p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil {
			return execIn(ctx, config, core, node, p.Name, command, out)
		}
	}
	return fmt.Errorf("no agent of ovn-multinet runs on node %q: kubectl -n %s get pods -o wide", node, installed)
}

func execIn(ctx context.Context, config *rest.Config, core kubernetes.Interface, node, pod string, command []string, out io.Writer) error {
	target := core.CoreV1().RESTClient().Post().Resource("pods").Namespace(installed).Name(pod).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{Container: "agent", Command: command, Stdout: true, Stderr: true}, scheme.ParameterCodec).URL()
	executor, err := newExecutor(config, target)
	if err != nil {
		return err
	}
	var complaint bytes.Buffer
	err = executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: out, Stderr: &complaint})
	if said := strings.Join(strings.Fields(complaint.String()), " "); err != nil && said != "" {
		return fmt.Errorf("node %s: %s", node, said)
	}
	return err
}

// newExecutor is kubectl's own: API servers before 1.30 speak SPDY alone.
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
