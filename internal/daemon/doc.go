// Package daemon owns what the main functions of agent and controller share beyond package program: the connections to
// the Northbound database and to the Kubernetes API, their flags, and the metrics endpoint. It contains nothing of the
// daemons' work.
package daemon
