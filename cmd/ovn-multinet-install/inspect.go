package main

import (
	"encoding/json"

	"github.com/spf13/cobra"

	"github.com/ovn-multinet/ovn-multinet/node/install"
	"github.com/ovn-multinet/ovn-multinet/node/nodefacts"
)

// inspectCommand returns the mode that `kubectl multinet check --nodes` runs on each node.
func inspectCommand(installer *install.Config) *cobra.Command {
	var c nodefacts.Config
	cmd := &cobra.Command{
		Use: "inspect", Short: "Print what the node has, as one line of JSON, and change nothing", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c.NetDir, c.BinDir, c.Primary = installer.NetDir, installer.BinDir, installer.Primary
			return json.NewEncoder(cmd.OutOrStdout()).Encode(nodefacts.Read(cmd.Context(), c))
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&c.Root, "host-root", "/", "folder where the node's root folder is mounted")
	flags.StringVar(&c.Proc, "host-proc", "/proc", "procfs of the node's processes and network")
	flags.StringVar(&c.OVSSocket, "ovs-socket", "/run/openvswitch/db.sock", "socket of the node's OVS database")
	flags.StringSliceVar(&c.Endpoints, "nb-endpoints", nil, "endpoints of OVN's Northbound database to connect to")
	return cmd
}
