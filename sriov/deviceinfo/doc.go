// Package deviceinfo owns the Device Information Specification 1.1.0 (k8snetworkplumbingwg/device-info-spec): it reads,
// validates and writes the files of device plugins and CNI plugins. It may not ask kubelet. It trusts no file, because
// every plugin on the node can write into the folders.
package deviceinfo
