package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/conf"
)

// The times for the agent's answer are a little shorter than the timeouts of the probes in the manifests, so that the
// probes' Events have our words.
const readyTimeout, aliveTimeout = 4 * time.Second, 8 * time.Second

// readyCommand is the startup probe of the agent's container: its image has no shell.
func readyCommand() *cobra.Command {
	return probeCommand("ready", agentapi.OpStatus, readyTimeout,
		"Report whether this node's agent could serve a pod with networks now: NB and Open vSwitch answer the agent")
}

// aliveCommand is the liveness probe of the agent's container.
func aliveCommand() *cobra.Command {
	return probeCommand("alive", agentapi.OpAlive, aliveTimeout, "Report whether this node's agent answers at all")
}

// probeCommand asks the agent. The exit code is the answer.
func probeCommand(use, op string, timeout time.Duration, short string) *cobra.Command {
	agent := agentapi.Client{}
	cmd := &cobra.Command{
		Use: use, Args: cobra.NoArgs, Short: short,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			defer agent.Close()
			if err := agent.Call(ctx, op, agentapi.StatusRequest{}, nil); err != nil {
				return explained(err)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&agent.Socket, "socket", conf.DefaultAgentSocket, "socket that the agent serves")
	return cmd
}
