// Package attach owns the runs of the plugin for pods that run already: the node's agent says for which, when a pod's
// annotation names other networks than the pod has. It has no credential and makes no connection but to the agent's
// socket, and it touches no network namespace: the plugin does, which it runs as the container runtime would.
package attach
