// Package kube owns a real Kubernetes on top of the lab: its nodes are the lab's, with OVS and ovn-controller, and it
// may not touch anything outside the lab's namespaces but control groups below one of its own, and the cache folder.
//
// A process that uses it calls [Main] or [Enter] instead of the lab's. That builds Kubernetes, etcd and flanneld into
// one program, once per version: some ten minutes on two cores. [New] then brings a cluster up in some ten seconds:
//
//	central netns    etcd, kube-apiserver, kube-controller-manager, kube-scheduler
//	node netns       as the lab's; beside OVS: containerd, kubelet, flanneld (VXLAN over eth0), kube-proxy
//
// Each node has mount, PID, UTS and IPC namespaces of its own, below a first process that ends them all. Its root is
// an overlay on the machine's: whatever is written there stays there. /run, /etc/cni, /opt/cni, /var/lib/cni,
// /var/lib/kubelet, /var/lib/containerd and some more begin empty; OVS's sockets are in /run/openvswitch.
package kube
