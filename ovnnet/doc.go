// Package ovnnet owns the logical switches of OVN networks and their connection to routers: it makes the rows of a
// network what the accepted configuration says. It may not touch the ports of pods, and it knows no Kubernetes.
package ovnnet
