// Command ovn-multinetd is the agent: one per node, it answers the plugin.
package main

import (
	"context"
	"log/slog"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/ovn-multinet/ovn-multinet/agent"
	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/internal/daemon"
	"github.com/ovn-multinet/ovn-multinet/source"
)

func main() {
	var c conf.Agent
	var keep []string
	cmd := &cobra.Command{
		Use:   "ovn-multinetd",
		Short: "The agent of ovn-multinet: gives this node's pods their ports on OVN networks.",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := c.SetKeepOnPrimary(keep); err != nil {
				return err
			}
			return run(cmd.Context(), c)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&c.NodeName, "node-name", "", "name of this node, as the pods' spec.nodeName has it")
	daemon.SourceFlags(flags, &c.Kubeconfig, &c.Manifests)
	flags.StringVar(&c.Socket, "socket", conf.DefaultAgentSocket, "socket that the plugin asks on")
	flags.StringVar(&c.StateDir, "state-dir", conf.DefaultStateDir, "folder that the plugin keeps its journal in")
	daemon.NBFlags(flags, &c.NB)
	flags.StringVar(&c.OVSSocket, "ovs-socket", "/run/openvswitch/db.sock", "socket of this node's OVS database")
	flags.StringVar(&c.Bridge, "bridge", "br-int", "OVN's integration bridge")
	flags.StringVar(&c.PodResources, "pod-resources-socket", conf.DefaultPodResources, "kubelet's socket that tells which devices it gave to a pod")
	flags.StringSliceVar(&keep, "keep-on-primary", nil, "networks of pods, services and the API server: a pod whose default route goes by another interface reaches them by the first one")
	flags.StringVar(&c.NADConfDir, "nad-conf-dir", "", "folder with CNI configurations for NetworkAttachmentDefinitions that have no spec.config; empty: none")
	flags.BoolVar(&c.Isolated, "namespace-isolation", false, "pods may use the NetworkAttachmentDefinitions of their own namespace only")
	flags.StringSliceVar(&c.Global, "global-namespaces", nil, "namespaces whose NetworkAttachmentDefinitions are for all pods, with --namespace-isolation")
	flags.BoolVar(&c.Compatible, "cni-args-for-static", false, "pass ips and mac as IP and MAC in CNI_ARGS to plugins that do not declare the capabilities, with a Warning Event")
	flags.DurationVar(&c.ReconcilePeriod, "reconcile-period", time.Minute, "time between two looks for what is left of containers that are gone; what is taken away was seen twice")
	daemon.CommonFlags(flags, &c.LogLevel, &c.MetricsAddr)
	cmd.AddCommand(forgetCommand(), gcCommand())
	os.Exit(daemon.Main(cmd))
}

func run(ctx context.Context, c conf.Agent) error {
	if err := c.Validate(); err != nil {
		return err
	}
	log := daemon.Logger(c.LogLevel)
	src, err := openSource(c, log)
	if err != nil {
		return err
	}
	db, err := daemon.OpenNB(c.NB, log)
	if err != nil {
		return err
	}
	defer db.Close()
	registry := prometheus.NewRegistry()
	a, err := agent.New(c, src, db, registry, log)
	if err != nil {
		return err
	}
	defer a.Close()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return a.Run(ctx) })
	g.Go(func() error { return daemon.Serve(ctx, c.MetricsAddr, registry) })
	return g.Wait()
}

func openSource(c conf.Agent, log *slog.Logger) (agent.Source, error) {
	if c.Manifests != "" {
		return source.NewManifests(c.Manifests, source.Changes{}, log)
	}
	core, nads, err := daemon.Kubernetes(c.Kubeconfig)
	if err != nil {
		return nil, err
	}
	return source.NewKube(core, nads, c.NodeName, source.Changes{}, log)
}
