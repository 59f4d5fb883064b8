// Package deviceplugin owns a device plugin without devices: kubelet gives names to pods that mean nothing. It speaks kubelet's
// own protocol, and may not know what a pod or a network is.
package deviceplugin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	kubelet "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// Device is one that is offered.
type Device struct {
	ID   string
	Info string // what its file for device information says; "": it has none
}

// Options say what is offered, and where.
type Options struct {
	Resource string
	// Devices are offered, and preferred, in this order.
	Devices []Device
	// Dir is kubelet's folder for device plugins, InfoDir the one for device information: as this process sees them.
	Dir, InfoDir string
}

// Plugin offers devices until it is stopped. When kubelet starts again, which forgets its plugins, it registers again.
type Plugin struct {
	kubelet.UnimplementedDevicePluginServer

	o       Options
	watcher *fsnotify.Watcher
	stop    context.CancelFunc
	done    sync.WaitGroup

	mu         sync.Mutex
	registered int
	failure    error
	allocated  [][]string
}

// registerTimeout is for a kubelet that has made its socket and does not serve it yet.
const registerTimeout = 30 * time.Second

// Start registers as soon as there is a kubelet.
func Start(o Options) (*Plugin, error) {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, err
	}
	if err := errors.Join(os.MkdirAll(o.Dir, 0o750), os.MkdirAll(o.InfoDir, 0o755), watcher.Add(o.Dir)); err != nil {
		return nil, errors.Join(err, watcher.Close())
	}
	ctx, stop := context.WithCancel(context.Background())
	p := &Plugin{o: o, watcher: watcher, stop: stop}
	p.done.Go(func() { p.run(ctx) })
	return p, nil
}

// Stop ends the plugin and takes its files away.
func (p *Plugin) Stop() error {
	p.stop()
	p.done.Wait()
	errs := []error{p.watcher.Close()}
	for _, d := range p.o.Devices {
		if err := os.Remove(p.infoFile(d.ID)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Registered counts how often kubelet has taken the plugin on. An error is the last attempt's.
func (p *Plugin) Registered() (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.registered, p.failure
}

// Allocated are the devices of each container that kubelet has asked for, in the order of its questions, each sorted.
func (p *Plugin) Allocated() [][]string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.allocated)
}

func (p *Plugin) path(name string) string { return filepath.Join(p.o.Dir, name) }

// socket is the plugin's, beside kubelet's.
func (p *Plugin) socket() string {
	return strings.NewReplacer("/", "-", ".", "-").Replace(p.o.Resource) + ".sock"
}

func (p *Plugin) infoFile(id string) string {
	return filepath.Join(p.o.InfoDir, strings.ReplaceAll(p.o.Resource, "/", "-")+"-"+id+"-device.json")
}

// run serves anew for each kubelet: one that starts removes all sockets of the folder and makes its own.
func (p *Plugin) run(ctx context.Context) {
	kubeletSocket := filepath.Base(kubelet.KubeletSocket)
	end := func() {}
	defer func() { end() }()
	begin := func() {
		end()
		server, err := p.serve(ctx)
		end = func() {
			if server != nil {
				server.Stop()
			}
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.failure = err; err == nil {
			p.registered++
		}
	}
	if _, err := os.Stat(p.path(kubeletSocket)); err == nil {
		begin()
	}
	for {
		select {
		case <-ctx.Done():
			return
		case e := <-p.watcher.Events:
			if e.Has(fsnotify.Create) && filepath.Base(e.Name) == kubeletSocket {
				begin()
			}
		}
	}
}

// serve listens and registers.
func (p *Plugin) serve(ctx context.Context) (*grpc.Server, error) {
	if err := os.Remove(p.path(p.socket())); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	listener, err := net.Listen("unix", p.path(p.socket()))
	if err != nil {
		return nil, err
	}
	server := grpc.NewServer()
	kubelet.RegisterDevicePluginServer(server, p)
	p.done.Go(func() { _ = server.Serve(listener) })
	if err := p.register(ctx); err != nil {
		server.Stop()
		return nil, fmt.Errorf("register %s with kubelet: %w", p.o.Resource, err)
	}
	return server, nil
}

func (p *Plugin) register(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, registerTimeout)
	defer cancel()
	conn, err := grpc.NewClient("unix:"+p.path(filepath.Base(kubelet.KubeletSocket)), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = kubelet.NewRegistrationClient(conn).Register(ctx, &kubelet.RegisterRequest{
		Version: kubelet.Version, Endpoint: p.socket(), ResourceName: p.o.Resource,
		Options: &kubelet.DevicePluginOptions{GetPreferredAllocationAvailable: true},
	}, grpc.WaitForReady(true))
	return err
}

// GetDevicePluginOptions is the API's method.
func (p *Plugin) GetDevicePluginOptions(context.Context, *kubelet.Empty) (*kubelet.DevicePluginOptions, error) {
	return &kubelet.DevicePluginOptions{GetPreferredAllocationAvailable: true}, nil
}

// ListAndWatch is the API's method: all devices are there and well, for as long as the plugin is.
func (p *Plugin) ListAndWatch(_ *kubelet.Empty, stream grpc.ServerStreamingServer[kubelet.ListAndWatchResponse]) error {
	list := &kubelet.ListAndWatchResponse{}
	for _, d := range p.o.Devices {
		list.Devices = append(list.Devices, &kubelet.Device{ID: d.ID, Health: kubelet.Healthy})
	}
	if err := stream.Send(list); err != nil {
		return err
	}
	<-stream.Context().Done()
	return nil
}

// GetPreferredAllocation is the API's method: without it kubelet takes any.
func (p *Plugin) GetPreferredAllocation(_ context.Context, r *kubelet.PreferredAllocationRequest) (*kubelet.PreferredAllocationResponse, error) {
	answer := &kubelet.PreferredAllocationResponse{}
	for _, c := range r.GetContainerRequests() {
		ids := slices.Clone(c.GetMustIncludeDeviceIDs())
		for _, d := range p.o.Devices {
			if len(ids) < int(c.GetAllocationSize()) && slices.Contains(c.GetAvailableDeviceIDs(), d.ID) && !slices.Contains(ids, d.ID) {
				ids = append(ids, d.ID)
			}
		}
		answer.ContainerResponses = append(answer.ContainerResponses, &kubelet.ContainerPreferredAllocationResponse{DeviceIDs: ids})
	}
	return answer, nil
}

// Allocate is the API's method. The container gets nothing; what the devices are is written down for others.
func (p *Plugin) Allocate(_ context.Context, r *kubelet.AllocateRequest) (*kubelet.AllocateResponse, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	answer := &kubelet.AllocateResponse{}
	for _, c := range r.GetContainerRequests() {
		ids := slices.Clone(c.GetDevicesIds())
		slices.Sort(ids)
		for _, id := range ids {
			if err := p.inform(id); err != nil {
				return nil, err
			}
		}
		p.allocated = append(p.allocated, ids)
		answer.ContainerResponses = append(answer.ContainerResponses, &kubelet.ContainerAllocateResponse{})
	}
	return answer, nil
}

func (p *Plugin) inform(id string) error {
	i := slices.IndexFunc(p.o.Devices, func(d Device) bool { return d.ID == id })
	if i < 0 {
		return fmt.Errorf("device %s of resource %s is not offered", id, p.o.Resource)
	}
	if p.o.Devices[i].Info == "" {
		return nil
	}
	return os.WriteFile(p.infoFile(id), []byte(p.o.Devices[i].Info), 0o644)
}
