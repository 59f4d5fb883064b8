// Package install owns the two files on a node that make the runtime call the plugin: the binary in the folder of CNI
// plugins, and the conflist that chains the plugin after the primary network's plugins. It writes no other file, and
// it knows neither Kubernetes nor OVN.
package install
