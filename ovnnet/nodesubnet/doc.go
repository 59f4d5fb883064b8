// Package nodesubnet owns the allocation of node subnets: it gives a node its subnets and its node switch of a layer3
// network. It may not change what the controller has accepted.
package nodesubnet
