package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/internal/show"
	"github.com/ovn-multinet/ovn-multinet/plan"
)

// operatorTimeout is for an agent that reads its own disk, and asks the databases.
const operatorTimeout = 30 * time.Second

// forgetCommand asks the agent of this node.
func forgetCommand() *cobra.Command {
	agent := plan.Client{}
	output := "table"
	cmd := &cobra.Command{
		Use: "forget [CONTAINER[@INTERFACE]]", Short: "List the networks of other plugins that would not go, or give those of a container up", Args: cobra.MaximumNArgs(1),
		Long: `A plugin whose DEL fails is asked again by every later DEL on this node and every ADD there that fails, and the devices of
its network stay with the container until it succeeds. If it never will, forget gives them up: what the plugin left on the node is
then the operator's to clean up, and kubelet may give the devices to other pods.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if output != "table" && output != "json" {
				return fmt.Errorf("--output: %q is neither table nor json", output)
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), operatorTimeout)
			defer cancel()
			defer agent.Close()
			left := plan.Left{}
			if len(args) == 0 {
				if err := agent.Call(ctx, plan.OpLeft, plan.LeftRequest{}, &left); err != nil {
					return explained(err)
				}
			} else {
				left.Attachments = make([]plan.LeftBehind, 1)
				id, ifName, _ := strings.Cut(args[0], "@")
				r := plan.ForgetRequest{Sandbox: plan.Sandbox{ContainerID: id, Interface: ifName}}
				if err := agent.Call(ctx, plan.OpForget, r, &left.Attachments[0]); err != nil {
					return explained(err)
				}
			}
			if output == "json" {
				return show.JSON(cmd.OutOrStdout(), left.Attachments)
			}
			return show.Left(cmd.OutOrStdout(), left.Attachments)
		},
	}
	cmd.Flags().StringVar(&agent.Socket, "socket", conf.DefaultAgentSocket, "socket that the agent serves")
	cmd.Flags().StringVarP(&output, "output", "o", output, "table or json")
	return cmd
}

// explained puts what to do next behind an error.
func explained(err error) error {
	if _, _, details := conf.Describe(err); details != "" {
		return fmt.Errorf("%w; %s", err, details)
	}
	return err
}
