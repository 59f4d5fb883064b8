package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/util/exec"

	"github.com/ovn-multinet/ovn-multinet/internal/program"
	"github.com/ovn-multinet/ovn-multinet/ovndb/members"
)

// tool is a client program of OVN or Open vSwitch in the image of the chart's OVN. This program does not run it: the
// operator does, by the API server.
type tool struct {
	name, program, short string
	label, container     string // where it runs
	port                 string // of OVN's database; "": the program is for one node
}

// The labels of the pods of the chart's OVN.
const (
	centralLabel = "app=ovn-multinet-ovn-central"
	ovnNodeLabel = "app=ovn-multinet-ovn-node"
)

var tools = []tool{
	{"nbctl", "/usr/bin/ovn-nbctl", "Run ovn-nbctl on OVN's Northbound database", centralLabel, "nb", members.NBPort},
	{"sbctl", "/usr/bin/ovn-sbctl", "Run ovn-sbctl on OVN's Southbound database", centralLabel, "sb", members.SBPort},
	{"trace", "/usr/bin/ovn-trace", "Run ovn-trace: what OVN does with a packet", centralLabel, "sb", members.SBPort},
	{"vsctl", "/usr/bin/ovs-vsctl", "Run ovs-vsctl on a node", ovnNodeLabel, "vswitchd", ""},
	{"ofctl", "/usr/bin/ovs-ofctl", "Run ovs-ofctl on a node", ovnNodeLabel, "vswitchd", ""},
	{"appctl", "/usr/bin/ovs-appctl", "Run ovs-appctl on a node, for ovs-vswitchd or ovn-controller", ovnNodeLabel,
		"vswitchd", ""},
}

// toolTimeout is how long a tool waits, in seconds: ovn-nbctl would wait for a leader without end.
const toolTimeout = "--timeout=30"

