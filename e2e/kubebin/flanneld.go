package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/flannel-io/flannel/pkg/backend"
	_ "github.com/flannel-io/flannel/pkg/backend/vxlan" // registers itself
	"github.com/flannel-io/flannel/pkg/ip"
	"github.com/flannel-io/flannel/pkg/subnet"
	"github.com/flannel-io/flannel/pkg/subnet/kube"
	"github.com/flannel-io/flannel/pkg/trafficmngr/iptables"
)

// The values that Flannel's own manifest leaves at their defaults.
const (
	annotationPrefix = "flannel.alpha.coreos.com"
	resyncSeconds    = 5
)

type flannelFlags struct{ kubeconfig, netConf, iface, subnetFile string }

// flanneld does what Flannel's own main does with --kube-subnet-mgr --ip-masq. That one also links the etcd
// subnet manager. NODE_NAME in the environment says which node this is.
func flanneld() int {
	var f flannelFlags
	flags := flag.NewFlagSet("flanneld", flag.ExitOnError)
	flags.StringVar(&f.kubeconfig, "kubeconfig-file", "", "how to reach the API server")
	flags.StringVar(&f.netConf, "net-config-path", "/etc/kube-flannel/net-conf.json", "the network's configuration")
	flags.StringVar(&f.iface, "iface", "eth0", "interface to the other nodes")
	flags.StringVar(&f.subnetFile, "subnet-file", "/run/flannel/subnet.env", "file to write for the CNI plugin")
	_ = flags.Parse(os.Args[1:])

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := runFlannel(ctx, f); err != nil && ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, "flanneld:", err)
		return 1
	}
	return 0
}

func runFlannel(ctx context.Context, f flannelFlags) error {
	var running sync.WaitGroup
	ctx, cancel := context.WithCancel(ctx)
	defer running.Wait()
	defer cancel()

	iface, err := externalInterface(f.iface)
	if err != nil {
		return err
	}
	leases, err := kube.NewSubnetManager(ctx, "", f.kubeconfig, annotationPrefix, f.netConf, true)
	if err != nil {
		return err
	}
	config, err := leases.GetNetworkConfig(ctx)
	if err != nil {
		return fmt.Errorf("read the network's configuration: %w", err)
	}
	be, err := backend.NewManager(ctx, leases, iface).GetBackend(config.BackendType)
	if err != nil {
		return err
	}
	network, err := be.RegisterNetwork(ctx, &running, config)
	if err != nil {
		return fmt.Errorf("register the network: %w", err)
	}
	if err := forward(ctx, config, network, f.subnetFile); err != nil {
		return err
	}
	lease := network.Lease()
	if err := leases.HandleSubnetFile(f.subnetFile, config, true, lease.Subnet, lease.IPv6Subnet, network.MTU()); err != nil {
		return fmt.Errorf("write %s: %w", f.subnetFile, err)
	}
	running.Go(func() { network.Run(ctx) })
	if err := leases.CompleteLease(ctx, lease, &running); err != nil {
		return fmt.Errorf("complete the lease: %w", err)
	}
	<-ctx.Done()
	return nil
}

// forward lets pods' packets through the node, and hides the addresses of those that leave the pod network.
func forward(ctx context.Context, config *subnet.Config, network backend.Network, subnetFile string) error {
	rules := &iptables.IPTablesManager{}
	if err := rules.Init(ctx); err != nil {
		return err
	}
	// What a former run was given is in the file it left; the lab's nodes keep their subnet.
	var before ip.IP4Net
	if _, err := os.Stat(subnetFile); err == nil {
		before = network.Lease().Subnet
	}
	err := rules.SetupAndEnsureMasqRules(ctx, config.Network, before, config.Network,
		config.IPv6Network, ip.IP6Net{}, config.IPv6Network, network.Lease(), resyncSeconds, false)
	if err != nil {
		return fmt.Errorf("set up masquerading: %w", err)
	}
	rules.SetupAndEnsureForwardRules(ctx, config.Network, config.IPv6Network, resyncSeconds)
	return nil
}

func externalInterface(name string) (*backend.ExternalInterface, error) {
	iface, err := net.InterfaceByName(name)
	if err != nil {
		return nil, fmt.Errorf("find %s: %w", name, err)
	}
	addrs, err := ip.GetInterfaceIP4Addrs(iface)
	if err != nil {
		return nil, fmt.Errorf("find the address of %s: %w", name, err)
	}
	if len(addrs) == 0 {
		return nil, errors.New(name + " has no IPv4 address")
	}
	return &backend.ExternalInterface{Iface: iface, IfaceName: name, IfaceAddr: addrs[0], ExtAddr: addrs[0]}, nil
}
