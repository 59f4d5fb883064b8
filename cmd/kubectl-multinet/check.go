package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"time"

	nadclient "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/client/clientset/versioned"
	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/ovn-multinet/ovn-multinet/internal/program"
	"github.com/ovn-multinet/ovn-multinet/kubectl/check"
	"github.com/ovn-multinet/ovn-multinet/kubectl/show"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/view"
	"github.com/ovn-multinet/ovn-multinet/source"
)

// checkOptions are the options of the command check.
type checkOptions struct {
	clients clientOptions
	nodes   bool
	image   string
	values  []string
	subnets []string
	output  string
	timeout time.Duration
}

func checkCommand() *cobra.Command {
	var o checkOptions
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Check what a cluster lacks for ovn-multinet, or what an installation lacks",
		Long: `Check what a cluster lacks for ovn-multinet, before or after its installation. Each line has a level, the name
of the check, the cause, and what to do. docs/install.md explains each check.

Without --nodes the command only reads from the API server. With --nodes it also runs a pod on each node for a moment,
in a namespace of its own, which it deletes. The pod mounts the node's root folder read-only, and has no capability and
no token. It reads the CNI configuration, kernel modules, ports and Open vSwitch, and connects to the endpoints of OVN's
Northbound database.

The exit code is 0 without errors, 1 with errors, and 2 if a check could not be made.`,
		Example: "  kubectl multinet check\n  kubectl multinet check --nodes --values values.yaml\n" +
			"  kubectl multinet check --subnet 10.1.0.0/16",
		Args: func(cmd *cobra.Command, args []string) error { return cannotCheck(cobra.NoArgs(cmd, args)) },
		RunE: func(cmd *cobra.Command, _ []string) error {
			findings, err := o.run(cmd.Context())
			if err != nil && findings == nil {
				return cannotCheck(err)
			}
			write := show.Findings
			if o.output == "json" {
				write = func(w io.Writer, all []check.Finding) error { return show.JSON(w, all) }
			}
			if err := errors.Join(err, write(cmd.OutOrStdout(), findings)); err != nil {
				return cannotCheck(err)
			}
			if code := check.ExitCode(findings); code != check.ExitOK {
				return &program.Exit{Code: code}
			}
			return nil
		},
	}
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return cannotCheck(err) })
	flags := cmd.Flags()
	o.clients.clusterFlags(flags)
	flags.BoolVar(&o.nodes, "nodes", false, "also inspect each node, by a pod that runs there for a moment")
	flags.StringVar(&o.image, "image", "",
		"with --nodes: the plugin's image; empty: the installed one, or images.plugin of --values")
	flags.StringArrayVarP(&o.values, "values", "f", nil,
		"file with values for the chart, as for helm install; empty: what is installed")
	flags.StringArrayVar(&o.subnets, "subnet", nil, "subnet of a planned network")
	flags.StringVarP(&o.output, "output", "o", "table", "table or json")
	flags.DurationVar(&o.timeout, "timeout", 60*time.Second, "how long to wait for the cluster, and for each node")
	return cmd
}

// cannotCheck makes the exit code say that no check was made.
func cannotCheck(err error) error {
	if err == nil {
		return nil
	}
	return &program.Exit{Code: check.ExitUnread, Err: err}
}

func (o *checkOptions) validate() error {
	switch {
	case o.output != "table" && o.output != "json":
		return fmt.Errorf("--output: %q is neither table nor json", o.output)
	case o.image != "" && !o.nodes:
		return errors.New("--image is for --nodes: give both")
	}
	return nil
}

// run makes the checks. An error with findings says that the pods of the inspection are not gone.
func (o *checkOptions) run(ctx context.Context) ([]check.Finding, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	config, _, err := o.clients.load()
	if err != nil {
		return nil, err
	}
	config.QPS, config.Burst = 50, 100 // each pod of an inspection is polled
	core, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	nads, err := nadclient.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	reading, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	cluster, err := check.Read(reading, core, nads)
	if err != nil {
		return nil, err
	}
	plan, err := check.ReadPlan(cluster, o.values, o.subnets)
	if err != nil {
		return nil, err
	}
	if o.image != "" {
		plan.Image = o.image
	}
	findings := slices.Concat(cluster.Check(plan), cluster.AskPrograms(reading, execOn(config, core)))
	if cluster.Installed() {
		kube, err := source.NewKube(core, nads, "", source.Changes{}, slog.New(slog.DiscardHandler))
		if err != nil {
			return nil, err
		}
		findings = append(findings, check.CheckObjects(kube.AllEntries(reading))...)
		findings = append(findings, cluster.CheckTunnelKeys(tunnelKeys(reading, config, core))...)
	}
	if !o.nodes {
		return check.Sort(findings), nil
	}
	more, err := o.inspect(ctx, core, cluster, plan)
	if more == nil && err != nil {
		return nil, err
	}
	return check.Sort(append(findings, more...)), err
}

func (o *checkOptions) inspect(
	ctx context.Context, core kubernetes.Interface, cluster *check.Cluster, plan check.Plan,
) ([]check.Finding, error) {
	nodes, findings := cluster.Inspectable()
	inspector := check.Inspector{Core: core, Plan: plan, Timeout: o.timeout}
	facts, failed, err := inspector.Inspect(ctx, nodes)
	if facts == nil {
		return nil, err
	}
	return slices.Concat(findings, check.Failed(failed), cluster.CheckNodes(plan, facts)), err
}

// tunnelKeys reads from NB how many tunnel keys OVN has. Without an agent that is ready, another check says so.
func tunnelKeys(ctx context.Context, config *rest.Config, core kubernetes.Interface) (int, error) {
	db, err := (&cluster{config, core}).openNB(ctx)
	if errors.Is(err, errNoAgent) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer db.Close()
	return view.TunnelKeys(ctx, db)
}

// execOn returns a function that runs a command in a container of a pod of ovn-multinet.
func execOn(config *rest.Config, core kubernetes.Interface) check.Exec {
	return func(ctx context.Context, pod, container string, command ...string) (string, error) {
		var out bytes.Buffer
		err := execIn(ctx, config, core, target{"of pod " + pod, pod, container}, command, nil, &out)
		return out.String(), err
	}
}
