// Package agentapi owns the protocol between plugin and agent: the messages, their codec and the plugin's client.
// It may use only the standard library and the CNI types, because the plugin links it.
package agentapi
