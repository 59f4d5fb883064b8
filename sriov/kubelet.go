package sriov

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v4"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/ovn-multinet/ovn-multinet/conf"
)

// Kubelet is kubelet's pod-resources API on this node.
type Kubelet struct{ Socket string }

const (
	// askTimeout limits one request. Kubelet answers from memory, but it may be starting.
	askTimeout = 5 * time.Second
	// askAgainFor is how long to retry while kubelet limits the request rate: it accepts 100 requests a second from all
	// its clients together.
	askAgainFor = 20 * time.Second
	// maxAnswer is kubelet's own limit on the size of an answer, in bytes.
	maxAnswer = 16 << 20
)

// Devices returns the IDs of the devices that kubelet gave to all containers of a pod, by resource. The IDs are sorted
// and unique, so the result does not depend on the order in which kubelet lists the devices.
//
// Devices uses the method List, which each kubelet with this API has. The method Get returns a single pod, but only
// newer kubelets have it, and there it is optional.
func (k *Kubelet) Devices(ctx context.Context, namespace, pod string) (map[string][]string, error) {
	// Open a new connection for each call: calls are rare, and kubelet creates a new socket at each start.
	conn, err := grpc.NewClient("unix:"+k.Socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, k.noAnswer(err)
	}
	defer conn.Close()
	answer, err := ask(ctx, podresources.NewPodResourcesListerClient(conn))
	if err != nil {
		return nil, k.noAnswer(err)
	}
	devices := map[string][]string{}
	for _, p := range answer.GetPodResources() {
		if p.GetNamespace() != namespace || p.GetName() != pod {
			continue
		}
		for _, c := range p.GetContainers() {
			for _, d := range c.GetDevices() {
				devices[d.GetResourceName()] = append(devices[d.GetResourceName()], d.GetDeviceIds()...)
			}
		}
	}
	for resource, ids := range devices {
		slices.Sort(ids)
		devices[resource] = slices.Compact(ids)
	}
	return devices, nil
}

// ask lists the resources of all pods. It retries while kubelet limits the request rate.
func ask(
	ctx context.Context, client podresources.PodResourcesListerClient,
) (answer *podresources.ListPodResourcesResponse, err error) {
	pause := backoff.NewExponentialBackOff(backoff.WithInitialInterval(20*time.Millisecond),
		backoff.WithMaxInterval(time.Second), backoff.WithMaxElapsedTime(askAgainFor))
	var limited error
	err = backoff.Retry(func() error {
		ctx, cancel := context.WithTimeout(ctx, askTimeout)
		defer cancel()
		answer, err = client.List(ctx, &podresources.ListPodResourcesRequest{},
			grpc.WaitForReady(true), grpc.MaxCallRecvMsgSize(maxAnswer))
		if status.Code(err) == codes.ResourceExhausted {
			limited = err
			return err
		}
		return backoff.Permanent(err)
	}, backoff.WithContext(pause, ctx))
	if err != nil && limited != nil && ctx.Err() != nil {
		err = limited // this error says more than the end of ctx
	}
	return answer, err
}

func (k *Kubelet) noAnswer(err error) error {
	if s, ok := status.FromError(err); ok && s.Message() != "" {
		err = errors.New(s.Message())
	}
	return conf.Errorf(conf.CodeTryAgain, "does kubelet run, and is --pod-resources-socket its socket on this node?",
		"which devices the pod has: kubelet's pod-resources API at %s: %w", k.Socket, err)
}
