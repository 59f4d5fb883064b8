// Package conf owns what operators write (the plugin's entry of the conflist, the flags of agent and
// controller, the OVN network in a NetworkAttachmentDefinition's spec.config) and the table of error codes;
// it parses, fills in defaults and validates, and may touch neither files nor sockets nor Kubernetes.
package conf
