// Package outside owns the rows of outside addresses in NB: the NAT rows of pods in the gateways of routers, the load
// balancers of Services there with the ACLs that say which hosts reach them, the claims on these addresses, and the
// lists that limit what a namespace has of a pool. It may not touch other rows of gateways and the ports of pods.
//
// A change goes through the files in this order, and each calls only those after it: outside.go, read.go (what NB has),
// judge.go (which addresses a user gets; only its search for a free address reads again), rows.go (the wanted rows),
// write.go and ended.go (the operations). Below them are wanted.go (what a caller asks for), book.go (claims and limits
// of addresses) and entry.go (a user and its addresses).
package outside
