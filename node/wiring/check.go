package wiring

import (
	"errors"
	"fmt"

	"github.com/containernetworking/plugins/pkg/netlinksafe"
	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/conf"
)

// Check compares the links and addresses that the kernel has with the plan.
func Check(netns string, s *agentapi.Sandbox, p *agentapi.Plan) error {
	for _, i := range p.Interfaces {
		if _, err := netlinksafe.LinkByName(agentapi.HostVeth(s.ContainerID, i.Name)); err != nil {
			return differs(i.Name, fmt.Errorf("host-side veth: %w", err))
		}
	}
	pod, err := ns.GetNS(netns)
	if err != nil {
		return conf.Errorf(conf.CodeNotAsMade, "recreate the pod", "the pod's network namespace: %w", err)
	}
	defer pod.Close()
	return pod.Do(func(ns.NetNS) error {
		for i := range p.Interfaces {
			n := &p.Interfaces[i]
			link, err := checkPodVeth(n)
			if err == nil {
				err = checkRoutes(p, n, link)
			}
			if err != nil {
				return differs(n.Name, err)
			}
		}
		return nil
	})
}

func differs(ifName string, err error) error {
	return conf.Errorf(conf.CodeNotAsMade, "someone changed it in the pod or on the node; recreate the pod",
		"interface %s is not as it was made: %w", ifName, err)
}

// checkPodVeth compares MAC and addresses of an interface with the plan.
func checkPodVeth(i *agentapi.Interface) (netlink.Link, error) {
	link, err := netlinksafe.LinkByName(i.Name)
	if err != nil {
		return nil, err
	}
	one := inspection{i: i, link: link}
	if err := errors.Join(one.mac(), one.addresses(i.Addresses)); err != nil {
		return nil, err
	}
	return link, one.first()
}
