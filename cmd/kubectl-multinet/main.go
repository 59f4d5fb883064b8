// Command kubectl-multinet checks a cluster, shows the networks and cleans up nodes for operators; kubectl runs it as
// `kubectl multinet`.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/internal/daemon"
	"github.com/ovn-multinet/ovn-multinet/internal/program"
	"github.com/ovn-multinet/ovn-multinet/internal/show"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/view"
	"github.com/ovn-multinet/ovn-multinet/source"
)

func main() { os.Exit(run()) }

func run() int {
	root := &cobra.Command{
		Use:         "kubectl-multinet",
		Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl multinet"},
		Short:       "Check a cluster, show ovn-multinet's networks, and clean up after stale sandboxes on a node.",
		Long: `Check a cluster, show ovn-multinet's networks, and clean up after stale sandboxes on a node.

Without --nb-endpoints, the ConfigMap ovn-multinet has the endpoints of OVN's Northbound database, and the Secret
ovn-multinet-nb-controller or ovn-multinet-nb has the certificates. If the chart runs OVN, the ConfigMap
ovn-multinet-ovn has the endpoints, and the command signs a certificate for itself by the Secret ovn-multinet-ca. All
are in the namespace ovn-multinet.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.AddCommand(checkCommand(), networkCommand(), forgetCommand(), gcCommand())
	return program.Main(root)
}

// options are the options of the network commands.
type options struct {
	clients   clientOptions
	manifests string
	nb        conf.NB
	output    string
	timeout   time.Duration
	// temporary is a folder with the certificates of the cluster's Secret. The NB client reads the files at each
	// handshake.
	temporary string
}

func networkCommand() *cobra.Command {
	var o options
	network := &cobra.Command{
		Use: "network", Aliases: []string{"networks", "net"}, Short: "List the networks, or show one", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	flags := network.PersistentFlags()
	o.clients.flags(flags)
	flags.StringVar(&o.manifests, "manifests", "",
		"folder with YAML manifests of Pods and NetworkAttachmentDefinitions, instead of a cluster")
	daemon.NBFlags(flags, &o.nb)
	flags.StringVarP(&o.output, "output", "o", "table", "table or json")
	flags.DurationVar(&o.timeout, "timeout", 10*time.Second, "how long to wait for the cluster and for the database")
	network.AddCommand(
		&cobra.Command{
			Use: "list", Aliases: []string{"ls"}, Short: "List all networks", Args: cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				list, _, err := o.networks(cmd.Context())
				if err != nil {
					return err
				}
				if o.output == "json" {
					return show.JSON(cmd.OutOrStdout(), list)
				}
				return show.List(cmd.OutOrStdout(), list)
			},
		},
		&cobra.Command{
			Use: "show NAME", Short: "Show one network with its ports", Args: cobra.ExactArgs(1),
			Example: "  kubectl multinet network show blue -n shop\n  kubectl multinet network show shop/blue",
			RunE: func(cmd *cobra.Command, args []string) error {
				list, namespace, err := o.networks(cmd.Context())
				if err != nil {
					return err
				}
				n := show.Find(list, namespace, args[0])
				if n == nil {
					return fmt.Errorf("network %q is not found, neither in namespace %s nor by its whole name: "+
						"kubectl multinet network list", args[0], namespace)
				}
				if o.output == "json" {
					return show.JSON(cmd.OutOrStdout(), n)
				}
				return show.Details(cmd.OutOrStdout(), n)
			},
		},
	)
	return network
}

// networks returns all networks, and the namespace for names without a namespace.
func (o *options) networks(ctx context.Context) (list []show.Network, namespace string, err error) {
	if o.output != "table" && o.output != "json" {
		return nil, "", fmt.Errorf("--output: %q is neither table nor json", o.output)
	}
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	defer func() { _ = os.RemoveAll(o.temporary) }() // deletes nothing if it is ""
	quiet := slog.New(slog.DiscardHandler)
	var nads []*netmodel.NAD
	namespace = o.clients.namespace
	if o.manifests != "" {
		src, err := source.NewManifests(o.manifests, source.Changes{}, quiet)
		if err != nil {
			return nil, "", err
		}
		if nads, err = src.NADs(ctx); err != nil {
			return nil, "", err
		}
	} else if nads, namespace, err = o.fromCluster(ctx, quiet); err != nil {
		return nil, "", err
	}
	if namespace == "" {
		namespace = "default"
	}
	if err := o.nb.Validate(); err != nil {
		return nil, "", err
	}
	db, err := daemon.OpenNB(o.nb, nil, quiet)
	if err != nil {
		return nil, "", err
	}
	defer db.Close()
	if err := db.WaitConnected(ctx); err != nil {
		return nil, "", fmt.Errorf("%w (%v)", err, o.nb.Endpoints)
	}
	views, err := view.Read(ctx, db)
	if err != nil {
		return nil, "", err
	}
	return show.Networks(nads, views), namespace, nil
}
