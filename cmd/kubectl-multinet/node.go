package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/ovn-multinet/ovn-multinet/kubectl/show"
)

// nodeCommand has the options of a command of the agent's program. It runs in the agent's container, which has access
// to the journal of the node.
type nodeCommand struct {
	clients clientOptions
	node    string
	output  string
	timeout time.Duration
}

func (n *nodeCommand) flags(cmd *cobra.Command) {
	n.clients.flags(cmd.Flags())
	cmd.Flags().StringVar(&n.node, "node", "", "name of the node; empty: all nodes, one after the other")
	cmd.Flags().StringVarP(&n.output, "output", "o", "table", "table or json")
	cmd.Flags().DurationVar(&n.timeout, "timeout", 60*time.Second, "how long to wait for the cluster and for the agent")
}

func (n *nodeCommand) run(cmd *cobra.Command, args ...string) error {
	ctx, cancel := context.WithTimeout(cmd.Context(), n.timeout)
	defer cancel()
	config, _, err := n.clients.load()
	if err != nil {
		return err
	}
	if n.node != "" {
		return runOnNode(ctx, config, n.node, args, cmd.OutOrStdout())
	}
	said, err := runOnAll(ctx, config, args)
	if n.output == "json" {
		texts := map[string]json.RawMessage{}
		for node, text := range said {
			texts[node] = text
		}
		return errors.Join(err, show.JSON(cmd.OutOrStdout(), texts))
	}
	for _, node := range slices.Sorted(maps.Keys(said)) {
		fmt.Fprintf(cmd.OutOrStdout(), "node %s\n%s", node, said[node])
	}
	return err
}

// rights is the end of the long texts of these commands.
const rights = `

It runs "ovn-multinetd %s" in the agent's pod on the node, so you need the right to create pods/exec in the namespace
ovn-multinet. On a node without a cluster, run that as root.`

func forgetCommand() *cobra.Command {
	var n nodeCommand
	all := false
	cmd := &cobra.Command{
		Use:   "forget [--node NODE [CONTAINER | --all [--namespace NAMESPACE]]]",
		Short: "List the networks of other plugins that would not go from a node, or give those of a container up",
		Args:  cobra.MaximumNArgs(1),
		Long: `Every later DEL on the node, and every failed ADD, tries a failed DEL of a plugin again. Until it succeeds, the
devices of the network stay with the container. If it never will, forget deletes the journal entry: the operator then
cleans up what the plugin made on the node, and kubelet may give the devices to other pods. With --all, forget does this
for every container of the node, with --namespace for the containers of one namespace.` + fmt.Sprintf(rights, "forget"),
		Example: "  kubectl multinet forget --node worker-1\n  kubectl multinet forget --node worker-1 4f1d27a3\n" +
			"  kubectl multinet forget --node worker-1 --all --namespace shop",
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case n.node == "" && (len(args) > 0 || all):
				return errors.New("--node is empty: name the node of the container, as kubectl get nodes lists it")
			case all && len(args) > 0:
				return fmt.Errorf("--all is for every container: leave out %q, or --all", args[0])
			case n.clients.namespace != "" && !all:
				return errors.New("--namespace is for --all: give both")
			}
			command := []string{agentBinary, "forget", "--output", n.output}
			if all {
				command = append(command, "--all", "--namespace", n.clients.namespace)
			}
			return n.run(cmd, append(append(command, "--"), args...)...)
		},
	}
	n.flags(cmd)
	cmd.Flags().BoolVar(&all, "all", false, "forget the failed DELs of every container of the node")
	cmd.Flags().Lookup("namespace").Usage = "with --all: only of the containers of this namespace"
	return cmd
}

func gcCommand() *cobra.Command {
	var n nodeCommand
	dry := false
	cmd := &cobra.Command{
		Use:   "gc [--node NODE]",
		Short: "Delete what is stale on the nodes, or list it with --dry-run",
		Args:  cobra.NoArgs,
		Long: `The agent does this by itself once a period, with what it has seen as stale for a whole period. It deletes
ports from OVN's Northbound database and from Open vSwitch. What other plugins made is deleted at the next call of
a runtime on the node.` + fmt.Sprintf(rights, "gc"),
		Example: "  kubectl multinet gc --dry-run\n  kubectl multinet gc --node worker-1",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return n.run(cmd, agentBinary, "gc", "--output", n.output, fmt.Sprintf("--dry-run=%t", dry))
		},
	}
	n.flags(cmd)
	cmd.Flags().BoolVar(&dry, "dry-run", false, "only list what would be deleted, and why")
	return cmd
}
