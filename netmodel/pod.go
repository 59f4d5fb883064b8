package netmodel

// Pod is what agent and controller need of a pod.
type Pod struct {
	Namespace, Name, UID string
	// Mirror is the UID that kubelet and the container runtime use for a static pod, whose object in the API mirrors it.
	Mirror string
	Node   string // "": the pod is not bound to a node yet
	// Annotations are those of its networks. The controller does not need them.
	Annotations map[string]string
	Labels      map[string]string
	// ManyLabels tells that the labels are longer than policy.MaxLabels. They are not kept then.
	ManyLabels bool
	// Ports are the named ports of the containers, as of policy.NamedPorts, if the pod requests networks.
	Ports []string
	// Version is the resource version of this copy; "" in a manifest that has none.
	Version string
	// Ready tells that the pod is ready and is not being deleted. The agent does not need it.
	Ready bool
	// Running tells that a container of the pod runs, or ends again and again, and that the pod is not being deleted. In
	// a manifest, status.phase says that the pod runs. The controller does not need it.
	Running bool
	// Ending tells that the pod is being deleted.
	Ending bool
	// Controller is the object that makes the pod, such as "Deployment web", if the pod requests networks.
	Controller string
	// Outside is the value of conf.OutsideAnnotation, and OutsideState what the controller wrote about it.
	Outside      string
	OutsideState OutsideState
	// Hostname is the pod's name within the Service with the name Subdomain; both are of the pod's spec.
	Hostname, Subdomain string
	// Requests are the NADs that the pod requests, each "<namespace>/<name>". The agent does not need them.
	Requests []string
	// IPAMClaims are the IPAMClaims of the pod's namespace that the pod names. The agent does not need them.
	IPAMClaims []string
	// Ended tells that all containers of the pod have ended for good. The controller does not need it.
	Ended bool
}

// Is reports whether the pod is the one with the UID that a port has or that a container runtime gives. If the runtime
// gives no UID, or the manifest has none, any UID matches.
func (p *Pod) Is(uid string) bool {
	return uid == "" || p.UID == "" || p.UID == uid || p.Mirror == uid
}

// OutsideState says what has become of the outside addresses that a pod requests. The zero value is that of other pods.
type OutsideState struct {
	Reason  OutsideReason `json:"reason"`
	Message string        `json:"message"`
}

// OutsideReason is the reason of a state, and of the Event.
type OutsideReason string

// The reasons of states.
const (
	OutsideReady   OutsideReason = "OutsideAddressReady"
	OutsideWaits   OutsideReason = "OutsideAddressWaits" // an interface or a gateway is not there yet
	OutsideRefused OutsideReason = "OutsideAddressRefused"
)
