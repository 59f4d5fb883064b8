package nbtest

// shared writes a spec.config as ovn-kubernetes has it: its name is the network's.
func IsShared(name, keys string) string {
	return `{"cniVersion":"1.0.0","type":"ovn-k8s-cni-overlay","name":"` + name + `","topology":"layer2",` + keys + `}`
}
