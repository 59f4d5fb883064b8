package netmodel

import "net/netip"

// Node is a node of the cluster, with what the project uses of it. The labels must not be changed.
type Node struct {
	Name   string
	UID    string // of the Node; empty in a folder
	Labels map[string]string
	// Addresses are the node's own, and PodSubnets those of its pods' first interfaces; empty if the source does not know.
	Addresses  []netip.Addr
	PodSubnets []netip.Prefix
}
