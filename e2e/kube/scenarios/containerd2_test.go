//go:build kube

package scenarios

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovn-multinet/ovn-multinet/e2e/kube"
	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

// TestContainerd2 boots a node whose runtime asks the plugins of a conflist of version 1.1.0 for their STATUS: not
// before the agent was ready does it start pods, and from then on it does without the agent.
func TestContainerd2(t *testing.T) {
	t.Parallel()
	w := bareWorld(t, kube.Options{Nodes: 1, CNIVersion: "1.1.0", Containerd2: true})
	ctx, c := w.Ctx, w.Cluster
	node, err := c.Client.CoreV1().Nodes().Get(ctx, "node1", metav1.GetOptions{})
	w.Must(err)
	if runtime := node.Status.NodeInfo.ContainerRuntimeVersion; !strings.HasPrefix(runtime, "containerd://2.") {
		t.Fatalf("the node runs %s", runtime)
	}
	w.Must(record(c.Nodes[0]))
	w.Must(w.InstallProduct(ctx))
	w.Must(w.Apply(ctx, nad("blue", `{"type":"ovn-multinet","subnets":"10.1.0.0/16"}`)))

	w.booted()
	w.agentReady()
	w.agentAway()

	w.schedule("null")
	w.Must(w.Delete(ctx, pod("a", "node1", "blue")+pod("plain", "node1", "")))
	w.Must(w.WaitGone(ctx, "default/a", "default/plain"))
	w.Must(lab.Eventually(ctx, w.nothingLeft))
	for _, name := range []string{"a", "plain"} {
		w.Must(lab.Eventually(ctx, func() error {
			if len(w.callsOf("DEL", name)) == 0 {
				return fmt.Errorf("no DEL of pod %s", name)
			}
			return nil
		}))
	}
	count := map[string]int{}
	for _, call := range w.calls() {
		count[call.command]++
		// kubelet repeats an ADD that failed; STATUS was looked at above.
		if call.command != "STATUS" && call.command != "ADD" && call.exit != "0" {
			t.Errorf("%s of %q ended with %s: %s", call.command, call.args, call.exit, call.stdout)
		}
	}
	t.Logf("the runtime called the plugin: %v", count)
}

// booted is the node after its boot and before its agent's: the conflist is there, /run is empty.
func (w *world) booted() {
	n := w.Nodes[0]
	w.schedule(`"nowhere"`)
	files := w.Glob(n.Path("/run/ovn-multinet/*"))
	for _, file := range files {
		w.Must(os.Remove(file))
	}
	const says = "the agent at /run/ovn-multinet/agent.sock was not ready yet since boot"
	w.waitReadiness(corev1.ConditionFalse, "NetworkReady=false reason:NetworkPluginNotReady message:Network plugin returns error: "+says)
	var answer struct {
		Code uint
		Msg  string
	}
	last := w.lastOf("STATUS", "")
	w.Must(json.Unmarshal(last.stdout, &answer))
	if last.exit == "0" || answer.Code != 50 || answer.Msg != says {
		w.T.Errorf("STATUS ended with %s and said %s, want code 50: %s", last.exit, last.stdout, says)
	}
	w.Must(w.Apply(w.Ctx, pod("a", "node1", "blue")))
	w.eventOf("a", "Warning", "NetworkNotReady", says)
	if adds := w.callsOf("ADD", "a"); len(adds) != 0 {
		w.T.Errorf("%d ADDs before the network was ready", len(adds))
	}
}

// agentReady: the agent comes up on a node without a network, and the pod that waited gets its interfaces.
func (w *world) agentReady() {
	w.schedule("null")
	w.waitReadiness(corev1.ConditionTrue, "")
	w.Must(w.WaitReady(w.Ctx, "default/a"))
	w.consistent("a", []string{"eth0", "net1"})
	if got := w.passedOn("a").RuntimeConfig.Annotations["k8s.v1.cni.cncf.io/networks"]; got != "blue" {
		w.T.Errorf("the runtime handed the networks %q, want blue", got)
	}
}

// given is what the runtime gives to the plugin.
type given struct {
	CNIVersion    string          `json:"cniVersion"`
	PrevResult    json.RawMessage `json:"prevResult"`
	RuntimeConfig struct {
		Annotations map[string]string `json:"io.kubernetes.cri.pod-annotations"`
	} `json:"runtimeConfig"`
}

// passedOn sees that a pod's ADD printed the primary's result to the byte, and returns what it was given.
func (w *world) passedOn(pod string) (g given) {
	add := w.lastOf("ADD", pod)
	w.Must(json.Unmarshal(add.stdin, &g))
	if g.CNIVersion != "1.1.0" {
		w.T.Errorf("the plugin was called with cniVersion %q", g.CNIVersion)
	}
	if got := bytes.TrimSpace(add.stdout); add.exit != "0" || len(got) == 0 || !bytes.Equal(got, g.PrevResult) {
		w.T.Errorf("ADD of pod %s ended with %s and printed %s; the primary's result was %s", pod, add.exit, got, g.PrevResult)
	}
	return g
}

