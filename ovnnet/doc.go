// Package ovnnet owns the logical switches of OVN networks and their connection to routers: it writes the rows of a
// network as the accepted configuration describes them. It may not touch the ports of pods, and it knows no Kubernetes.
package ovnnet
