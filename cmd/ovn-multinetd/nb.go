package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/internal/daemon"
)

// nbCommand lets a client that reaches only the API server read NB, with the agent's certificate.
func nbCommand() *cobra.Command {
	var c conf.NB
	cmd := &cobra.Command{
		Use: "nb", Args: cobra.NoArgs,
		Short: "Pass a client's reads on stdin to OVN's Northbound database, and the answers to stdout",
		Long: `Pass a client's reads on stdin to OVN's Northbound database, and the answers to stdout. The messages are
those of OVSDB (RFC 7047, section 4). The first line of the output is the endpoint of the database. Other requests than
reads end the command. "kubectl multinet" uses it in the pod of an agent.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := c.Validate(); err != nil {
				return err
			}
			return daemon.RelayNB(cmd.Context(), c, os.Stdin, cmd.OutOrStdout())
		},
	}
	daemon.NBFlags(cmd.Flags(), &c)
	return cmd
}
