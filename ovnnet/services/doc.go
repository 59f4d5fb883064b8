// Package services owns the rows of services in NB: load balancers and their groups, the claims on virtual addresses,
// and the private router of a network that is on no router. It may not touch networks and the ports of pods.
package services
