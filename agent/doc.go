// Package agent owns the keys: it answers the plugin's questions from Kubernetes and OVN, through one long-lived
// connection to each, and it may neither enter a network namespace nor run another program.
package agent
