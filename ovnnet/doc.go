// Package ovnnet owns the networks: it keeps OVN's logical switches in step with the NetworkAttachmentDefinitions,
// which is the controller's work; it may not touch the interfaces of pods and knows no Kubernetes.
package ovnnet
