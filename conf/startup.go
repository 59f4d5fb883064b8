package conf

// StartupTaint is the key of the taint of a node whose pods would not get their networks yet. An operator may give it
// to a node by kubelet's --register-with-taints; the controller removes it.
const StartupTaint = "ovn-multinet/not-ready"

// ReadyLabel is the label of a node that was ready for pods with networks once. Its value is ReadyValue.
const (
	ReadyLabel = "ovn-multinet/ready"
	ReadyValue = "true"
)

// DistrustedLabel is the label of a node that an operator does not trust any more: it gets no certificate, and those
// that it has end. No kubelet can remove a label with this ending (admission plugin NodeRestriction).
const DistrustedLabel = "ovn-multinet.node-restriction.kubernetes.io/distrusted"

// Distrusted reports whether a node with these labels is distrusted, whatever the label's value is.
func Distrusted(labels map[string]string) bool {
	_, is := labels[DistrustedLabel]
	return is
}
