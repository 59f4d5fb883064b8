// Package sriov owns the choice of devices: it asks kubelet which devices a pod has, and chooses one for each
// attachment. It may neither read annotations nor touch a device.
package sriov
