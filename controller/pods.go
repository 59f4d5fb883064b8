package controller

import (
	"context"
	"net/netip"

	"github.com/ovn-multinet/ovn-multinet/policy"
)

// PodSource is the controller's source of pods.
type PodSource interface {
	// PolicyPods returns the pods of a namespace that request networks. It waits until the source has all pods, and fails
	// at the end of ctx.
	PolicyPods(ctx context.Context, namespace string) ([]*policy.Pod, error)
}

// PodPort is a port of a pod.
type PodPort struct {
	Key, Name, Network, Namespace, Pod, Interface, UID, Sandbox string
	Addresses                                                   []netip.Addr
	// PodVersion is the resource version of the pod that the port's groups were chosen by; "": unknown.
	PodVersion string
}

// PodPorts reads the ports of pods.
type PodPorts interface {
	// On returns the ports of the pods on nodes.
	On(ctx context.Context, nodes []string) ([]PodPort, error)
	// ByKey returns the ports with these row keys, without those that are gone.
	ByKey(ctx context.Context, keys []string) ([]PodPort, error)
}
