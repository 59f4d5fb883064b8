// Command ovn-multinet-install puts the plugin and its conflist onto a node and keeps the conflist in sync with the
// primary network's conflist.
package main

import (
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/internal/program"
	"github.com/ovn-multinet/ovn-multinet/node/install"
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
	addFlags(cmd.PersistentFlags(), &c)
	program.LogFlag(cmd.PersistentFlags(), &level)
	cmd.AddCommand(&cobra.Command{
		Use: "uninstall", Short: "Wait until no pod on the node has networks, then delete conflist and plugin",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return install.Uninstall(cmd.Context(), c, program.Logger(level))
		},
	})
	cmd.AddCommand(inspectCommand(&c))
	cmd.AddCommand(readyCommand(&c))
	os.Exit(program.Main(cmd))
}

func addFlags(flags *pflag.FlagSet, c *install.Config) {
	flags.StringVar(&c.NetDir, "net-dir", "/etc/cni/net.d", "the runtime's folder of CNI configurations")
	flags.StringVar(&c.BinDir, "bin-dir", "/opt/cni/bin", "the runtime's folder of CNI plugins")
	flags.StringVar(&c.Primary, "primary", "",
		"name of the primary network's file in --net-dir; empty: the first file by name, as the runtime chooses it")
	flags.StringVar(&c.Plugin, "plugin", "/ovn-multinet", "the plugin's binary to install")
	flags.StringVar(&c.Entry.AgentSocket, "socket", conf.DefaultAgentSocket, "socket of the agent, for the plugin")
	flags.StringVar(&c.Entry.StateDir, "state-dir", conf.DefaultStateDir, "folder of the plugin's journal")
	flags.BoolVar(&c.Entry.StrictStatus, "strict-status", false,
		"the node is not ready for pods while the agent, NB or Open vSwitch is not available")
	flags.StringSliceVar(&c.Entry.AllowedDelegates, "allowed-delegates", nil,
		"CNI plugins that networks of pods may run as delegates")
	flags.StringSliceVar(&c.Entry.AllowedIPAM, "allowed-ipam", nil,
		"CNI plugins that the delegates may run for addresses, as their \"ipam\"")
	flags.StringVar(&c.Entry.LogFile, "plugin-log", "", "file on the node for the plugin's log; empty: none")
	flags.StringVar(&c.Entry.Timeout, "plugin-timeout", conf.DefaultTimeout.String(), "time for one ADD")
	flags.StringVar(&c.CNIVersion, "cni-version", "",
		"highest version of the CNI specification that the runtime speaks: 1.0.0 for containerd 1.6 and 1.7, 1.1.0 for "+
			"containerd 2. The conflist gets the highest version up to this one that all plugins of the chain speak. If "+
			"the runtime does not speak this version, no pod starts. Empty: the version of the primary network's conflist")
}
