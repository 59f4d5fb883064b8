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
	"github.com/ovn-multinet/ovn-multinet/kubectl/show"
)

// operatorTimeout bounds the calls of operators: the agent reads its disk, and asks the databases.
const operatorTimeout = 30 * time.Second

// forgetCommand asks the agent of this node.
func forgetCommand() *cobra.Command {
	agent := agentapi.Client{}
	output, all, namespace := "table", false, ""
	cmd := &cobra.Command{
		Use:   "forget [CONTAINER[@INTERFACE] | --all [--namespace NAMESPACE]]",
		Short: "List the failed DELs of other plugins, or forget those of a container", Args: cobra.MaximumNArgs(1),
		Long: `Every later DEL on this node, and every failed ADD, tries a failed DEL of a plugin again. Until it
succeeds, the devices of the network stay with the container. If it never will, forget deletes the journal
entry: the operator then cleans up what the plugin made on the node, and kubelet may give the devices to other
pods. With --all, forget does this for every container, with --namespace for the containers of one namespace.`,
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
			failed := agentapi.FailedDELs{}
			switch {
			case all:
				r := agentapi.ForgetRequest{Sandbox: agentapi.Sandbox{Namespace: namespace}, All: true}
				if err := agent.Call(ctx, agentapi.OpForget, r, &failed); err != nil {
					return explained(err)
				}
			case len(args) == 0:
				if err := agent.Call(ctx, agentapi.OpFailedDELs, agentapi.FailedDELsRequest{}, &failed); err != nil {
					return explained(err)
				}
			default:
				failed.Attachments = make([]agentapi.FailedDEL, 1)
				id, ifName, _ := strings.Cut(args[0], "@")
				r := agentapi.ForgetRequest{Sandbox: agentapi.Sandbox{ContainerID: id, Interface: ifName}}
				if err := agent.Call(ctx, agentapi.OpForget, r, &failed.Attachments[0]); err != nil {
					return explained(err)
				}
			}
			if output == "json" {
				return show.JSON(cmd.OutOrStdout(), failed.Attachments)
			}
			return show.FailedDELs(cmd.OutOrStdout(), failed.Attachments)
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "forget the failed DELs of every container")
	cmd.Flags().StringVar(&namespace, "namespace", "", "with --all: of the containers of this namespace alone")
	cmd.Flags().StringVar(&agent.Socket, "socket", conf.DefaultAgentSocket, "socket that the agent serves")
	cmd.Flags().StringVarP(&output, "output", "o", output, "table or json")
	return cmd
}

// explained appends to an error what to do next.
func explained(err error) error {
	if _, _, details := conf.Describe(err); details != "" {
		return fmt.Errorf("%w; %s", err, details)
	}
	return err
}
