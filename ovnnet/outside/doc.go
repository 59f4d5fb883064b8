// Package outside owns the rows of outside addresses in NB: the NAT rows of pods in the gateways of routers, the load
// balancers of Services there with the ACLs that say which hosts reach them, the claims on these addresses, and the
// lists that limit what a namespace has of a pool. It may not touch other rows of gateways and the ports of pods.
package outside
