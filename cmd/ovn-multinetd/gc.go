package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/kubectl/show"
)

// gcCommand asks the agent of this node.
func gcCommand() *cobra.Command {
	agent := agentapi.Client{}
	request := agentapi.GCRequest{}
	output := "table"
	cmd := &cobra.Command{
		Use: "gc", Args: cobra.NoArgs,
		Short: "Delete what stale sandboxes have on this node, or only list it with --dry-run",
		Long: `The agent does this by itself once a period, with what it has seen as stale for a whole period. It deletes
ports from OVN's Northbound database and from Open vSwitch. What other plugins made is deleted at the next call of
a runtime.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output != "table" && output != "json" {
				return fmt.Errorf("--output: %q is neither table nor json", output)
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), operatorTimeout)
			defer cancel()
			defer agent.Close()
			result := agentapi.GCResult{}
			if err := agent.Call(ctx, agentapi.OpGC, request, &result); err != nil {
				return explained(err)
			}
			if output == "json" {
				return show.JSON(cmd.OutOrStdout(), result.Sandboxes)
			}
			return show.StaleSandboxes(cmd.OutOrStdout(), result.Sandboxes)
		},
	}
	cmd.Flags().StringVar(&agent.Socket, "socket", conf.DefaultAgentSocket, "socket that the agent serves")
	cmd.Flags().BoolVar(&request.DryRun, "dry-run", false, "only list what would be deleted, and why")
	cmd.Flags().StringVarP(&output, "output", "o", output, "table or json")
	return cmd
}
