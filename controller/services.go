package controller

import (
	"context"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/ovn-multinet/ovn-multinet/policy"
	"github.com/ovn-multinet/ovn-multinet/service"
)

// ServiceSource is the controller's source of Services on networks, and of the pods that they select. Each method waits
// until the source has everything, and fails at the end of ctx.
type ServiceSource interface {
	// Services returns the Services of a namespace that are ours, in any order.
	Services(ctx context.Context, namespace string) ([]*service.Object, error)
	// Service returns one Service; nil if it does not exist or is not ours.
	Service(ctx context.Context, namespace, name string) (*service.Object, error)
	// ServiceNamespaces returns the namespaces that have such Services.
	ServiceNamespaces(ctx context.Context) ([]string, error)
	// PolicyPods returns the pods of a namespace that request networks.
	PolicyPods(ctx context.Context, namespace string) ([]*policy.Pod, error)
	// SetServiceState writes the state onto a Service. If the Service is gone, the error is netmodel.ErrNotFound.
	SetServiceState(ctx context.Context, o *service.Object, state string) error
	// SetEndpoints makes the EndpointSlices that we have written for a Service the wanted ones, and deletes the others. The
	// source adds the namespace, the labels and the owner. It writes nothing that is there already.
	SetEndpoints(ctx context.Context, o *service.Object, wanted []discoveryv1.EndpointSlice) error
	// ServiceEvent records an Event for the Service. It does not wait.
	ServiceEvent(o *service.Object, warning bool, reason, message string)
}
