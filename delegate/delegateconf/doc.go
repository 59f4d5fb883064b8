// Package delegateconf owns what the configuration of a delegate may say: the programs that it runs, the keys that all
// programs read alike, and the keys of the plugins that the manifests allow. It may touch neither files nor sockets nor
// Kubernetes.
package delegateconf
