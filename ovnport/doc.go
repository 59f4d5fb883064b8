// Package ovnport owns the ports of one pod: their leases and claims, their rows in OVN's Northbound database, their
// OVS ports, the wait for their flows, and their release; it may know nothing of Kubernetes and touch no network
// namespace.
//
// The row of a port is the lease of its first address: its _uuid is made from the address. Two nodes that lease one
// address insert the same primary key, and the database refuses the second one. Each further address of a port, and a
// fixed MAC, is a claim: a row of the table Copp, which OVN ignores, with a key of the same kind.
package ovnport
