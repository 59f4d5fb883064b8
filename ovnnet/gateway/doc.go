// Package gateway owns the gateways of routers: their rows, the priorities of their nodes, and what a node's agent
// writes for them. It may not touch the rows of networks.
package gateway
