package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/conf"
)

// readyTimeout is a little shorter than the timeout of the probe in the manifests, so that the probe's Event has the
// agent's words.
const readyTimeout = 4 * time.Second

// readyCommand is the startup probe of the agent's container: its image has no shell.
func readyCommand() *cobra.Command {
	agent := agentapi.Client{}
	cmd := &cobra.Command{
		Use: "ready", Args: cobra.NoArgs,
		Short: "Tell whether this node's agent could serve a pod with networks now: NB and Open vSwitch answer the agent",
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), readyTimeout)
			defer cancel()
			defer agent.Close()
			if err := agent.Call(ctx, agentapi.OpStatus, agentapi.StatusRequest{}, nil); err != nil {
				return explained(err)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&agent.Socket, "socket", conf.DefaultAgentSocket, "socket that the agent serves")
	return cmd
}
