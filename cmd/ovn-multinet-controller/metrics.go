package main

import (
	"context"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/ovn-multinet/ovn-multinet/internal/daemon"
)

// metricsTimeout and aliveTimeout limit the time for an answer of the controller. The second one is a little shorter
// than the timeout of the probe in the manifests, so that the probe's Event has our words.
const metricsTimeout, aliveTimeout = 10 * time.Second, 8 * time.Second

// metricsCommand writes the metrics of the controller that runs beside it: its image has no other client.
func metricsCommand() *cobra.Command {
	const short = "Write the metrics of the controller of this pod to stdout."
	return askCommand("metrics", short, metricsTimeout, daemon.CopyMetrics)
}

// aliveCommand is the liveness probe of the controller's container.
func aliveCommand() *cobra.Command {
	return askCommand("alive", "Report whether the controller of this pod answers at all.", aliveTimeout,
		func(ctx context.Context, address string, _ io.Writer) error { return daemon.Alive(ctx, address) })
}

// askCommand asks the controller that runs beside it.
func askCommand(
	use, short string, timeout time.Duration, ask func(ctx context.Context, address string, out io.Writer) error,
) *cobra.Command {
	var address string
	cmd := &cobra.Command{
		Use: use, Args: cobra.NoArgs, Short: short,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			return ask(ctx, address, cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringVar(&address, "metrics-address", "", "HOST:PORT or unix:PATH where the controller serves them")
	return cmd
}
