// Package conf owns what operators write: the plugin's entry in the conflist and the flags of agent and controller. It
// also owns the table of error codes. It parses, fills in defaults and validates, and may touch neither files nor
// sockets nor Kubernetes.
package conf
