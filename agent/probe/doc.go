// Package probe owns the question whether another host uses a pod's address: ARP probes (RFC 5227), the neighbour
// solicitations of duplicate address detection (RFC 4862), and the answers to both. It gets a packet socket, and opens
// none.
package probe
