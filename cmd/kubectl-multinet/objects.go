package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/ovn-multinet/ovn-multinet/controller/configfile"
	"github.com/ovn-multinet/ovn-multinet/netmodel/entry"
)

// The ConfigMap with the file of the controllers, and its key.
const (
	controllerConfig = "ovn-multinet-controller"
	controllerFile   = "controller.yaml"
)

func objectsCommand() *cobra.Command {
	var clients clientOptions
	timeout := time.Duration(0)
	cmd := &cobra.Command{
		Use: "objects [FILE]", Args: cobra.MaximumNArgs(1),
		Short: "Write the controllers' file as objects, one for each entry",
		Long: `Write the routers, address pools, physical networks and security profiles of the controllers' file (--config)
as objects, one for each entry. Without FILE the command reads the file that the chart has made of its values. Apply
the objects, wait until all of them are accepted, and then delete the entries from the chart's values: the networks do
not notice. Limits of namespaces and portSecurityOff stay in the values.`,
		Example: `  kubectl multinet objects > objects.yaml
  kubectl apply -f objects.yaml
  kubectl wait --for=condition=Accepted --timeout=60s -f objects.yaml`,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			text, err := clients.controllerFile(ctx, args)
			if err != nil {
				return err
			}
			config, err := configfile.Read(text)
			if err != nil {
				return err
			}
			objects, _, err := entry.Split(config.Document)
			if err == nil && len(objects) == 0 {
				_, err = fmt.Fprintln(cmd.ErrOrStderr(), "the file has no entry that an object can have")
			}
			if err != nil {
				return err
			}
			return writeObjects(cmd.OutOrStdout(), objects)
		},
	}
	clients.clusterFlags(cmd.Flags())
	cmd.Flags().DurationVar(&timeout, "timeout", 30*time.Second, "how long to wait for the cluster")
	return cmd
}

// controllerFile reads the file that is named, or the one that the chart has made.
func (c *clientOptions) controllerFile(ctx context.Context, args []string) ([]byte, error) {
	if len(args) > 0 {
		return os.ReadFile(args[0])
	}
	k, _, err := c.connect()
	if err != nil {
		return nil, err
	}
	file, err := k.core.CoreV1().ConfigMaps(installed).Get(ctx, controllerConfig, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return []byte(file.Data[controllerFile]), nil
}

func writeObjects(out io.Writer, objects []*entry.Object) error {
	for i, o := range objects {
		text, err := yaml.Marshal(o.Manifest())
		if err == nil && i > 0 {
			_, err = io.WriteString(out, "---\n")
		}
		if err == nil {
			_, err = out.Write(text)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
