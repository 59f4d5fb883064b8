// Package deviceinfo owns the Device Information Specification 1.1.0 (k8snetworkplumbingwg/device-info-spec): what the
// files of device plugins and CNI plugins must have, and how they are read and written. It may not ask kubelet, and it
// trusts no file, because every plugin of the node writes into the folders.
package deviceinfo
