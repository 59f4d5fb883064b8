// Package wiring owns what the kernel has of a pod's interfaces: the veths, their addresses, the pod's routes, and what
// the CNI results say of these routes. It may not run a program, and knows neither the agent's socket nor the journal.
package wiring
