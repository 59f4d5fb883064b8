package ovnnet

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	"k8s.io/client-go/util/workqueue"

	"github.com/ovn-multinet/ovn-multinet/conf"
)

// Source is where the controller finds the configuration of a network.
type Source interface {
	// NetworkConfig returns the spec.config of the NAD namespace/name; found is false when there is none.
	NetworkConfig(ctx context.Context, namespace, name string) (config string, found bool, err error)
}

// Controller keeps the logical switches in step with the NADs.
type Controller struct {
	networks *Networks
	source   Source
	log      *slog.Logger
	queue    workqueue.TypedRateLimitingInterface[string]
}

// A network that could not be brought in step is tried again after this time at first, and this at the latest.
const (
	retryFirst = 50 * time.Millisecond
	retryLast  = 10 * time.Second
	// oneChange bounds the work on one network.
	oneChange = 30 * time.Second
)

// NewController makes a controller; Changed may be called at once.
func NewController(networks *Networks, log *slog.Logger) *Controller {
	limits := workqueue.NewTypedItemExponentialFailureRateLimiter[string](retryFirst, retryLast)
	return &Controller{networks: networks, log: log, queue: workqueue.NewTypedRateLimitingQueue(limits)}
}

// Changed says that the NAD namespace/name is new, different or gone.
func (c *Controller) Changed(namespace, name string) { c.queue.Add(namespace + "/" + name) }

// Run works off the changes until the end of ctx. At its start it also looks at every switch of ours, for NADs that
// went while no controller ran.
func (c *Controller) Run(ctx context.Context, source Source) error {
	c.source = source
	ids, err := c.networks.IDs(ctx)
	if err != nil {
		return err
	}
	for _, id := range ids {
		c.queue.Add(id)
	}
	stop := context.AfterFunc(ctx, c.queue.ShutDown)
	defer stop()
	c.log.Info("leading", "networks", len(ids))
	for {
		id, shutdown := c.queue.Get()
		if shutdown {
			return nil
		}
		c.work(ctx, id)
		c.queue.Done(id)
	}
}

func (c *Controller) work(ctx context.Context, id string) {
	ctx, cancel := context.WithTimeout(ctx, oneChange)
	defer cancel()
	err := c.sync(ctx, id)
	switch {
	case err == nil:
		c.queue.Forget(id)
	case conf.HasCode(err, conf.CodeInvalidConfig):
		// Trying again does not help; the next change of the NAD does.
		c.log.Error("network refused", "network", id, "err", err)
		c.queue.Forget(id)
	case errors.Is(err, ErrPorts):
		c.log.Info("network is gone, its switch stays until its ports are gone", "network", id)
		c.queue.AddRateLimited(id)
	case ctx.Err() == nil:
		c.log.Warn("network not in step yet", "network", id, "err", err)
		c.queue.AddRateLimited(id)
	default:
		c.queue.AddRateLimited(id)
	}
}

// sync brings one network in step.
func (c *Controller) sync(ctx context.Context, id string) error {
	namespace, name, _ := strings.Cut(id, "/")
	config, found, err := c.source.NetworkConfig(ctx, namespace, name)
	if err != nil {
		return err
	}
	kind, err := conf.NetworkKind([]byte(config))
	if !found || err != nil || kind != conf.NetworkType {
		return c.networks.Remove(ctx, id)
	}
	network, err := conf.ParseNetwork(namespace, name, []byte(config))
	if err != nil {
		return err
	}
	changed, err := c.networks.Ensure(ctx, network)
	if changed {
		c.log.Info("network is in step", "network", id)
	}
	return err
}
