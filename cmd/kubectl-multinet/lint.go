package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/ovn-multinet/ovn-multinet/kubectl/lint"
	"github.com/ovn-multinet/ovn-multinet/kubectl/show"
)

func lintCommand() *cobra.Command {
	var files []string
	var namespace, output string
	cmd := &cobra.Command{
		Use: "lint -f FILE|FOLDER|-", Args: cobra.NoArgs,
		Short: "Say what would be refused of manifests, before they are applied",
		Long: `Say what would be refused of manifests before they are applied: NetworkAttachmentDefinitions, pods and what
makes pods, virtual machines, network policies, Services on networks, and the operator's objects. The command needs no
cluster. It checks the objects of all files against each other. What pods ask of networks that are not among them is
not checked, and neither is what only a cluster knows: other grants, limits, and addresses that somebody has.

The command ends with an error if something would be refused.`,
		Example: `  kubectl multinet lint -f examples/
  helm template . | kubectl multinet lint -f -`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output != "table" && output != "json" {
				return fmt.Errorf("--output: %q is neither table nor json", output)
			}
			texts, err := readFiles(cmd, files)
			if err != nil {
				return err
			}
			report := lint.Check(cmd.Context(), lint.Parse(texts, namespace))
			if output == "json" {
				err = show.JSON(cmd.OutOrStdout(), report)
			} else {
				err = report.Write(cmd.OutOrStdout())
			}
			if n := report.Count(lint.Error); err == nil && n > 0 {
				err = fmt.Errorf("%d errors", n)
			}
			return err
		},
	}
	fileFlags(cmd, &files, &namespace)
	cmd.Flags().StringVarP(&output, "output", "o", "table", "table or json")
	return cmd
}

func fileFlags(cmd *cobra.Command, files *[]string, namespace *string) {
	cmd.Flags().StringArrayVarP(files, "filename", "f", nil, "file, folder, or - for the standard input; may be repeated")
	cmd.Flags().StringVarP(namespace, "namespace", "n", "default", "namespace of objects that name none")
}

func readFiles(cmd *cobra.Command, files []string) ([]lint.File, error) {
	if len(files) == 0 {
		return nil, errors.New("--filename: name a file, a folder, or - for the standard input")
	}
	return lint.ReadFiles(files, cmd.InOrStdin())
}
