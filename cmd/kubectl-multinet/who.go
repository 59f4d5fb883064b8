package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/ovn-multinet/ovn-multinet/kubectl/show"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbrows"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/outside"
)

func whoCommand() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use: "who ADDRESS|MAC", Args: cobra.ExactArgs(1),
		Short: "Say who has an address or a MAC",
		Long: `Say who has an address or a MAC: pods, Services, IPAMClaims, routers and gateways, on all networks. Of an
address that nobody has it says why.`,
		Example: "  kubectl multinet who 10.1.0.7\n  kubectl multinet who 0a:58:0a:01:00:07",
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.networks(cmd.Context(), func(
				ctx context.Context, db *ovndb.DB, list []show.Network, _ string,
			) error {
				var entries []*outside.Entry
				if db != nil {
					var err error
					if entries, err = outside.New(nbrows.NewStore(db)).ListForPeople(ctx); err != nil {
						return err
					}
				}
				found, err := show.Who(list, entries, args[0])
				if err != nil {
					return err
				}
				w := cmd.OutOrStdout()
				return o.print(w, found, func() error { return show.Holders(w, found) })
			})
		},
	}
	o.flags(cmd.Flags())
	return cmd
}
