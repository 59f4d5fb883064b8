package conf

// StartupTaint is the key of the taint of a node whose pods would not get their networks yet. An operator may give it
// to a node by kubelet's --register-with-taints; the controller removes it.
const StartupTaint = "ovn-multinet/not-ready"

// ReadyLabel is the label of a node that was ready for pods with networks once. Its value is ReadyValue.
const (
	ReadyLabel = "ovn-multinet/ready"
	ReadyValue = "true"
)
