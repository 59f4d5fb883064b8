// Package nodesubnet owns the allocation of node subnets: it gives a node its subnet and its switch of a layer3 network.
// It may not change what the controller accepted.
package nodesubnet
