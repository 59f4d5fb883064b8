package sysdump

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"slices"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/version"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/netmodel/entry"
)

const (
	coreGroup   = "/api/v1"
	cniGroup    = "/apis/k8s.cni.cncf.io/v1"
	policyGroup = "/apis/k8s.cni.cncf.io/v1beta1"
	claimGroup  = "/apis/k8s.cni.cncf.io/v1alpha1"
	ownGroup    = "/apis/" + entry.APIVersion
)

// objects are the tasks of all objects but our pods and the nodes.
func (c *collector) objects() []task {
	all := []task{
		c.serverVersion(),
		listOf(c, "objects/networks.json", resource{group: cniGroup, plural: "network-attachment-definitions",
			namespace: c.Namespace}, (*networkObject).keep),
		listOf(c, "objects/policies.json", resource{group: policyGroup, plural: "multi-networkpolicies",
			namespace: c.Namespace, mayLack: true}, allOf[policyObject]),
		listOf(c, "objects/ipamclaims.json", resource{group: claimGroup, plural: "ipamclaims", namespace: c.Namespace,
			mayLack: true}, allOf[claimObject]),
		listOf(c, "objects/pods.json", resource{group: coreGroup, plural: "pods", namespace: c.Namespace}, (*podObject).keep),
		listOf(c, "objects/events.json", resource{group: coreGroup, plural: "events", namespace: c.Namespace,
			fields: "source=ovn-multinet"}, allOf[eventObject]),
	}
	for _, kind := range entry.Kinds {
		all = append(all, listOf(c, "objects/"+kind.Plural+".json", resource{group: ownGroup, plural: kind.Plural},
			keepOperators(kind)))
	}
	return append(all, c.installation()...)
}

// allOf keeps every object.
func allOf[T any](object *T) any { return object }

// serverVersion is the task of the API server's version.
func (c *collector) serverVersion() task {
	return task{"objects/version.json", func(ctx context.Context, out io.Writer) error {
		body, err := c.Client.Get().AbsPath("/version").Stream(ctx)
		if err != nil {
			return err
		}
		defer body.Close()
		var v version.Info
		if err := json.NewDecoder(body).Decode(&v); err != nil {
			return errors.New("the answer is no version")
		}
		return json.NewEncoder(out).Encode(v)
	}}
}

// operatorObject is an object of the operator. The API server stores keys that its kind does not have, too.
type operatorObject struct {
	Metadata metadata                   `json:"metadata"`
	Spec     map[string]json.RawMessage `json:"spec,omitempty"`
	Status   json.RawMessage            `json:"status,omitempty"`
}

// keepOperators keeps the keys of the kind. A list or an object in them may have unknown keys, unless the controller
// has accepted the spec.
func keepOperators(kind *entry.Kind) func(*operatorObject) any {
	known := kind.Keys()
	return func(o *operatorObject) any {
		status := entry.DecodeStatus(o.Status)
		accepted := status.Counts() && status.Observed == o.Metadata.Generation
		maps.DeleteFunc(o.Spec, func(key string, value json.RawMessage) bool {
			return !slices.Contains(known, key) || !accepted && !scalar(value)
		})
		o.Status = nil
		if text, err := status.Encode(); err == nil && status.Observed != 0 {
			o.Status = text
		}
		return o
	}
}

// policyObject is a MultiNetworkPolicy, whose spec is that of a NetworkPolicy.
type policyObject struct {
	Metadata metadata                       `json:"metadata"`
	Spec     networkingv1.NetworkPolicySpec `json:"spec"`
}

type claimObject struct {
	Metadata metadata `json:"metadata"`
	Spec     struct {
		Network    string   `json:"network,omitempty"`
		Interface  string   `json:"interface,omitempty"`
		IPRequests []string `json:"ipRequests,omitempty"`
	} `json:"spec"`
	Status struct {
		IPs        []string           `json:"ips,omitempty"`
		OwnerPod   json.RawMessage    `json:"ownerPod,omitempty"` // a name, or an object with a name
		Conditions []metav1.Condition `json:"conditions,omitempty"`
	} `json:"status"`
}

