// Package install owns what a node needs so that its runtime calls the plugin: the binary in the folder of CNI
// plugins and the conflist that chains it after the primary network's; it may touch no other file and knows neither
// Kubernetes nor OVN.
package install