// agentAway: with the agent gone the runtime goes on asking, and the node stays in service.
func (w *world) agentAway() {
	since := w.readiness().LastTransitionTime
	w.schedule(`"nowhere"`)
	before := len(w.callsOf("STATUS", ""))
	const more = 3
	var status []call
	w.Must(lab.Eventually(w.Ctx, func() error {
		status = w.callsOf("STATUS", "")[before:]
		if len(status) < more {
			return fmt.Errorf("STATUS was called %d times without the agent, want %d", len(status), more)
		}
		return nil
	}))
	for _, call := range status {
		if call.exit != "0" {
			w.T.Errorf("STATUS without the agent ended with %s: %s", call.exit, call.stdout)
		}
	}
	w.Must(w.Apply(w.Ctx, pod("plain", "node1", "")))
	w.Must(w.WaitReady(w.Ctx, "default/plain"))
	if links := w.links("plain"); len(links) != 1 {
		w.T.Errorf("a plain pod has %v", links)
	}
	w.passedOn("plain")
	if now := w.readiness(); now.Status != corev1.ConditionTrue || !now.LastTransitionTime.Equal(&since) {
		w.T.Errorf("the node was Ready since %v, is %+v", since, now)
	}
}

// schedule has the agent run on nodes with this label only, as JSON; null is on all. It returns when the agent does
// run, or does not.
func (w *world) schedule(label string) {
	_, err := w.Kubectl(w.Ctx, "--namespace", "ovn-multinet", "patch", "daemonset", "agent",
		"--patch", `{"spec":{"template":{"spec":{"nodeSelector":{"agents":`+label+`}}}}}`)
	w.Must(err)
	w.kubectl("--namespace", "ovn-multinet", "rollout", "status", "--timeout=90s", "daemonset/agent")
	if label == "null" {
		return
	}
	w.Must(lab.Eventually(w.Ctx, func() error {
		list, err := w.Client.CoreV1().Pods("ovn-multinet").List(w.Ctx, metav1.ListOptions{LabelSelector: "app=ovn-multinet-agent"})
		if err == nil && len(list.Items) > 0 {
			err = errors.New("the agent is still there")
		}
		return err
	}))
}

// readiness is what kubelet says of the node.
func (w *world) readiness() corev1.NodeCondition {
	n, err := w.Client.CoreV1().Nodes().Get(w.Ctx, w.Nodes[0].Name, metav1.GetOptions{})
	w.Must(err)
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c
		}
	}
	return corev1.NodeCondition{}
}

func (w *world) waitReadiness(want corev1.ConditionStatus, words string) {
	ctx, cancel := context.WithTimeout(w.Ctx, patience)
	defer cancel()
	w.Must(lab.Eventually(ctx, func() error {
		if c := w.readiness(); c.Status != want || !strings.Contains(c.Message, words) {
			return fmt.Errorf("Ready is %s: %s; want %s: %s", c.Status, c.Message, want, words)
		}
		return nil
	}))
}

// callsDir has a folder for each call of our plugin on the node, named by its start and its command, that appears
// when the call is over.
const callsDir = "/var/log/cni-calls"

// recorder stands before the plugin, where the installer does not write.
const recorder = `#!/bin/sh
began=$(date +%s.%N)
call=$(mktemp -d ` + callsDir + `/.XXXXXXXX) || exit 1
cat >"$call/stdin"
printf %s "$CNI_ARGS" >"$call/args"
/opt/cni/bin/ovn-multinet <"$call/stdin" >"$call/stdout"
code=$?
printf %s "$code" >"$call/exit"
cat "$call/stdout"
mv "$call" "` + callsDir + `/$began.$CNI_COMMAND"
exit "$code"
`

func record(n *kube.Node) error {
	return errors.Join(
		os.Mkdir(n.Path(callsDir), 0o755),
		os.Mkdir(n.Path(kube.WrappersDir), 0o755),
		os.WriteFile(n.Path(filepath.Join(kube.WrappersDir, "ovn-multinet")), []byte(recorder), 0o755),
	)
}

// call is one call of our plugin by the runtime.
type call struct {
	command, args, exit string
	stdin, stdout       []byte
}

// calls returns what is over, in the order of its begin.
func (w *world) calls() []call {
	dir := os.DirFS(w.Nodes[0].Path(callsDir))
	entries, err := fs.ReadDir(dir, ".")
	w.Must(err)
	var calls []call
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") {
			continue
		}
		part := map[string][]byte{}
		for _, name := range []string{"args", "exit", "stdin", "stdout"} {
			part[name], err = fs.ReadFile(dir, e.Name()+"/"+name)
			w.Must(err)
		}
		calls = append(calls, call{
			command: strings.TrimPrefix(filepath.Ext(e.Name()), "."),
			args:    string(part["args"]), exit: string(part["exit"]), stdin: part["stdin"], stdout: part["stdout"],
		})
	}
	return calls
}

// callsOf returns the calls of a command; for a pod, or for none.
func (w *world) callsOf(command, pod string) []call {
	var found []call
	for _, call := range w.calls() {
		if call.command == command && (pod == "" || slices.Contains(strings.Split(call.args, ";"), "K8S_POD_NAME="+pod)) {
			found = append(found, call)
		}
	}
	return found
}

// lastOf is the last of a command's calls, of which there has to be one.
func (w *world) lastOf(command, pod string) call {
	calls := w.callsOf(command, pod)
	if len(calls) == 0 {
		w.T.Fatalf("no %s %s among the calls of the plugin", command, pod)
	}
	return calls[len(calls)-1]
}
