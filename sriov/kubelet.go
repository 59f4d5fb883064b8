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
	// askTimeout bounds one question: kubelet answers from memory, but may be starting.
	askTimeout = 5 * time.Second
	// askAgainFor is how long a kubelet is asked again that is asked too often at the moment: it takes a hundred
	// questions a second, of all who ask.
	askAgainFor = 20 * time.Second
	// maxAnswer is kubelet's own limit on an answer.
	maxAnswer = 16 << 20
)

// Devices returns the devices that kubelet gave to all containers of a pod, by resource, each once and sorted: an
// order that stays when kubelet lists them in another.
//
// The method is List, which every kubelet that has the API serves. Get answers for one pod alone, but is an option
// of younger ones.
func (k *Kubelet) Devices(ctx context.Context, namespace, pod string) (map[string][]string, error) {
	// A connection of its own: the question is rare, and kubelet makes its socket anew at each start.
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

func ask(ctx context.Context, client podresources.PodResourcesListerClient) (answer *podresources.ListPodResourcesResponse, err error) {
	pause := backoff.NewExponentialBackOff(backoff.WithInitialInterval(20*time.Millisecond), backoff.WithMaxInterval(time.Second), backoff.WithMaxElapsedTime(askAgainFor))
	var limited error
	err = backoff.Retry(func() error {
		ctx, cancel := context.WithTimeout(ctx, askTimeout)
		defer cancel()
		answer, err = client.List(ctx, &podresources.ListPodResourcesRequest{}, grpc.WaitForReady(true), grpc.MaxCallRecvMsgSize(maxAnswer))
		if status.Code(err) == codes.ResourceExhausted {
			limited = err
			return err
		}
		return backoff.Permanent(err)
	}, backoff.WithContext(pause, ctx))
	if err != nil && limited != nil && ctx.Err() != nil {
		err = limited // that the time is over says nothing
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
