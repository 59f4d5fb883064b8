package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/internal/show"
)

// gcCommand asks the agent of this node.
func gcCommand() *cobra.Command {
	agent := agentapi.Client{}
	request := agentapi.GCRequest{}
	output := "table"
	cmd := &cobra.Command{
		Use: "gc", Short: "Take away what is left on this node of containers that are gone, or tell with --dry-run", Args: cobra.NoArgs,
		Long: `The agent does this by itself once a period, with what it has seen twice. Ports go from OVN's Northbound database and host
ends from Open vSwitch; what other plugins made is undone at the next call of a runtime.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output != "table" && output != "json" {
				return fmt.Errorf("--output: %q is neither table nor json", output)
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), operatorTimeout)
			defer cancel()
			defer agent.Close()
			remains := agentapi.GCResult{}
			if err := agent.Call(ctx, agentapi.OpGC, request, &remains); err != nil {
				return explained(err)
			}
			if output == "json" {
				return show.JSON(cmd.OutOrStdout(), remains.Sandboxes)
			}
			return show.Remains(cmd.OutOrStdout(), remains.Sandboxes)
		},
	}
	cmd.Flags().StringVar(&agent.Socket, "socket", conf.DefaultAgentSocket, "socket that the agent serves")
	cmd.Flags().BoolVar(&request.DryRun, "dry-run", false, "only tell what would go, and why")
	cmd.Flags().StringVarP(&output, "output", "o", output, "table or json")
	return cmd
}
