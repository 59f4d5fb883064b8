// Command ovn-multinet-install puts the plugin and its conflist onto a node and keeps the conflist in step.
package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/install"
	"github.com/ovn-multinet/ovn-multinet/internal/program"
)

func main() {
	var c install.Config
	var level string
	cmd := &cobra.Command{
		Use:   "ovn-multinet-install",
		Short: "The installer of ovn-multinet: chains the plugin after the node's primary network.",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return install.Run(cmd.Context(), c, program.Logger(level))
		},
	}
	flags := cmd.PersistentFlags()
	flags.StringVar(&c.NetDir, "net-dir", "/etc/cni/net.d", "the runtime's folder of CNI configurations")
	flags.StringVar(&c.BinDir, "bin-dir", "/opt/cni/bin", "the runtime's folder of CNI plugins")
	flags.StringVar(&c.Plugin, "plugin", "/ovn-multinet", "the plugin's binary to install")
	flags.StringVar(&c.Entry.AgentSocket, "socket", conf.DefaultAgentSocket, "socket that the plugin asks the agent on")
	flags.StringVar(&c.Entry.StateDir, "state-dir", conf.DefaultStateDir, "folder that the plugin keeps its journal in")
	flags.BoolVar(&c.Entry.StrictStatus, "strict-status", false, "have the node not ready for pods while agent, NB or Open vSwitch are away")
	flags.StringSliceVar(&c.Entry.AllowedDelegates, "allowed-delegates", nil, "CNI plugins that pods' networks may use beside OVN")
	flags.StringSliceVar(&c.Entry.AllowedIPAM, "allowed-ipam", nil, "CNI plugins that those may run for addresses, as their \"ipam\"")
	flags.StringVar(&c.Entry.LogFile, "plugin-log", "", "file on the node that the plugin logs to; empty: none")
	flags.StringVar(&c.Entry.Timeout, "plugin-timeout", conf.DefaultTimeout.String(), "time for one ADD")
	flags.StringVar(&c.CNIVersion, "cni-version", "", "highest version of the CNI specification that the runtime speaks, 1.0.0 for containerd 1.6 and 1.7, 1.1.0 for containerd 2: the conflist is raised to it as far as all plugins of the chain go, and no pod starts if the runtime does not; empty: it stays the primary's")
	program.LogFlag(flags, &level)
	cmd.AddCommand(&cobra.Command{
		Use: "uninstall", Short: "Drain the node of pods with networks, then take conflist and plugin away", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return install.Uninstall(cmd.Context(), c, program.Logger(level))
		},
	})
	os.Exit(program.Main(cmd))
}
