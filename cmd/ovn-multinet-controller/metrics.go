package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/ovn-multinet/ovn-multinet/internal/daemon"
)

// metricsTimeout limits the time for an answer of the controller.
const metricsTimeout = 10 * time.Second

// metricsCommand writes the metrics of the controller that runs beside it: its image has no other client.
func metricsCommand() *cobra.Command {
	var address string
	cmd := &cobra.Command{
		Use: "metrics", Args: cobra.NoArgs, Short: "Write the metrics of the controller of this pod to stdout.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), metricsTimeout)
			defer cancel()
			return daemon.CopyMetrics(ctx, address, cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringVar(&address, "metrics-address", "", "HOST:PORT or unix:PATH where the controller serves them")
	return cmd
}
