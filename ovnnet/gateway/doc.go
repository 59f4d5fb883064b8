// Package gateway owns the gateways of routers: their rows, the order of their nodes, and what a node's agent writes for
// them. It may not touch the rows of networks.
package gateway
