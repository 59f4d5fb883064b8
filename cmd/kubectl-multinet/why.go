package main

import (
	"context"
	"net/netip"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ovn-multinet/ovn-multinet/internal/program"
	"github.com/ovn-multinet/ovn-multinet/kubectl/show"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbrows"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/outside"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/policies"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/services"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/view"
)

func whyCommand() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "why POD[:IF] DESTINATION PROTOCOL/PORT",
		Short: "Say whether a pod reaches a destination on its networks, and why",
		Long: `Say whether a pod reaches a destination on its networks, and why: ports that are not bound, the network, router
or gateway between both, the routes of both pods, the Service and its backends, and network policies. The first line
has the answer with its cause. The answer is what the objects and OVN's Northbound database say; no packet is sent.

POD is <namespace>/<name> or <name>, and IF the name of an interface, of a network or of a NetworkAttachmentDefinition.
DESTINATION is such a pod, or an address: of a pod, of a Service on a network, or outside. PROTOCOL is tcp, udp or sctp.

The exit code is 0 if the pod reaches each address of the destination and each backend, 1 if not, and 2 if there is no
answer.`,
		Example: "  kubectl multinet why shop/web shop/db tcp/5432\n" +
			"  kubectl multinet why -n shop web:net2 10.1.0.100 tcp/80\n" +
			"  kubectl multinet why shop/web 192.0.2.7 udp/53",
		Args: func(cmd *cobra.Command, args []string) error { return noAnswer(cobra.ExactArgs(3)(cmd, args)) },
		RunE: func(cmd *cobra.Command, args []string) error {
			reason, err := o.why(cmd.Context(), args[0], args[1], args[2])
			if err != nil {
				return noAnswer(err)
			}
			w := cmd.OutOrStdout()
			if err := o.print(w, reason, func() error { return show.WhyText(w, reason) }); err != nil {
				return noAnswer(err)
			}
			if !reason.Reaches {
				return &program.Exit{Code: exitDenied}
			}
			return nil
		},
	}
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return noAnswer(err) })
	o.flags(cmd.Flags())
	return cmd
}

func (o *options) why(ctx context.Context, from, to, what string) (reason *show.Reason, err error) {
	err = o.with(ctx, func(context.Context, objects) error { return nil },
		func(ctx context.Context, db *ovndb.DB, namespace string) error {
			if db == nil {
				return errNeedsNB
			}
			s, err := o.whySources(ctx, db, to)
			if err == nil {
				reason, err = s.Why(namespace, from, to, what)
			}
			return err
		})
	return reason, err
}

func (o *options) whySources(ctx context.Context, db *ovndb.DB, to string) (*show.WhySources, error) {
	store := nbrows.NewStore(db)
	networks, err := view.Read(ctx, db)
	if err != nil {
		return nil, err
	}
	s := &show.WhySources{
		Networks: networks,
		Policies: func(scopes []policies.Scope) ([]*policies.View, error) {
			return viewsOf(ctx, policies.New(store), scopes)
		},
		Pod: func(name string) (*show.PodStatus, error) { return o.annotations(ctx, name) },
	}
	address, err := netip.ParseAddr(to)
	if err != nil {
		return s, nil
	}
	if s.Outside, err = outside.New(store).ListForPeople(ctx); err != nil {
		return nil, err
	}
	rows := services.New(store)
	claimed, err := rows.Claimed(ctx)
	if err != nil {
		return nil, err
	}
	for _, list := range claimed {
		for _, c := range list {
			if c.Address != address.Unmap() {
				continue
			}
			namespace, name, _ := strings.Cut(c.Service, "/")
			views, err := serviceViews(ctx, rows, namespace, name)
			if err != nil {
				return nil, err
			}
			s.Services = append(s.Services, views...)
		}
	}
	return s, nil
}

// annotations reads what the annotations of a pod "<namespace>/<name>" say. A folder of manifests does not know it.
func (o *options) annotations(ctx context.Context, pod string) (*show.PodStatus, error) {
	if o.manifests != "" {
		return nil, nil
	}
	k, _, err := o.clients.connect()
	if err != nil {
		return nil, err
	}
	namespace, name, _ := strings.Cut(pod, "/")
	var s show.PodSources
	err = k.podStatus(ctx, namespace, name, &s)
	return s.Status, err
}
