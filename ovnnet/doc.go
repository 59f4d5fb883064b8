// Package ovnnet owns the networks: it keeps OVN's logical switches and routers in step with the
// NetworkAttachmentDefinitions, which is the controller's work, and tells what is there; it may not touch the
// interfaces of pods and knows no Kubernetes.
package ovnnet
