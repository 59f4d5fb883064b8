package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/ovn-multinet/ovn-multinet/internal/program"
	"github.com/ovn-multinet/ovn-multinet/kubectl/check"
	"github.com/ovn-multinet/ovn-multinet/kubectl/show"
)

const (
	// statusTimeout is the time for one reading of the cluster.
	statusTimeout = 60 * time.Second
	// statusEvery is the time between two readings of a command that waits.
	statusEvery = 2 * time.Second
)

func statusCommand() *cobra.Command {
	var clients clientOptions
	wait, output, timeout := false, "", time.Duration(0)
	cmd := &cobra.Command{
		Use: "status", Short: "Show whether the programs of ovn-multinet run, and wait until they do",
		Long: `Show whether the programs of ovn-multinet run: agents, controllers and which of them leads, OVN's databases and
their leaders, ovn-northd, Open vSwitch and ovn-controller on each node, and updates that go on. The first line is the
verdict. The lines after it are those of "kubectl multinet check" that are about these programs; that command also
checks the cluster. You need the rights to list nodes, to read the namespace ovn-multinet except its Secrets, and to
create pods/exec there.

The exit code is 0 if all programs run, 1 if not, and 2 if something cannot be read.`,
		Example: "  kubectl multinet status\n  kubectl multinet status --wait",
		Args:    func(cmd *cobra.Command, args []string) error { return cannotCheck(cobra.NoArgs(cmd, args)) },
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output != "table" && output != "json" {
				return cannotCheck(fmt.Errorf("--output: %q is neither table nor json", output))
			}
			k, _, err := clients.connect()
			if err != nil {
				return cannotCheck(err)
			}
			s, err := k.status(cmd.Context())
			if wait {
				s, err = k.awaitStatus(cmd.Context(), timeout, s, err, cmd.ErrOrStderr())
			}
			if err != nil {
				return cannotCheck(err)
			}
			if output == "json" {
				err = show.JSON(cmd.OutOrStdout(), s)
			} else {
				err = show.Status(cmd.OutOrStdout(), s)
			}
			if code := s.ExitCode(); err == nil && code != check.ExitOK {
				return &program.Exit{Code: code}
			}
			return err
		},
	}
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return cannotCheck(err) })
	clients.clusterFlags(cmd.Flags())
	cmd.Flags().BoolVar(&wait, "wait", false, "wait until all programs run, and say on stderr what is missing meanwhile")
	cmd.Flags().DurationVar(&timeout, "timeout", 10*time.Minute, "with --wait: how long to wait at most")
	cmd.Flags().StringVarP(&output, "output", "o", "table", "table or json")
	return cmd
}

func (k *cluster) status(ctx context.Context) (*check.Status, error) {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	return check.ReadStatus(ctx, k.core, execOn(k.config, k.core))
}

// awaitStatus reads the status until all programs run, a right is missing, or the time is over. The API server may be
// away meanwhile.
func (k *cluster) awaitStatus(
	ctx context.Context, timeout time.Duration, s *check.Status, err error, out io.Writer,
) (*check.Status, error) {
	over := time.After(timeout)
	for said := ""; err != nil || !s.Healthy; s, err = k.status(ctx) {
		verdict := fmt.Sprint(err)
		if err == nil {
			verdict = s.Verdict
			if s.Forbidden() {
				return s, nil
			}
		}
		if verdict != said {
			said = verdict
			if _, err := fmt.Fprintln(out, verdict); err != nil {
				return nil, err
			}
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-over:
			return s, err
		case <-time.After(statusEvery):
		}
	}
	return s, nil
}
