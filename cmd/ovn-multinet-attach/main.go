// Command ovn-multinet-attach changes the networks of pods that run: it runs the plugin at the word of the node's
// agent.
package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/internal/program"
	"github.com/ovn-multinet/ovn-multinet/node/attach"
)

func main() {
	var c attach.Config
	var root, level string
	cmd := &cobra.Command{
		Use:   "ovn-multinet-attach",
		Short: "Changes the networks of running pods when their annotation changes.",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := enter(root); err != nil {
				return err
			}
			return attach.Run(cmd.Context(), c, program.Logger(level))
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&root, "root", "", "folder with the node's root file system; the other paths are below it; empty: /")
	flags.StringVar(&c.NetDir, "net-dir", "/etc/cni/net.d", "the runtime's folder of CNI configurations")
	flags.StringVar(&c.BinDir, "bin-dir", "/opt/cni/bin", "the runtime's folder of CNI plugins")
	flags.StringVar(&c.Cache, "cni-cache", "/var/lib/cni", "the runtime's folder of the results of CNI calls")
	flags.StringVar(&c.Socket, "socket", conf.DefaultAgentSocket, "socket of the agent")
	flags.IntVar(&c.Workers, "workers", 4, "how many pods may change at once")
	program.LogFlag(flags, &level)
	os.Exit(program.Main(cmd))
}

// enter makes a folder the root of the process and of all that it runs: the plugins see the node as the runtime shows
// it to them, and network namespaces that the runtime makes later too.
func enter(root string) error {
	if root == "" {
		return nil
	}
	if err := unix.Chroot(root); err != nil {
		return fmt.Errorf("--root %s: %w", root, err)
	}
	return os.Chdir("/")
}
