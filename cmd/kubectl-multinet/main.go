// Command kubectl-multinet checks a cluster, shows the networks and cleans up nodes for operators; kubectl runs it as
// `kubectl multinet`.
package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/klog/v2"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/internal/daemon"
	"github.com/ovn-multinet/ovn-multinet/internal/program"
	"github.com/ovn-multinet/ovn-multinet/kubectl/show"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/netmodel/policy"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbrows"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/outside"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/services"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/view"
	"github.com/ovn-multinet/ovn-multinet/source"
)

func main() { os.Exit(run()) }

func run() int {
	// client-go logs what its own goroutines see when a connection ends. What matters is in the errors of the commands.
	klog.SetSlogLogger(slog.New(slog.DiscardHandler))
	root := &cobra.Command{
		Use:         "kubectl-multinet",
		Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl multinet"},
		Short:       "Check a cluster, show ovn-multinet's networks, and clean up after stale sandboxes on a node.",
		Long: `Check a cluster, show ovn-multinet's networks, and clean up after stale sandboxes on a node.

The commands reach only the API server. Those that read OVN's Northbound database run "ovn-multinetd nb" in the pod of
an agent, with the right to list pods and to create pods/exec in the namespace ovn-multinet. Without this right they
show what annotations and states say of the objects of one namespace. Without a cluster, --nb-endpoints says where the
database is.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.AddCommand(
		statusCommand(), checkCommand(), networkCommand(), podCommand(), whoCommand(), policyCommand(), whyCommand(),
		allowedCommand(), serviceCommand(),
		forgetCommand(), gcCommand(), kubeNodeCommand(), certificatesCommand(), limitsCommand(), explainCommand(),
		lintCommand(), convertCommand(), objectsCommand(), backupCommand(), restoreCommand(), sysdumpCommand())
	for _, t := range tools {
		root.AddCommand(t.command())
	}
	return program.Main(root)
}

// options are the options of the commands that read NB.
type options struct {
	clients   clientOptions
	manifests string
	nb        conf.NB
	output    string
	timeout   time.Duration
	notes     io.Writer // for what the output does not say; nil: standard error
	states    *cluster  // not nil: the client may not read NB, and only states are shown
}

func (o *options) flags(flags *pflag.FlagSet) {
	o.clients.flags(flags)
	flags.StringVar(&o.manifests, "manifests", "",
		"folder with YAML manifests of Pods, NetworkAttachmentDefinitions, policies and Services, instead of a cluster")
	daemon.NBFlags(flags, &o.nb)
	flags.StringVarP(&o.output, "output", "o", "table", "table or json")
	flags.DurationVar(&o.timeout, "timeout", 10*time.Second, "how long to wait for the cluster and for the database")
}

// print writes a value as JSON, or by the function for people.
func (o *options) print(w io.Writer, v any, text func() error) error {
	if o.output == "json" {
		return show.JSON(w, v)
	}
	return text()
}

// objects is where NADs, policies and Services come from: a cluster or a folder.
type objects interface {
	NADs(context.Context) ([]*netmodel.NAD, error)
	AllPolicies(context.Context) ([]*policy.Object, error)
	serviceObjects
}

// with runs a command. read reads what is not in NB, and then use gets the connection to NB; nil: the client may not
// read NB, and objects of one namespace were read. namespace is the namespace for names without a namespace.
func (o *options) with(
	ctx context.Context, read func(context.Context, objects) error,
	use func(ctx context.Context, db *ovndb.DB, namespace string) error,
) error {
	if o.output != "table" && o.output != "json" {
		return fmt.Errorf("--output: %q is neither table nor json", o.output)
	}
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	quiet := slog.New(slog.DiscardHandler)
	var from objects
	var k *cluster
	namespace, err := o.clients.namespace, error(nil)
	if o.manifests != "" {
		from, err = source.NewManifests(o.manifests, source.Changes{}, quiet)
	} else {
		from, k, namespace, err = o.cluster(ctx, quiet)
	}
	if err != nil {
		return err
	}
	if err := read(ctx, from); err != nil {
		return err
	}
	if o.states != nil {
		return use(ctx, nil, namespace)
	}
	db, err := o.openNB(ctx, k, quiet)
	if err != nil {
		return err
	}
	defer db.Close()
	return use(ctx, db, cmp.Or(namespace, "default"))
}

// openNB connects to NB: at --nb-endpoints, or by an agent of the cluster.
func (o *options) openNB(ctx context.Context, k *cluster, log *slog.Logger) (*ovndb.DB, error) {
	if k != nil && len(o.nb.Endpoints) == 0 {
		return k.openNB(ctx)
	}
	if err := o.nb.Validate(); err != nil {
		return nil, err
	}
	db, err := daemon.OpenNB(o.nb, nil, log)
	if err != nil {
		return nil, err
	}
	if err := db.WaitConnected(ctx); err != nil {
		db.Close()
		return nil, fmt.Errorf("%w (%v)", err, o.nb.Endpoints)
	}
	return db, nil
}

func networkCommand() *cobra.Command {
	var o options
	network := &cobra.Command{
		Use: "network", Aliases: []string{"networks", "net"}, Short: "List the networks, or show one", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	o.flags(network.PersistentFlags())
	network.AddCommand(
		&cobra.Command{
			Use: "list", Aliases: []string{"ls"}, Short: "List all networks", Args: cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				return o.networks(cmd.Context(), func(_ context.Context, _ *ovndb.DB, list []show.Network, _ string) error {
					return o.print(cmd.OutOrStdout(), list, func() error { return show.List(cmd.OutOrStdout(), list) })
				})
			},
		},
		&cobra.Command{
			Use: "show NAME", Short: "Show one network with its virtual addresses and ports", Args: cobra.ExactArgs(1),
			Example: "  kubectl multinet network show blue -n shop\n  kubectl multinet network show shop/blue",
			RunE: func(cmd *cobra.Command, args []string) error {
				return o.networks(cmd.Context(), func(
					ctx context.Context, db *ovndb.DB, list []show.Network, namespace string,
				) error {
					n := show.Find(list, namespace, args[0])
					if n == nil {
						return fmt.Errorf("network %q is not found, neither in namespace %s nor by its whole name: "+
							"kubectl multinet network list", args[0], namespace)
					}
					return o.print(cmd.OutOrStdout(), n, func() error { return show.Details(cmd.OutOrStdout(), n) })
				})
			},
		},
	)
	return network
}

// networks reads all networks.
func (o *options) networks(
	ctx context.Context, use func(ctx context.Context, db *ovndb.DB, list []show.Network, namespace string) error,
) error {
	var nads []*netmodel.NAD
	return o.with(ctx, func(ctx context.Context, from objects) (err error) {
		nads, err = from.NADs(ctx)
		return err
	}, func(ctx context.Context, db *ovndb.DB, namespace string) error {
		if db == nil {
			pods, err := o.states.podStatuses(ctx, namespace)
			if err != nil {
				return err
			}
			return use(ctx, nil, show.NetworksByState(nads, pods), namespace)
		}
		views, err := view.Read(ctx, db)
		if err != nil {
			return err
		}
		claimed, err := services.New(nbrows.NewStore(db)).Claimed(ctx)
		if err != nil {
			return err
		}
		users, err := outsideUsers(ctx, db)
		if err != nil {
			return err
		}
		list := show.Networks(nads, views)
		for i := range list {
			list[i].SetVirtualAddresses(claimed[list[i].Name])
			list[i].SetOutside(users[list[i].Router])
		}
		return use(ctx, db, list, namespace)
	})
}

// outsideUsers reads the pods with outside addresses, by router.
func outsideUsers(ctx context.Context, db *ovndb.DB) (map[string]map[outside.User]*outside.Entry, error) {
	entries, err := outside.New(nbrows.NewStore(db)).ListForPeople(ctx)
	users := map[string]map[outside.User]*outside.Entry{}
	for _, e := range entries {
		if users[e.Router] == nil {
			users[e.Router] = map[outside.User]*outside.Entry{}
		}
		users[e.Router][e.User] = e
	}
	return users, err
}
