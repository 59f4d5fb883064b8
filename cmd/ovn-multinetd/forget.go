package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/internal/show"
)

// operatorTimeout is for an agent that reads its own disk, and asks the databases.
const operatorTimeout = 30 * time.Second

// forgetCommand asks the agent of this node.
func forgetCommand() *cobra.Command {
	agent := agentapi.Client{}
	output, all, namespace := "table", false, ""
	cmd := &cobra.Command{
		Use: "forget [CONTAINER[@INTERFACE] | --all [--namespace NAMESPACE]]", Short: "List the networks of other plugins that would not go, or give those of a container up", Args: cobra.MaximumNArgs(1),
		Long: `A plugin whose DEL fails is asked again by every later DEL on this node and every ADD there that fails, and the devices of
its network stay with the container until it succeeds. If it never will, forget gives them up: what the plugin left on the node is
then the operator's to clean up, and kubelet may give the devices to other pods. With --all, those of every container are given up,
with --namespace those of the containers of one namespace.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if output != "table" && output != "json" {
				return fmt.Errorf("--output: %q is neither table nor json", output)
			}
			if all && len(args) > 0 {
				return fmt.Errorf("--all is for every container: leave out %q, or --all", args[0])
			}
			if namespace != "" && !all {
				return errors.New("--namespace is for --all: give both")
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), operatorTimeout)
			defer cancel()
			defer agent.Close()
			left := agentapi.FailedDELs{}
			switch {
			case all:
				r := agentapi.ForgetRequest{Sandbox: agentapi.Sandbox{Namespace: namespace}, All: true}
				if err := agent.Call(ctx, agentapi.OpForget, r, &left); err != nil {
					return explained(err)
				}
			case len(args) == 0:
				if err := agent.Call(ctx, agentapi.OpFailedDELs, agentapi.FailedDELsRequest{}, &left); err != nil {
					return explained(err)
				}
			default:
				left.Attachments = make([]agentapi.FailedDEL, 1)
				id, ifName, _ := strings.Cut(args[0], "@")
				r := agentapi.ForgetRequest{Sandbox: agentapi.Sandbox{ContainerID: id, Interface: ifName}}
				if err := agent.Call(ctx, agentapi.OpForget, r, &left.Attachments[0]); err != nil {
					return explained(err)
				}
			}
			if output == "json" {
				return show.JSON(cmd.OutOrStdout(), left.Attachments)
			}
			return show.Left(cmd.OutOrStdout(), left.Attachments)
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "give up those of every container")
	cmd.Flags().StringVar(&namespace, "namespace", "", "with --all: of the containers of this namespace alone")
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
