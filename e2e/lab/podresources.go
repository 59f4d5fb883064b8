package lab

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"sync"

	"google.golang.org/grpc"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// PodResources answers in kubelet's place on a node: the real API over the real protocol, but the devices of pods are what the
// test says. No kubelet runs in the lab; the suite on a real Kubernetes has the real one.
type PodResources struct {
	podresources.UnimplementedPodResourcesListerServer

	mu    sync.Mutex
	pods  []*podresources.PodResources
	asked int
	// Refuse, if it is set, is asked before each answer, with the number of the question; an error is the answer. Set it before
	// a Give or a Take: the server learns of it by their lock.
	Refuse func(question int) error
}

// ServePodResources serves the node's socket until the returned function is called.
func (n *Node) ServePodResources() (p *PodResources, stop func(), err error) {
	if err := os.Remove(n.PodResources); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, err
	}
	l, err := net.Listen("unix", n.PodResources)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: pod resources: %w", n.Name, err)
	}
	p = &PodResources{}
	server := grpc.NewServer()
	podresources.RegisterPodResourcesListerServer(server, p)
	var done sync.WaitGroup
	done.Go(func() { _ = server.Serve(l) })
	return p, func() { server.Stop(); done.Wait() }, nil
}

// Give says what the containers of a pod have, each a map from resource to devices. It replaces what was said before.
func (p *PodResources) Give(namespace, pod string, containers ...map[string][]string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.take(namespace, pod)
	r := &podresources.PodResources{Namespace: namespace, Name: pod}
	for i, devices := range containers {
		c := &podresources.ContainerResources{Name: fmt.Sprintf("c%d", i)}
		for resource, ids := range devices {
			c.Devices = append(c.Devices, &podresources.ContainerDevices{ResourceName: resource, DeviceIds: ids})
		}
		r.Containers = append(r.Containers, c)
	}
	p.pods = append(p.pods, r)
}

// Take forgets a pod, as kubelet does when it has ended.
func (p *PodResources) Take(namespace, pod string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.take(namespace, pod)
}

func (p *PodResources) take(namespace, pod string) {
	for i, r := range p.pods {
		if r.Namespace == namespace && r.Name == pod {
			p.pods = append(p.pods[:i:i], p.pods[i+1:]...)
			return
		}
	}
}

// Asked counts the questions since the start.
func (p *PodResources) Asked() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked
}

// List is the API's method.
func (p *PodResources) List(context.Context, *podresources.ListPodResourcesRequest) (*podresources.ListPodResourcesResponse, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked++
	if p.Refuse != nil {
		if err := p.Refuse(p.asked); err != nil {
			return nil, err
		}
	}
	return &podresources.ListPodResourcesResponse{PodResources: append([]*podresources.PodResources(nil), p.pods...)}, nil
}
