package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovn-multinet/ovn-multinet/kubectl/show"
)

// controllerBinary is the path of the controller's program in its image, and controllerContainer its container.
const (
	controllerBinary    = "/ovn-multinet-controller"
	controllerContainer = "controller"
)

func limitsCommand() *cobra.Command {
	var clients clientOptions
	all, output, timeout := false, "", time.Duration(0)
	cmd := &cobra.Command{
		Use: "limits", Args: cobra.NoArgs, Short: "Show what the objects of a namespace need in OVN, and their limits",
		Long: `Show what the accepted objects of a namespace need in OVN, and how much they may need together. The controller
that leads says it: it runs "ovn-multinet-controller metrics" in its pod, so you need the right to create pods/exec in
the namespace ovn-multinet. A namespace without networks, policies and Services needs nothing and is not shown.`,
		Example: "  kubectl multinet limits -n shop\n  kubectl multinet limits -A",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output != "table" && output != "json" {
				return fmt.Errorf("--output: %q is neither table nor json", output)
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			k, namespace, err := clients.connect()
			if err != nil {
				return err
			}
			list, err := k.limits(ctx)
			if err != nil {
				return execRights(err)
			}
			if !all {
				list = show.LimitsOf(list, namespace)
			}
			if output == "json" {
				return show.JSON(cmd.OutOrStdout(), list)
			}
			return show.LimitTable(cmd.OutOrStdout(), list)
		},
	}
	clients.flags(cmd.Flags())
	cmd.Flags().BoolVarP(&all, "all-namespaces", "A", false, "all namespaces")
	cmd.Flags().StringVarP(&output, "output", "o", "table", "table or json")
	cmd.Flags().DurationVar(&timeout, "timeout", 30*time.Second, "how long to wait for the cluster and for the controller")
	return cmd
}

// limits asks the controllers for their metrics, and returns the account of the one that leads.
func (k *cluster) limits(ctx context.Context) ([]show.Limit, error) {
	pods, err := k.core.CoreV1().Pods(installed).List(ctx, metav1.ListOptions{LabelSelector: controllerLabel})
	if err != nil {
		return nil, err
	}
	var errs []error
	for i := range pods.Items {
		p := &pods.Items[i]
		if p.Status.Phase != corev1.PodRunning || p.DeletionTimestamp != nil {
			continue
		}
		var metrics bytes.Buffer
		err := execIn(ctx, k.config, k.core, target{p.Spec.NodeName, p.Name, controllerContainer},
			[]string{controllerBinary, "metrics"}, nil, &metrics)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if list, leads, err := show.ParseLimits(&metrics); err != nil || leads {
			return list, err
		}
	}
	return nil, errors.Join(append(errs,
		fmt.Errorf("no controller leads: kubectl -n %s get pods; kubectl multinet check", installed))...)
}
