// Package lab owns a real OVN of N nodes with Flannel's CNI chain on one machine, driven as containerd drives
// it, and may not touch anything outside the namespaces and folders it makes itself.
//
// A process that uses the lab calls [Main] (from TestMain) or [Enter] (from a command) first. That runs the
// program once more in new mount, PID, network, UTS and IPC namespaces, with a private /proc, /run and
// /var/lib/cni. The PID namespace is what cleans up: when the process ends, however it ends, everything that
// it started, mounted and wrote ends with it. [New] then builds a lab:
//
//	central netns    NB, SB, northd, the controller        172.31.0.1 on the node network
//	node netns       OVS database, ovs-vswitchd, ovn-controller, the agent
//	  eth0           the node network, MTU 1500, 172.31.1.<i>; Flannel's host-gw routes
//	  eth1           the underlay, MTU 1600, a port of the netdev bridge br-phy, which has 172.30.1.<i>
//	  cni0           Flannel's bridge, 10.244.<i>.1/24
//	  ext0           with Options.Physical: a port of br-ex, a trunk of the switch outside
//	tor netns        that switch, an Open vSwitch of its own; machines of [Lab.Outside] hang on it
//	fabric netns     the two switches that the NICs hang on
//	pod netns        made by [Node.NewPod]; filled by [Pod.Add] through libcni
//
// Everything runs OVS's userspace datapath, so no kernel module is needed; Options.KernelDatapath is for machines that have it.
package lab
