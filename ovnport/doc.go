// Package ovnport owns the ports of one pod: the lease of their addresses, their rows in OVN's Northbound
// database, their plugging into the node's Open vSwitch, the wait for their flows and their release; it may
// know nothing of Kubernetes and touch no network namespace.
//
// The port row is the lease. Its _uuid holds the address, so two nodes that want one address insert the same
// primary key and the database refuses the second. Every further address of a port, and a fixed MAC, is a claim:
// a row of the table Copp (which OVN does not look at) with a key of the same scheme.
package ovnport
