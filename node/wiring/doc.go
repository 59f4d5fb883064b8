// Package wiring owns what a pod's interfaces are in the kernel: the veths, their addresses and the pod's routes. It
// also owns what the CNI results say about these routes. It may not run a program, and knows neither the agent's
// socket nor the journal.
package wiring
