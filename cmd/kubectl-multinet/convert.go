package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/ovn-multinet/ovn-multinet/kubectl/convert"
)

func convertCommand() *cobra.Command {
	var files []string
	var namespace string
	cmd := &cobra.Command{
		Use: "convert -f FILE|FOLDER|-", Args: cobra.NoArgs,
		Short: "Write manifests of Nodus (ovn4nfv) as manifests of ovn-multinet",
		Long: `Write manifests of Nodus (ovn4nfv, ONAP's networks) as manifests of ovn-multinet. The command needs no cluster.

Network and ProviderNetwork become NetworkAttachmentDefinitions, and what the operator has to apply for them. The
annotations nfn-network, ovnNetwork and ovnNetworkRoutes of pods and pod templates become those that ovn-multinet
reads. Addresses, MACs and names of interfaces stay. Other documents stay as they are. What has no counterpart is a
comment in the result, and a line of the standard error. Give all files in one call: pods name networks by their name
alone.`,
		Example: `  kubectl multinet convert -f nodus/ > multinet.yaml
  kubectl multinet lint -f multinet.yaml`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			texts, err := readFiles(cmd, files)
			if err != nil {
				return err
			}
			result, err := convert.Convert(texts, namespace)
			if err != nil {
				return err
			}
			for _, remark := range result.Remarks {
				fmt.Fprintln(cmd.ErrOrStderr(), remark)
			}
			_, err = cmd.OutOrStdout().Write(result.YAML)
			return err
		},
	}
	fileFlags(cmd, &files, &namespace)
	return cmd
}
