// Package e2e owns the scenarios: what the whole product does on a real OVN and the real Flannel plugin, asserted on
// the state of the world. It may hold nothing that the product needs.
package e2e
