// Package agent owns the credentials: it answers the plugin's requests from Kubernetes and OVN, through one
// long-lived connection to each, and it may neither enter a network namespace nor run another program.
package agent
