// Package agentapi owns the protocol between plugin and agent: the messages, their codec and the plugin's client. It
// may import only the standard library, the CNI types and package conf, because the plugin links it.
package agentapi