func (t tool) command() *cobra.Command {
	var clients clientOptions
	var node, daemon string
	timeout := time.Duration(0)
	cmd := &cobra.Command{
		Use: t.name + " [ARGUMENT...]", Short: t.short,
		Long: t.short + ` that the chart's OVN has. The program runs in the pod of that OVN, so you need the right to create
pods/exec in the namespace ovn-multinet. Put -- before arguments of the program that begin with a hyphen. The controller
and the agents repair rows and ports of ovn-multinet that are changed by hand.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if t.port == "" && node == "" {
				return errors.New("--node is empty: name the node, as kubectl get nodes lists it")
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			k, _, err := clients.connect()
			if err != nil {
				return err
			}
			call, err := k.toolCall(ctx, t, node, daemon)
			if err != nil {
				return err
			}
			call.command = append(call.command, args...)
			return k.runTool(ctx, call, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	cmd.Flags().SetInterspersed(false)
	clients.clusterFlags(cmd.Flags())
	cmd.Flags().DurationVar(&timeout, "limit", time.Minute, "how long the command may take")
	if t.port == "" {
		cmd.Flags().StringVar(&node, "node", "", "name of the node")
		cmd.Example = "  kubectl multinet " + t.name + " --node worker-1 show"
	} else {
		cmd.Flags().StringVar(&node, "node", "", "node with OVN's databases that the program runs on; empty: any")
		cmd.Example = "  kubectl multinet " + t.name + " show\n  kubectl multinet " + t.name +
			" -- --columns=name list Port_Group"
	}
	switch t.name {
	case "trace":
		cmd.Example = "  kubectl multinet trace shop/blue 'inport==\"shop/web-0/net1\" && eth.src==0a:58:0a:01:00:0a && " +
			"eth.dst==0a:58:0a:01:00:14 && ip4.src==10.1.0.10 && ip4.dst==10.1.0.20 && ip.ttl==64 && icmp4'"
	case "ofctl":
		cmd.Example = "  kubectl multinet ofctl --node worker-1 dump-flows br-int"
	case "appctl":
		cmd.Example = "  kubectl multinet appctl --node worker-1 fdb/show br-int\n" +
			"  kubectl multinet appctl --node worker-1 --daemon ovn-controller connection-status"
		cmd.Flags().StringVar(&daemon, "daemon", vswitchdDaemon, vswitchdDaemon+" or "+ovnControllerDaemon)
	}
	return cmd
}

// The daemons that appctl speaks to.
const (
	vswitchdDaemon      = "ovs-vswitchd"
	ovnControllerDaemon = "ovn-controller"
)

// toolCall is a program in a container, with its first arguments.
type toolCall struct {
	in      target
	command []string
}

// toolCall finds the pod for a tool, and the arguments by which the tool finds its database or daemon there.
func (k *cluster) toolCall(ctx context.Context, t tool, node, daemon string) (*toolCall, error) {
	configMap, err := k.ofOwnOVN(ctx, "run "+path.Base(t.program)+" where your OVN runs")
	if err != nil {
		return nil, err
	}
	in, err := k.podOfTool(ctx, t, node)
	if err != nil {
		return nil, err
	}
	call := &toolCall{in, []string{t.program}}
	sockets := path.Dir(configMap.Data["OVN_MULTINET_OVS_SOCKET"])
	switch {
	case t.port != "":
		list, err := k.members(ctx)
		if err != nil {
			return nil, err
		}
		const pki = "/etc/ovn-multinet/pki/"
		call.command = append(call.command, "--db="+strings.Join(list.Endpoints(t.port), ","),
			"--private-key="+pki+"tls.key", "--certificate="+pki+"tls.crt", "--ca-cert="+pki+"ca.crt")
		if t.name != "trace" { // which has no such option
			call.command = append(call.command, toolTimeout)
		}
	case t.name == "vsctl":
		call.command = append(call.command, "--db=unix:"+sockets+"/db.sock", toolTimeout)
	case t.name == "appctl" && daemon == ovnControllerDaemon:
		call.in.container = "controller"
		call.command = append(call.command, toolTimeout, "--target=/run/ovn/ovn-controller.ctl")
	case t.name == "appctl" && daemon == vswitchdDaemon:
		call.command = append(call.command, toolTimeout, "--target="+sockets+"/ovs-vswitchd.ctl")
	case t.name == "appctl":
		return nil, fmt.Errorf("--daemon: %q is neither %s nor %s", daemon, vswitchdDaemon, ovnControllerDaemon)
	default:
		call.command = append(call.command, toolTimeout)
	}
	return call, nil
}

var errOtherOVN = errors.New("the chart does not run OVN here")

// ofOwnOVN returns the settings of an installation whose chart runs OVN. next is what to do where it does not.
func (k *cluster) ofOwnOVN(ctx context.Context, next string) (*corev1.ConfigMap, error) {
	configMap, err := k.core.CoreV1().ConfigMaps(installed).Get(ctx, installed, metav1.GetOptions{})
	if err == nil && configMap.Data["OVN_MULTINET_NB_MEMBERS"] == "" {
		err = fmt.Errorf("%w: %s", errOtherOVN, next)
	}
	return configMap, err
}

// podOfTool returns a pod that runs what the tool speaks to.
func (k *cluster) podOfTool(ctx context.Context, t tool, node string) (target, error) {
	options := metav1.ListOptions{LabelSelector: t.label}
	where := "of OVN's databases is ready"
	if node != "" {
		options.FieldSelector = fields.OneTermEqualSelector("spec.nodeName", node).String()
		where = fmt.Sprintf("with %s runs on node %q", t.label, node)
	}
	pods, err := k.core.CoreV1().Pods(installed).List(ctx, options)
	if err != nil {
		return target{}, execRights(err)
	}
	for i := range pods.Items {
		p := &pods.Items[i]
		// A node's pod may be what is to be mended, so it need not be ready.
		if p.DeletionTimestamp == nil && (isReady(p) || node != "" && p.Status.Phase == corev1.PodRunning) {
			return target{p.Spec.NodeName, p.Name, t.container}, nil
		}
	}
	return target{}, fmt.Errorf("no pod %s: kubectl -n %s get pods -o wide; kubectl multinet check", where, installed)
}

// members returns the nodes with OVN's databases.
func (k *cluster) members(ctx context.Context) (members.List, error) {
	configMap, err := k.core.CoreV1().ConfigMaps(installed).Get(ctx, members.ConfigMapName, metav1.GetOptions{})
	if err != nil {
		return members.List{}, err
	}
	list, err := members.Parse(configMap.Data[members.ListKey])
	if err == nil && len(list.Members) == 0 {
		err = errors.New("the controller has not chosen the nodes with OVN's databases yet: kubectl multinet check")
	}
	return list, err
}

// runTool runs a tool. Its exit code is that of this program.
func (k *cluster) runTool(ctx context.Context, call *toolCall, out, complaint io.Writer) error {
	err := execute(ctx, k.config, k.core, call.in, call.command, nil, out, complaint)
	if code, ok := errors.AsType[exec.CodeExitError](err); ok {
		return &program.Exit{Code: code.Code}
	}
	if apierrors.IsForbidden(err) {
		return execRights(err)
	}
	return err
}
