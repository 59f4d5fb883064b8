package source

import (
	"slices"
	"strings"

	nadv1 "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/nad"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/netmodel/policy"
)

// maxFinalizers limits the total length of the finalizers that a knownNAD keeps, in bytes. Finalizers of other programs
// are rare and have short names.
const maxFinalizers = 1 << 10

// knownNAD is what the informer keeps of a NAD: about 1 kB and, for an OVN network, the text of its configuration.
type knownNAD struct {
	metav1.TypeMeta
	metav1.ObjectMeta // only namespace, name, UID and resource version
	nad               netmodel.NAD
	finalizers        []string
	// someFinalizers tells that the NAD's finalizers are longer than maxFinalizers. They are not kept here: a caller
	// that needs them must read the NAD from the API.
	someFinalizers bool
}

// DeepCopyObject returns a copy of the NAD.
func (k *knownNAD) DeepCopyObject() runtime.Object {
	other := *k
	k.ObjectMeta.DeepCopyInto(&other.ObjectMeta)
	other.finalizers = slices.Clone(k.finalizers)
	return &other
}

// knownNADs is a list of knownNAD.
type knownNADs struct {
	metav1.TypeMeta
	metav1.ListMeta
	Items []knownNAD
}

// DeepCopyObject returns a copy of the list.
func (k *knownNADs) DeepCopyObject() runtime.Object {
	other := &knownNADs{TypeMeta: k.TypeMeta, Items: make([]knownNAD, len(k.Items))}
	k.ListMeta.DeepCopyInto(&other.ListMeta)
	for i := range k.Items {
		other.Items[i] = *k.Items[i].DeepCopyObject().(*knownNAD)
	}
	return other
}

// trimNAD is the transform function of the informer of NADs.
func (k *Kube) trimNAD(obj any) (any, error) {
	if n, ok := obj.(*nadv1.NetworkAttachmentDefinition); ok {
		return k.keep(n), nil
	}
	return obj, nil
}

// keep returns what the informer keeps of a NAD. It does not parse an unchanged configuration again.
func (k *Kube) keep(n *nadv1.NetworkAttachmentDefinition) *knownNAD {
	var before *netmodel.Config
	if cached := k.cached(n.Namespace, n.Name); cached != nil {
		before = cached.nad.Config
	}
	return known(n, before)
}

// known returns what the informer keeps of a NAD. before is the parsed former configuration of the NAD, or nil.
func known(n *nadv1.NetworkAttachmentDefinition, before *netmodel.Config) *knownNAD {
	k := &knownNAD{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: n.Namespace, Name: n.Name, UID: n.UID, ResourceVersion: n.ResourceVersion,
		},
		nad: *fromNAD(n, configOf(n, before)),
	}
	size := 0
	for _, f := range n.Finalizers {
		size += len(f)
	}
	if k.someFinalizers = size > maxFinalizers; !k.someFinalizers {
		k.finalizers = n.Finalizers
	}
	return k
}

// configOf parses the configuration of a NAD. If before was parsed from the same text, configOf returns before.
func configOf(n *nadv1.NetworkAttachmentDefinition, before *netmodel.Config) *netmodel.Config {
	if before != nil && before.IsOf(n.Spec.Config) {
		return before
	}
	return netmodel.ParseConfig(namespaceOr(n.Namespace), n.Name, n.Spec.Config, netmodel.KeptConfig)
}

// wholeConfig parses the configuration of a NAD and keeps its text. It is for callers that do not store the NAD.
func wholeConfig(n *nadv1.NetworkAttachmentDefinition) *netmodel.Config {
	return netmodel.ParseConfig(namespaceOr(n.Namespace), n.Name, n.Spec.Config, netmodel.MaxDelegateConfig)
}

// fromNAD converts a NAD. config is the configuration that was parsed from the text of the NAD.
func fromNAD(n *nadv1.NetworkAttachmentDefinition, config *netmodel.Config) *netmodel.NAD {
	return &netmodel.NAD{
		Namespace: namespaceOr(n.Namespace), Name: n.Name, Config: config, Created: created(n),
		Deleting: n.DeletionTimestamp != nil, HasFinalizer: slices.Contains(n.Finalizers, netmodel.NetworkFinalizer),
		ForceDelete: n.Annotations[netmodel.ForceDeleteAnnotation] == "true",
		Resource:    netmodel.TrimResource(n.Annotations[netmodel.ResourceNameAnnotation]),
		State:       netmodel.TrimState(n.Annotations[netmodel.NetworkStateAnnotation]),
	}
}

func created(n *nadv1.NetworkAttachmentDefinition) int64 {
	if n.CreationTimestamp.IsZero() {
		return 0
	}
	return n.CreationTimestamp.Unix()
}

