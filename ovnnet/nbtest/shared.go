package nbtest

// IsShared returns a spec.config of ovn-kubernetes' type, whose name is the network's.
func IsShared(name, keys string) string {
	return `{"cniVersion":"1.0.0","type":"ovn-k8s-cni-overlay","name":"` + name + `","topology":"layer2",` + keys + `}`
}
