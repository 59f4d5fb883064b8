package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/ovn-multinet/ovn-multinet/kubectl/show"
	"github.com/ovn-multinet/ovn-multinet/netmodel/service"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbrows"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/outside"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/services"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/view"
)

func serviceCommand() *cobra.Command {
	var o options
	all := false
	cmd := &cobra.Command{
		Use: "service", Aliases: []string{"services", "svc"}, Args: cobra.NoArgs,
		Short: "List the Services on networks, or show one",
		Long: `List the Services on networks, or show one. What is accepted comes from OVN's Northbound database, and the
state of each Service from the cluster.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	o.flags(cmd.PersistentFlags())
	list := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Args: cobra.NoArgs, Short: "List the Services of a namespace on networks",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.services(cmd, func(ctx context.Context, db *ovndb.DB, known *knownServices, namespace string) error {
				if all {
					namespace = ""
				}
				list, err := known.read(ctx, db, namespace, "")
				if err != nil {
					return err
				}
				w := cmd.OutOrStdout()
				return o.print(w, list, func() error { return show.ServiceList(w, list) })
			})
		},
	}
	list.Flags().BoolVarP(&all, "all-namespaces", "A", false, "the Services of all namespaces")
	cmd.AddCommand(list, &cobra.Command{
		Use: "show NAME", Short: "Show one Service with its backends", Args: cobra.ExactArgs(1),
		Example: "  kubectl multinet service show web -n shop\n  kubectl multinet service show shop/web",
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.services(cmd, func(ctx context.Context, db *ovndb.DB, known *knownServices, namespace string) error {
				d, err := known.details(ctx, db, namespace, args[0])
				if err != nil {
					return err
				}
				w := cmd.OutOrStdout()
				return o.print(w, d, func() error { return show.ServicePage(w, d) })
			})
		},
	})
	return cmd
}

// serviceObjects is where Services come from.
type serviceObjects interface {
	AllServices(context.Context) ([]*service.Object, error)
}

// knownServices are the Services of a cluster or a folder.
type knownServices struct {
	objects  []*service.Object
	readable bool // false: nobody may read them
}

// services reads all Services of the cluster or the folder.
func (o *options) services(
	cmd *cobra.Command, use func(ctx context.Context, db *ovndb.DB, known *knownServices, namespace string) error,
) error {
	var known *knownServices
	return o.with(cmd.Context(), func(ctx context.Context, from objects) (err error) {
		known, err = readServices(ctx, from, cmd.ErrOrStderr())
		return err
	}, func(ctx context.Context, db *ovndb.DB, namespace string) error { return use(ctx, db, known, namespace) })
}

// readServices reads all Services. Without the right to list them, it says so, and NB alone says what there is.
func readServices(ctx context.Context, from serviceObjects, warn io.Writer) (*knownServices, error) {
	list, err := from.AllServices(ctx)
	if apierrors.IsForbidden(err) {
		_, err = fmt.Fprintf(warn, "the states are not read, and refused Services are missing: %v\n", err)
		return &knownServices{}, err
	}
	return &knownServices{list, true}, err
}

// read combines the Services of a namespace with what NB has of them. "" is any namespace, or any name.
func (k *knownServices) read(ctx context.Context, db *ovndb.DB, namespace, name string) ([]show.Service, error) {
	var objects []*service.Object
	for _, o := range k.objects {
		if (namespace == "" || o.Namespace == namespace) && (name == "" || o.Name == name) {
			objects = append(objects, o)
		}
	}
	if db == nil {
		return show.ServicesByState(objects), nil
	}
	views, err := serviceViews(ctx, services.New(nbrows.NewStore(db)), namespace, name)
	if err != nil {
		return nil, err
	}
	entries, err := outside.New(nbrows.NewStore(db)).ListForPeople(ctx)
	list := show.Services(objects, k.readable, views)
	show.SetOutside(list, entries)
	return list, err
}

// serviceViews reads what NB has of the Services of a namespace. "" is any namespace, or any name.
func serviceViews(
	ctx context.Context, rows *services.Services, namespace, name string,
) (views []*services.View, err error) {
	id := ""
	if name != "" {
		id = namespace + "/" + name
	}
	keys, err := rows.Keys(ctx, id)
	if err != nil {
		return nil, err
	}
	for _, key := range keys {
		if namespace != "" && !strings.HasPrefix(key.Service, namespace+"/") {
			continue
		}
		v, err := rows.View(ctx, key)
		if err != nil {
			return nil, err
		}
		if v != nil {
			views = append(views, v)
		}
	}
	return views, nil
}

// details reads one Service with its backends. The name is "<namespace>/<name>", or a name in the namespace.
func (k *knownServices) details(
	ctx context.Context, db *ovndb.DB, namespace, name string,
) (*show.ServiceDetails, error) {
	if of, rest, ok := strings.Cut(name, "/"); ok {
		namespace, name = of, rest
	}
	list, err := k.read(ctx, db, namespace, name)
	if err != nil {
		return nil, err
	}
	one := show.OneService(list)
	if one == nil {
		return nil, fmt.Errorf("service \"%s/%s\" is not found, or is on no network: kubectl multinet service list -A",
			namespace, name)
	}
	if db == nil {
		return one.Details(nil), nil
	}
	ports, err := view.PortsAt(ctx, db, one.Network, one.BackendAddresses())
	if err != nil {
		return nil, err
	}
	return one.Details(ports), nil
}
