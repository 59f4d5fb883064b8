package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/ovn-multinet/ovn-multinet/internal/program"
	"github.com/ovn-multinet/ovn-multinet/kubectl/show"
	"github.com/ovn-multinet/ovn-multinet/netmodel/policy"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbrows"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/policies"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/services"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/view"
)

func policyCommand() *cobra.Command {
	var o options
	all := false
	cmd := &cobra.Command{
		Use: "policy", Aliases: []string{"policies"}, Short: "List the network policies, or show one", Args: cobra.NoArgs,
		Long: `List the MultiNetworkPolicies and ClusterNetworkPolicies, or show one. What is accepted comes from OVN's
Northbound database, and the state of each policy from the cluster.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	o.flags(cmd.PersistentFlags())
	list := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Args: cobra.NoArgs,
		Short: "List the policies of a namespace and those of the cluster, on each network",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.policies(cmd, func(_ context.Context, _ *ovndb.DB, list []show.Policy, namespace string) error {
				if !all {
					list = show.OfNamespace(list, namespace)
				}
				w := cmd.OutOrStdout()
				return o.print(w, list, func() error { return show.PolicyList(w, list) })
			})
		},
	}
	list.Flags().BoolVarP(&all, "all-namespaces", "A", false, "the policies of all namespaces")
	cmd.AddCommand(list, &cobra.Command{
		Use: "show NAME", Short: "Show one policy with its rules and the pods that they name", Args: cobra.ExactArgs(1),
		Long: `Show one policy with its rules and the pods that they name. NAME is <namespace>/<name>, a MultiNetworkPolicy of
the namespace, or a ClusterNetworkPolicy. /<name> is a ClusterNetworkPolicy alone.`,
		Example: "  kubectl multinet policy show db -n shop\n  kubectl multinet policy show shop/db",
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.policies(cmd, func(ctx context.Context, db *ovndb.DB, list []show.Policy, namespace string) error {
				var networks []view.Network
				if db != nil {
					var err error
					if networks, err = view.Read(ctx, db); err != nil {
						return err
					}
				}
				p := show.FindPolicy(list, networks, namespace, args[0])
				if p == nil {
					return fmt.Errorf("policy %q is not found, neither in namespace %s nor by its whole name: "+
						"kubectl multinet policy list -A", args[0], namespace)
				}
				w := cmd.OutOrStdout()
				return o.print(w, p, func() error { return show.PolicyPage(w, p) })
			})
		},
	})
	return cmd
}

// policies reads all policies. Without the right to list the objects, it says so and goes by NB alone.
func (o *options) policies(
	cmd *cobra.Command, use func(ctx context.Context, db *ovndb.DB, list []show.Policy, namespace string) error,
) error {
	var known []*policy.Object
	readable := true
	return o.with(cmd.Context(), func(ctx context.Context, from objects) (err error) {
		known, err = from.AllPolicies(ctx)
		if apierrors.IsForbidden(err) {
			readable = false
			_, err = fmt.Fprintf(cmd.ErrOrStderr(), "the states are not read, and refused policies are missing: %v\n", err)
		}
		return err
	}, func(ctx context.Context, db *ovndb.DB, namespace string) error {
		if db == nil {
			return use(ctx, nil, show.PoliciesByState(known), namespace)
		}
		rows := policies.New(nbrows.NewStore(db))
		scopes, err := rows.Scopes(ctx)
		if err != nil {
			return err
		}
		views, err := viewsOf(ctx, rows, scopes)
		if err != nil {
			return err
		}
		return use(ctx, db, show.Policies(known, readable, views), namespace)
	})
}

func viewsOf(ctx context.Context, rows *policies.Policies, scopes []policies.Scope) (all []*policies.View, err error) {
	for _, s := range scopes {
		v, err := rows.View(ctx, s)
		if err != nil {
			return nil, err
		}
		all = append(all, v)
	}
	return all, nil
}

// Exit codes of the command allowed.
const (
	exitDenied   = 1
	exitNoAnswer = 2
)

func allowedCommand() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "allowed FROM[:IF] TO[:IF] PROTOCOL/PORT",
		Short: "Say whether the network policies allow a connection, and why",
		Long: `Say whether the network policies allow a connection, and which rule of which policy decides. The answer is for
the first packet: replies always pass. It comes from what OVN's Northbound database has. It does not include a change of
labels or policies that the controller has not seen yet, and it does not say whether the network can carry the packet.

FROM and TO are pods, as <namespace>/<name> or <name>, and one of them may be the address of a machine outside. Of a
Service, name a pod behind it with its port, because policies see this pod and not the virtual address. IF is the name
of an interface, of a network or of a NetworkAttachmentDefinition; without it, the pods must have one network or router
in common. PROTOCOL is tcp, udp or sctp.

The exit code is 0 if the connection is allowed for each pair of addresses, 1 if it is denied for one, and 2 if there is
no answer.`,
		Example: "  kubectl multinet allowed shop/web shop/db tcp/5432\n" +
			"  kubectl multinet allowed -n shop web:net2 db:net1 udp/53\n" +
			"  kubectl multinet allowed 192.0.2.7 shop/web tcp/80",
		Args: func(cmd *cobra.Command, args []string) error { return noAnswer(cobra.ExactArgs(3)(cmd, args)) },
		RunE: func(cmd *cobra.Command, args []string) error {
			answer, err := o.allowed(cmd.Context(), args)
			if err != nil {
				return noAnswer(err)
			}
			w := cmd.OutOrStdout()
			if err := o.print(w, answer, func() error { return show.AnswerText(w, answer) }); err != nil {
				return noAnswer(err)
			}
			if !answer.Allowed {
				return &program.Exit{Code: exitDenied}
			}
			return nil
		},
	}
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return noAnswer(err) })
	o.flags(cmd.Flags())
	return cmd
}

// errNeedsNB says that states are not enough.
var errNeedsNB = errors.New("the answer needs OVN's Northbound database: ask an operator of the cluster")

// noAnswer makes the exit code say that there is no answer.
func noAnswer(err error) error {
	if err == nil {
		return nil
	}
	return &program.Exit{Code: exitNoAnswer, Err: err}
}

func (o *options) allowed(ctx context.Context, args []string) (answer *show.Answer, err error) {
	err = o.with(ctx, func(context.Context, objects) error { return nil },
		func(ctx context.Context, db *ovndb.DB, namespace string) error {
			if db == nil {
				return errNeedsNB
			}
			networks, err := view.Read(ctx, db)
			if err != nil {
				return err
			}
			question, err := show.Ask(networks, namespace, args[0], args[1], args[2])
			if err != nil {
				return err
			}
			store := nbrows.NewStore(db)
			claimed, err := services.New(store).Claimed(ctx)
			if err := cmp.Or(err, question.RefuseVirtual(claimed)); err != nil {
				return err
			}
			views, err := viewsOf(ctx, policies.New(store), question.Scopes())
			if err != nil {
				return err
			}
			answer, err = question.Decide(views)
			return err
		})
	return answer, err
}