type eventObject struct {
	Metadata            metadata               `json:"metadata"`
	Type                string                 `json:"type,omitempty"`
	Reason              string                 `json:"reason,omitempty"`
	Message             string                 `json:"message,omitempty"`
	Count               int32                  `json:"count,omitempty"`
	FirstTimestamp      metav1.Time            `json:"firstTimestamp,omitzero"`
	LastTimestamp       metav1.Time            `json:"lastTimestamp,omitzero"`
	EventTime           metav1.MicroTime       `json:"eventTime,omitzero"`
	Source              corev1.EventSource     `json:"source,omitzero"`
	ReportingController string                 `json:"reportingComponent,omitempty"`
	InvolvedObject      corev1.ObjectReference `json:"involvedObject"`
}

type leaseObject struct {
	Metadata metadata                 `json:"metadata"`
	Spec     coordinationv1.LeaseSpec `json:"spec"`
}

// nodeObject is a node.
type nodeObject struct {
	Metadata metadata `json:"metadata"`
	Spec     struct {
		Unschedulable bool           `json:"unschedulable,omitempty"`
		Taints        []corev1.Taint `json:"taints,omitempty"`
	} `json:"spec"`
	Status struct {
		Conditions []corev1.NodeCondition `json:"conditions,omitempty"`
		Addresses  []corev1.NodeAddress   `json:"addresses,omitempty"`
		NodeInfo   corev1.NodeSystemInfo  `json:"nodeInfo"`
	} `json:"status"`
}

// nodeStates are the nodes whose kubelet does not report.
type nodeStates struct{ silent map[string]bool }

// nodes is the task of the nodes.
func (c *collector) nodes(states *nodeStates) task {
	states.silent = map[string]bool{}
	return listOf(c, "objects/nodes.json", resource{group: coreGroup, plural: "nodes"}, func(n *nodeObject) any {
		if !slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status != corev1.ConditionUnknown
		}) {
			states.silent[n.Metadata.Name] = true
		}
		return n
	})
}

// podObject is a pod of a user. What its containers say of themselves may have arguments, or lines of their logs.
type podObject struct {
	Metadata metadata `json:"metadata"`
	Spec     struct {
		NodeName string `json:"nodeName,omitempty"`
	} `json:"spec"`
	Status struct {
		Phase                 corev1.PodPhase   `json:"phase,omitempty"`
		Reason                string            `json:"reason,omitempty"`
		Conditions            []podCondition    `json:"conditions,omitempty"`
		InitContainerStatuses []containerStatus `json:"initContainerStatuses,omitempty"`
		ContainerStatuses     []containerStatus `json:"containerStatuses,omitempty"`
	} `json:"status"`
}

// keep keeps pods with annotations that are ours, or that we read.
func (p *podObject) keep() any {
	if !p.Metadata.Annotations.ofNetworks() {
		return nil
	}
	for i := range p.Status.Conditions {
		p.Status.Conditions[i].keepMessage()
	}
	return p
}

type podCondition struct {
	Type               string      `json:"type"`
	Status             string      `json:"status"`
	Reason             string      `json:"reason,omitempty"`
	Message            string      `json:"message,omitempty"`
	LastTransitionTime metav1.Time `json:"lastTransitionTime,omitzero"`
}

// writtenByUs are the conditions of pods that Kubernetes or ovn-multinet write.
var writtenByUs = []string{"PodScheduled", "Initialized", "ContainersReady", "Ready", "PodReadyToStartContainers",
	"DisruptionTarget", conf.OutsideCondition}

// keepMessage keeps the message of a condition only if its author is known.
func (c *podCondition) keepMessage() {
	if !slices.Contains(writtenByUs, c.Type) {
		c.Message = ""
	}
}

type containerStatus struct {
	Name         string         `json:"name"`
	Ready        bool           `json:"ready"`
	RestartCount int32          `json:"restartCount"`
	State        containerState `json:"state"`
	LastState    containerState `json:"lastState,omitzero"`
}

// containerState is a state without its messages.
type containerState struct {
	Waiting *struct {
		Reason string `json:"reason,omitempty"`
	} `json:"waiting,omitempty"`
	Running *struct {
		StartedAt metav1.Time `json:"startedAt,omitzero"`
	} `json:"running,omitempty"`
	Terminated *struct {
		ExitCode   int32       `json:"exitCode"`
		Signal     int32       `json:"signal,omitempty"`
		Reason     string      `json:"reason,omitempty"`
		StartedAt  metav1.Time `json:"startedAt,omitzero"`
		FinishedAt metav1.Time `json:"finishedAt,omitzero"`
	} `json:"terminated,omitempty"`
}
