// Package netmodel owns the model of an OVN network: what a NetworkAttachmentDefinition and the controller's
// configuration say of networks, routers and physical networks, parsed, completed with defaults and validated. A model
// is immutable. The package may touch neither files nor sockets nor the Kubernetes API.
package netmodel
