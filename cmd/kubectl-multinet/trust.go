package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/ovnrun/authority"
)

// trustCommand has the options of the commands that end and give access to OVN.
type trustCommand struct {
	clients clientOptions
	wait    bool
	timeout time.Duration
}

func (c *trustCommand) flags(cmd *cobra.Command, wait string) {
	c.clients.clusterFlags(cmd.Flags())
	cmd.Flags().DurationVar(&c.timeout, "timeout", 15*time.Minute, "how long to wait at most")
	if wait != "" {
		cmd.Flags().BoolVar(&c.wait, "wait", false, wait)
	}
}

func (c *trustCommand) run(cmd *cobra.Command, do func(context.Context, *authorityOf) error) error {
	k, _, err := c.clients.connect()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), c.timeout)
	defer cancel()
	return do(ctx, &authorityOf{k.core, cmd.OutOrStdout()})
}

func kubeNodeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "node", Args: cobra.NoArgs, Short: "End the access of a node to OVN, or give it back",
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	var distrust, trust trustCommand
	ends := &cobra.Command{
		Use: "distrust NODE", Args: cobra.ExactArgs(1), Short: "End a node's access to OVN's databases",
		Long: `End a node's access to OVN's databases, which the chart runs: the node gets no more certificates, all other
nodes get new ones, and the former ones end, also on open connections. Pods keep running and keep their networks. This
takes about 3 minutes, and 12 minutes at the latest. Drain the node before: a controller on it has a token that root of
the node can read. You need the rights to patch nodes, and to list pods and get configmaps in the namespace
ovn-multinet.`,
		Example: "  kubectl multinet node distrust worker-1 --wait",
		RunE: func(cmd *cobra.Command, args []string) error {
			return distrust.run(cmd, func(ctx context.Context, a *authorityOf) error {
				return a.distrust(ctx, args[0], distrust.wait)
			})
		},
	}
	distrust.flags(ends, "wait until the node has no access, and say what happens")
	gives := &cobra.Command{
		Use: "trust NODE", Args: cobra.ExactArgs(1), Short: "Let a node have certificates for OVN's databases again",
		RunE: func(cmd *cobra.Command, args []string) error {
			return trust.run(cmd, func(ctx context.Context, a *authorityOf) error {
				if err := a.label(ctx, args[0], "null"); err != nil {
					return err
				}
				return a.say("node %s is trusted: it gets certificates within a minute", args[0])
			})
		},
	}
	trust.flags(gives, "")
	cmd.AddCommand(ends, gives)
	return cmd
}

func certificatesCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "certificates", Args: cobra.NoArgs, Short: "Replace the certificates of OVN's programs",
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	var c trustCommand
	rotate := &cobra.Command{
		Use: "rotate", Args: cobra.NoArgs, Short: "Replace the authority and all certificates that it has signed",
		Long: `Replace the authority of OVN's certificates, if the chart runs OVN, and all certificates that it has signed.
The former ones end, also on open connections. Pods keep running and keep their networks. You need the right to patch
the Secret ovn-multinet-ca in the namespace ovn-multinet; the command does not read the Secret.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.run(cmd, func(ctx context.Context, a *authorityOf) error { return a.rotate(ctx, c.wait) })
		},
	}
	c.flags(rotate, "wait until the former certificates have ended, and say what happens")
	cmd.AddCommand(rotate)
	return cmd
}

// authorityOf is the authority of a cluster's certificates, as an operator sees it. out gets what happens.
type authorityOf struct {
	core kubernetes.Interface
	out  io.Writer
}

func (a *authorityOf) say(format string, args ...any) error {
	_, err := fmt.Fprintf(a.out, format+"\n", args...)
	return err
}

// label sets or removes the label of a distrusted node. value is JSON.
func (a *authorityOf) label(ctx context.Context, node, value string) error {
	patch := fmt.Sprintf(`{"metadata":{"labels":{%q:%s}}}`, conf.DistrustedLabel, value)
	_, err := a.core.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	return err
}

func (a *authorityOf) distrust(ctx context.Context, node string, wait bool) error {
	if err := a.label(ctx, node, `""`); err != nil {
		return err
	}
	if err := a.say("node %s is distrusted: it gets no more certificates", node); err != nil {
		return err
	}
	pods, err := a.core.CoreV1().Pods(installed).List(ctx, metav1.ListOptions{
		LabelSelector: controllerLabel, FieldSelector: fields.OneTermEqualSelector("spec.nodeName", node).String()})
	if err != nil {
		return err
	}
	for i := range pods.Items {
		if err := a.say("warning: root of the node can read the token of the controller %s: kubectl drain %s "+
			"--ignore-daemonsets --delete-emptydir-data", pods.Items[i].Name, node); err != nil {
			return err
		}
	}
	state, err := a.state(ctx)
	if apierrors.IsNotFound(err) {
		return errors.New("the chart does not run OVN here, so the access of the node does not end by itself: replace its " +
			"certificate for NB and SB, or their authority")
	}
	if err != nil {
		return err
	}
	if !wait {
		return a.say("its access ends in about 3 minutes, after 12 at the latest: kubectl multinet check")
	}
	return a.follow(ctx, state, func(state map[string]string) bool {
		return slices.Contains(strings.Fields(state[authority.DistrustedKey]), node)
	}, "node "+node+" has no access to OVN")
}

func (a *authorityOf) rotate(ctx context.Context, wait bool) error {
	state, err := a.state(ctx)
	if apierrors.IsNotFound(err) {
		return errors.New("the chart does not run OVN here: replace the certificates where they come from")
	}
	if err != nil {
		return err
	}
	// The answer has the metadata alone: no key leaves the cluster.
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:""}}}`, authority.RotateAnnotation)
	err = a.core.CoreV1().RESTClient().Patch(types.MergePatchType).Namespace(installed).Resource("secrets").
		Name(authority.SecretName).SetHeader("Accept", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1").
		Body([]byte(patch)).Do(ctx).Error()
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("%w: if another signer signs (ovn.signerName), replace its authority", err)
	}
	if err != nil {
		return err
	}
	if err := a.say("the rotation begins within a minute"); err != nil || !wait {
		return err
	}
	began := state[authority.RotationKey] != ""
	return a.follow(ctx, state, func(state map[string]string) bool {
		runs := state[authority.RotationKey] != ""
		began = began || runs
		return began && !runs
	}, "all certificates are replaced, and the former ones have ended")
}

// state reads what the controller says of its authority; NotFound: it has none.
func (a *authorityOf) state(ctx context.Context) (map[string]string, error) {
	configMap, err := a.core.CoreV1().ConfigMaps(installed).Get(ctx, authority.ConfigMapName, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return configMap.Data, nil
}

// followEvery is the time between two reads of the state.
const followEvery = time.Second

// follow says what happens until the state has ended what was asked for.
func (a *authorityOf) follow(
	ctx context.Context, state map[string]string, ended func(map[string]string) bool, end string,
) error {
	for said := ""; ; {
		if ended(state) {
			return a.say("%s", end)
		}
		if now := state[authority.RotationKey]; now != "" && now != said {
			said = now
			if err := a.say("all certificates are replaced: %s", conf.OneLine(now, conf.MaxReason)); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return errors.New("it has not ended yet: kubectl multinet check, and the log of the controller, say why")
		case <-time.After(followEvery):
		}
		next, err := a.state(ctx)
		if err != nil && ctx.Err() == nil {
			if err := a.say("waiting for the API server: %s", conf.OneLine(err.Error(), conf.MaxReason)); err != nil {
				return err
			}
			continue
		}
		if err == nil {
			state = next
		}
	}
}

// controllerLabel is the label of the controllers' pods.
const controllerLabel = "app=ovn-multinet-controller"
