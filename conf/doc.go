// Package conf owns what operators write: the plugin's entry in the conflist, the flags of agent and controller, and the
// list of programs that delegates may run. It also owns the table of error codes. It parses, fills in defaults and
// validates, and may touch neither files nor sockets nor Kubernetes.
package conf