// furtherStatus replaces a network-status that has interfaces besides the primary one. Callers only pass the status to
// nad.HasAttachments.
const furtherStatus = "[{}]"

// maxMirror is longer than the hash of any static pod, in bytes.
const maxMirror = 253

// trimPod is the transform function of the informer of pods.
func trimPod(obj any) (any, error) {
	if p, ok := obj.(*corev1.Pod); ok {
		return knownPod(p), nil
	}
	return obj, nil
}

// knownPod returns a copy of a pod with only the fields that callers need: the agent's memory must not grow with the
// texts that users write into pods.
func knownPod(p *corev1.Pod) *corev1.Pod {
	annotations := conf.TrimAnnotations(p.Annotations)
	if len(annotations) > 0 && nad.HasAttachments(p.Annotations[nad.StatusAnnotation]) {
		annotations[nad.StatusAnnotation] = furtherStatus
	}
	if uid := mirrorOf(p); uid != "" {
		annotations[mirrorAnnotation] = uid
	}
	if hasArrived(p) {
		annotations[conf.MigratedAnnotation] = arrived
	}
	labels, tooMany := trimLabels(p.Labels)
	if tooMany || hasManyLabels(p) { // an informer trims a listed pod twice
		annotations[manyLabels] = ""
	}
	if ports, trimmed := p.Annotations[namedPorts]; trimmed {
		annotations[namedPorts] = ports
	} else if ports := policy.NamedPorts(&p.Spec); len(ports) > 0 && len(conf.NetworkAnnotations(annotations)) > 0 {
		annotations[namedPorts] = strings.Join(ports, " ")
	}
	if controller := controllerName(p); controller != "" && len(conf.NetworkAnnotations(annotations)) > 0 {
		annotations[controllerOf] = controller
	}
	phase := corev1.PodUnknown
	switch {
	case running(p):
		phase = corev1.PodRunning
	case p.Status.Phase == corev1.PodPending && p.DeletionTimestamp == nil:
		phase = corev1.PodPending
	case endedForGood(p):
		phase = p.Status.Phase
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: p.Namespace, Name: p.Name, UID: p.UID, ResourceVersion: p.ResourceVersion, Annotations: annotations,
			Labels: labels, DeletionTimestamp: p.DeletionTimestamp,
		},
		Spec:   corev1.PodSpec{NodeName: p.Spec.NodeName, HostNetwork: p.Spec.HostNetwork},
		Status: corev1.PodStatus{Phase: phase},
	}
}

// trimLabels returns the labels that are kept of a pod, and whether they are too long to be kept.
func trimLabels(labels map[string]string) (kept map[string]string, tooMany bool) {
	size := 0
	for key, value := range labels {
		size += len(key) + len(value)
	}
	if size > policy.MaxLabels {
		return nil, true
	}
	return labels, false
}

// manyLabels is the annotation of a known pod whose labels are too long. No API object can have this key.
const manyLabels = "(many labels)"

func hasManyLabels(p *corev1.Pod) bool { _, many := p.Annotations[manyLabels]; return many }

// namedPorts is the annotation of a known pod with its named ports. No API object can have this key.
const namedPorts = "(named ports)"

func portsOf(p *corev1.Pod) []string { return strings.Fields(p.Annotations[namedPorts]) }

// controllerOf is the annotation of a known pod with the name of its controller. No API object can have this key.
const controllerOf = "(controller)"

// maxController limits the name of a controller, in bytes: the API server does not limit the kind in a reference.
const maxController = 512

// controllerName returns the kind and the name of the object that makes a pod, or "". Each version of the pods of a
// Deployment is of another ReplicaSet. Its name is that of the Deployment with the pods' label pod-template-hash.
func controllerName(p *corev1.Pod) string {
	if name, trimmed := p.Annotations[controllerOf]; trimmed {
		return name // an informer trims a listed pod twice
	}
	c := metav1.GetControllerOf(p)
	if c == nil {
		return ""
	}
	kind, name := c.Kind, c.Name
	hash := p.Labels["pod-template-hash"]
	if deployment, ok := strings.CutSuffix(name, "-"+hash); ok && kind == "ReplicaSet" && hash != "" {
		kind, name = "Deployment", deployment
	}
	if len(kind)+len(name) > maxController {
		return ""
	}
	return kind + " " + name
}

// mirrorOf returns the UID that kubelet and the runtime use for a static pod, and "" for other pods.
func mirrorOf(p *corev1.Pod) string {
	if uid := p.Annotations[mirrorAnnotation]; len(uid) <= maxMirror {
		return uid
	}
	return ""
}

// inventoryPod converts a pod, with only the fields that an Inventory needs.
func inventoryPod(p *corev1.Pod) *netmodel.Pod {
	return &netmodel.Pod{Namespace: p.Namespace, Name: p.Name, UID: string(p.UID), Mirror: mirrorOf(p)}
}
