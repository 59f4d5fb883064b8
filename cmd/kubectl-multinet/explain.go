package main

import (
	"github.com/spf13/cobra"

	"github.com/ovn-multinet/ovn-multinet/kubectl/show"
)

func explainCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "explain [CODE]",
		Short: "Explain an error code of a pod's Event, and say what to do; without a code, list the codes",
		Long: `Explain an error code, and say what to do. A pod that cannot start has an Event FailedCreatePodSandBox, whose
text ends with the code. The command needs no cluster.`,
		Example: "  kubectl multinet explain 102",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return show.Explain(cmd.OutOrStdout(), append(args, "")[0])
		},
	}
}
