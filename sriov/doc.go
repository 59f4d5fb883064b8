// Package sriov owns which device a pod was given: it asks kubelet, chooses one for each attachment, and reads what a device
// plugin says of it. It may not read annotations, and touches no device.
package sriov
