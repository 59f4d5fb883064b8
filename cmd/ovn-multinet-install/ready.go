package main

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ovn-multinet/ovn-multinet/node/install"
)

// firstProcess is, in the installer's container, the installer.
const firstProcess = "/proc/1/cmdline"

// readyCommand is the startup probe of the installer's container: its image has no shell. The command takes the
// arguments of the installer that it is a probe of, so the manifests have them once. During an uninstall nothing has to
// be ready: otherwise the DaemonSet would not go on to the next nodes.
func readyCommand(c *install.Config) *cobra.Command {
	return &cobra.Command{
		Use: "ready", Args: cobra.NoArgs, Hidden: true,
		Short: "Tell whether a pod that starts now gets its networks, by the arguments of process 1",
		RunE: func(cmd *cobra.Command, _ []string) error {
			text, err := os.ReadFile(firstProcess)
			if err != nil {
				return err
			}
			args := strings.Split(strings.TrimSuffix(string(text), "\x00"), "\x00")[1:]
			if err := cmd.Flags().Parse(args); err != nil {
				return fmt.Errorf("process 1 is no installer: %w", err)
			}
			if slices.Contains(cmd.Flags().Args(), "uninstall") {
				return nil
			}
			return c.Ready()
		},
	}
}
