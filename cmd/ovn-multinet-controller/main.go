// Command ovn-multinet-controller keeps OVN's logical switches in step with the NetworkAttachmentDefinitions.
package main

import (
	"context"
	"errors"
	"log/slog"
	"os"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/internal/daemon"
	"github.com/ovn-multinet/ovn-multinet/nad"
	"github.com/ovn-multinet/ovn-multinet/ovnnet"
	"github.com/ovn-multinet/ovn-multinet/source"
)

func main() {
	var c conf.Controller
	cmd := &cobra.Command{
		Use:   "ovn-multinet-controller",
		Short: "The controller of ovn-multinet: makes OVN's logical switches from NetworkAttachmentDefinitions.",
		RunE:  func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), c) },
	}
	flags := cmd.Flags()
	daemon.SourceFlags(flags, &c.Kubeconfig, &c.Manifests)
	daemon.NBFlags(flags, &c.NB)
	daemon.CommonFlags(flags, &c.LogLevel, &c.MetricsAddr)
	os.Exit(daemon.Main(cmd))
}

func run(ctx context.Context, c conf.Controller) error {
	if err := c.Validate(); err != nil {
		return err
	}
	log := daemon.Logger(c.LogLevel)
	db, err := daemon.OpenNB(c.NB, log)
	if err != nil {
		return err
	}
	defer db.Close()
	controller := ovnnet.NewController(ovnnet.New(db), log)
	g, ctx := errgroup.WithContext(ctx)
	src, err := openSource(c, controller, log)
	if err != nil {
		return err
	}
	g.Go(func() error { return src.Run(ctx) })
	g.Go(func() error { return controller.Run(ctx, networkConfig{src}) })
	g.Go(func() error { return daemon.Serve(ctx, c.MetricsAddr, prometheus.NewRegistry()) })
	return g.Wait()
}

// networks is what the controller needs of a source.
type networks interface {
	NAD(ctx context.Context, namespace, name string) (*nad.Definition, error)
	Run(ctx context.Context) error
}

func openSource(c conf.Controller, controller *ovnnet.Controller, log *slog.Logger) (networks, error) {
	if c.Manifests != "" {
		return source.NewManifests(c.Manifests, controller.Changed, log)
	}
	core, nads, err := daemon.Kubernetes(c.Kubeconfig)
	if err != nil {
		return nil, err
	}
	return source.NewKube(core, nads, "", controller.Changed, log)
}

// networkConfig is the source as ovnnet wants it.
type networkConfig struct{ networks }

func (n networkConfig) NetworkConfig(ctx context.Context, namespace, name string) (string, bool, error) {
	d, err := n.NAD(ctx, namespace, name)
	if errors.Is(err, nad.ErrNotFound) {
		return "", false, nil
	}
	if err != nil {
		return "", false, err
	}
	return d.Config, true, nil
}
