// Package ovnnet owns the logical switches of OVN networks and their connection to routers: it writes the rows of a
// network as the accepted configuration describes them. It may not touch the ports of pods, and it knows no Kubernetes.
//
// A change of a network goes through the files in this order, and each calls only those after it: network.go, read.go
// (what NB has), rows.go (the wanted rows), judge.go with join.go and router.go (what the change may do, and what its
// transaction asserts), write.go (the operations). Below them are ports.go, ipam.go and stored.go.
package ovnnet
