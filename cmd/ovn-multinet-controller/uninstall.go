package main

import (
	"github.com/spf13/cobra"

	"github.com/ovn-multinet/ovn-multinet/internal/daemon"
	"github.com/ovn-multinet/ovn-multinet/internal/program"
	"github.com/ovn-multinet/ovn-multinet/kubectl/uninstall"
)

// uninstallCommand is what the chart runs before its objects are deleted.
func uninstallCommand() *cobra.Command {
	var kubeconfig, namespace, level string
	var networks []string
	cmd := &cobra.Command{
		Use: "uninstall", Args: cobra.NoArgs,
		Short: "Take ovn-multinet off all nodes, when their pods with networks have ended.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			core, nads, err := daemon.Kubernetes(kubeconfig)
			if err != nil {
				return err
			}
			return uninstall.Run(cmd.Context(), uninstall.Config{
				Core: core, NADs: nads, Namespace: leaseNamespace(namespace), Networks: networks, Log: daemon.Logger(level)})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&kubeconfig, "kubeconfig", "", "kubeconfig file; empty: the cluster that the process runs in")
	flags.StringVar(&namespace, "namespace", "", "namespace of the installation; empty: that of the pod it runs in")
	flags.StringSliceVar(&networks, "networks", nil, "networks of the installation, as namespace/name; deleted first")
	program.LogFlag(flags, &level)
	return cmd
}
