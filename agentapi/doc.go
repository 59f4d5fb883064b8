// Package agentapi owns the contract between plugin and agent: what to wire for one pod, the messages about it, their
// codec and the plugin's end of the socket; it may use nothing but the standard library and the CNI types, for it
// is linked into the plugin.
package agentapi
