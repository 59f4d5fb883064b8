package sysdump

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovn-multinet/ovn-multinet/controller/configfile"
	"github.com/ovn-multinet/ovn-multinet/kubectl/check"
	"github.com/ovn-multinet/ovn-multinet/ovndb/members"
	"github.com/ovn-multinet/ovn-multinet/ovnrun/authority"
)

// installation are the tasks of our namespace, but for its pods.
func (c *collector) installation() []task {
	in := func(group, plural string) resource {
		return resource{group: group, plural: plural, namespace: check.Namespace}
	}
	const apps = "/apis/apps/v1"
	return []task{
		listOf(c, "installation/daemonsets.json", in(apps, "daemonsets"), (*workload[appsv1.DaemonSetStatus]).keep),
		listOf(c, "installation/deployments.json", in(apps, "deployments"), (*workload[appsv1.DeploymentStatus]).keep),
		listOf(c, "installation/jobs.json", in("/apis/batch/v1", "jobs"), (*workload[batchv1.JobStatus]).keep),
		listOf(c, "installation/configmaps.json", in(coreGroup, "configmaps"), c.configMap),
		listOf(c, "installation/secrets.json", in(coreGroup, "secrets"), (*secretObject).keep),
		listOf(c, "installation/leases.json", in("/apis/coordination.k8s.io/v1", "leases"), allOf[leaseObject]),
		listOf(c, "installation/events.json", in(coreGroup, "events"), allOf[eventObject]),
	}
}

// workload is a DaemonSet, a Deployment or a Job of our namespace.
type workload[S any] struct {
	Metadata metadata `json:"metadata"`
	Spec     struct {
		Replicas *int32 `json:"replicas,omitempty"`
		Template struct {
			Spec podSpec `json:"spec"`
		} `json:"template"`
	} `json:"spec"`
	Status S `json:"status"`
}

func (w *workload[S]) keep() any {
	w.Spec.Template.Spec.keepArguments()
	return w
}

// podSpec is what the archive has of the spec of our own pods. The environment is not there.
type podSpec struct {
	NodeName       string            `json:"nodeName,omitempty"`
	NodeSelector   map[string]string `json:"nodeSelector,omitempty"`
	HostNetwork    bool              `json:"hostNetwork,omitempty"`
	InitContainers []container       `json:"initContainers,omitempty"`
	Containers     []container       `json:"containers,omitempty"`
}

type container struct {
	Name  string   `json:"name"`
	Image string   `json:"image,omitempty"`
	Args  []string `json:"args,omitempty"`
	// OtherArgs is the number of arguments that are not in the archive.
	OtherArgs int `json:"otherArgs,omitempty"`
}

func (s *podSpec) keepArguments() {
	for _, list := range [][]container{s.InitContainers, s.Containers} {
		for i := range list {
			all := len(list[i].Args)
			list[i].Args = slices.DeleteFunc(list[i].Args, func(arg string) bool { return !knownArgument(arg) })
			list[i].OtherArgs = all - len(list[i].Args)
		}
	}
}

// knownArguments are the arguments of our containers that the chart sets: commands, and flags whose values are no
// secrets.
var knownArguments = []string{
	"database", "northd", "ovsdb", "vswitchd", "controller", "certificates", "uninstall",
	"--node-name", "--allowed-delegates", "--allowed-ipam", "--plugin-log", "--plugin-timeout", "--net-dir", "--bin-dir",
	"--log-level", "--primary", "--cni-version", "--root", "--name", "--election-timer", "--role", "--signer-name",
	"--certificate-life", "--bridge", "--datapath", "--tunnel-interface", "--run-dir", "--denied-log", "--networks",
	"--config", "--metrics-address", "--startup-taint",
}

func knownArgument(arg string) bool {
	name, _, _ := strings.Cut(arg, "=")
	return slices.Contains(knownArguments, name)
}

// secretObject is a Secret, whose values are only counted.
type secretObject struct {
	Metadata metadata           `json:"metadata"`
	Type     string             `json:"type"`
	Data     map[string]bytes64 `json:"data"`
}

func (s *secretObject) keep() any {
	return struct {
		Metadata metadata           `json:"metadata"`
		Type     string             `json:"type,omitempty"`
		Sizes    map[string]bytes64 `json:"sizes,omitempty"`
	}{s.Metadata, s.Type, s.Data}
}

// bytes64 is the number of bytes of a text in base64.
type bytes64 int

// UnmarshalJSON keeps the size alone.
func (b *bytes64) UnmarshalJSON(text []byte) error {
	text = bytes.TrimRight(bytes.Trim(text, `"`), "=")
	*b = bytes64(base64.RawStdEncoding.DecodedLen(len(text)))
	return nil
}

type configMapObject struct {
	Metadata   metadata           `json:"metadata"`
	Data       map[string]string  `json:"data"`
	BinaryData map[string]bytes64 `json:"binaryData"`
}

// keptConfigMap is what the archive has of a ConfigMap.
type keptConfigMap struct {
	Metadata metadata                   `json:"metadata"`
	Data     map[string]json.RawMessage `json:"data,omitempty"`
	// Sizes are the bytes of the values that are not in the archive.
	Sizes map[string]int `json:"sizes,omitempty"`
}

// configMap keeps the values of the keys that the chart or our programs write.
func (c *collector) configMap(o *configMapObject) any {
	kept := &keptConfigMap{Metadata: o.Metadata, Data: map[string]json.RawMessage{}, Sizes: map[string]int{}}
	for key, value := range o.Data {
		if keep := knownValue(o.Metadata.Name, key); keep != nil {
			if text := keep(value); text != nil {
				kept.Data[key] = text
				continue
			}
		}
		kept.Sizes[key] = len(value)
	}
	for key, size := range o.BinaryData {
		kept.Sizes[key] = int(size)
	}
	return kept
}

// knownValue says what is kept of the value of a key; nil: nothing.
func knownValue(configMap, key string) func(string) json.RawMessage {
	switch {
	case configMap == check.Namespace && slices.Contains(settings, key):
		return oneLine
	case configMap == "ovn-multinet-controller" && key == "controller.yaml":
		return controllerFile
	case configMap == members.ConfigMapName && (key == members.ListKey || key == members.FormedKey):
		return whole
	case configMap == authority.ConfigMapName && (key == authority.RotationKey || key == authority.DistrustedKey):
		return whole
	}
	return nil
}

// settings are the keys of the ConfigMap ovn-multinet that the chart writes, and whose values the archive may have.
var settings = []string{
	"OVN_MULTINET_NB_ENDPOINTS", "OVN_MULTINET_NB_MEMBERS", "OVN_MULTINET_OVN_REPLICAS", "OVN_MULTINET_OVN_NODES",
	"OVN_MULTINET_OVN_REPLACE_AFTER", "OVN_MULTINET_OVN_SIGNER_NAME", "OVN_MULTINET_OVN_CERTIFICATE_LIFE",
	"OVN_MULTINET_NB_CERTIFICATE", "OVN_MULTINET_NB_CA_CERT", "OVN_MULTINET_NB_SERVER_NAME", "OVN_MULTINET_BRIDGE",
	"OVN_MULTINET_OVS_SOCKET", "OVN_MULTINET_OVN_CONTROLLER_LOG", "OVN_MULTINET_POD_RESOURCES_SOCKET",
	"OVN_MULTINET_CLUSTER_ID", "OVN_MULTINET_ADOPT_CLUSTER", "OVN_MULTINET_KEEP_ON_PRIMARY",
	"OVN_MULTINET_NAMESPACE_ISOLATION", "OVN_MULTINET_GLOBAL_NAMESPACES", "OVN_MULTINET_NAD_CONF_DIR",
	"OVN_MULTINET_CNI_ARGS_FOR_STATIC", "OVN_MULTINET_EARLY_PORTS", "OVN_MULTINET_ATTACH",
	"OVN_MULTINET_RECONCILE_PERIOD", "OVN_MULTINET_JOINING_NAMESPACES", "OVN_MULTINET_ORPHAN_PERIOD",
	"OVN_MULTINET_WIDEST_IPAM_SUBNET", "OVN_MULTINET_DENIED_LOG_RATE", "OVN_MULTINET_SERVICES_PER_NAMESPACE",
	"OVN_MULTINET_STARTUP_TAINT", "OVN_MULTINET_LOG_LEVEL",
}

// notKept are the other keys that the chart writes. The value is a path, but somebody may have written the key itself.
var notKept = []string{"OVN_MULTINET_NB_PRIVATE_KEY"}

// oneLine keeps what a flag can be. A certificate or a key has several lines.
func oneLine(value string) json.RawMessage {
	if strings.ContainsAny(strings.TrimSpace(value), "\n\r") {
		return nil
	}
	return whole(value)
}

// controllerFile keeps the file of the controllers if they accept it: then it has no unknown key. Its comments are not
// kept.
func controllerFile(value string) json.RawMessage {
	config, err := configfile.Read([]byte(value))
	if err != nil || config.Document == nil {
		return nil
	}
	return config.Document
}

// ownPod is a pod of our namespace. What its containers say of themselves is what our programs say.
type ownPod struct {
	Metadata metadata `json:"metadata"`
	Spec     podSpec  `json:"spec"`
	Status   struct {
		Phase                 corev1.PodPhase          `json:"phase,omitempty"`
		Reason                string                   `json:"reason,omitempty"`
		Message               string                   `json:"message,omitempty"`
		HostIP                string                   `json:"hostIP,omitempty"`
		StartTime             *metav1.Time             `json:"startTime,omitempty"`
		Conditions            []podCondition           `json:"conditions,omitempty"`
		InitContainerStatuses []corev1.ContainerStatus `json:"initContainerStatuses,omitempty"`
		ContainerStatuses     []corev1.ContainerStatus `json:"containerStatuses,omitempty"`
	} `json:"status"`
}

// ourPods are the pods of our namespace.
type ourPods struct{ pods []*ownPod }

// ownPods is the task of the pods of our namespace.
func (c *collector) ownPods(all *ourPods) task {
	from := resource{group: coreGroup, plural: "pods", namespace: check.Namespace}
	return listOf(c, "installation/pods.json", from, func(p *ownPod) any {
		p.keep()
		all.pods = append(all.pods, p)
		return p
	})
}

// keep removes the messages of containers that are not ours: of a sidecar that somebody injects, for example.
func (p *ownPod) keep() {
	p.Spec.keepArguments()
	for i := range p.Status.Conditions {
		p.Status.Conditions[i].keepMessage()
	}
	for _, list := range [][]corev1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses} {
		for i := range list {
			s := &list[i]
			kept := corev1.ContainerStatus{Name: s.Name, State: s.State, LastTerminationState: s.LastTerminationState,
				Ready: s.Ready, RestartCount: s.RestartCount, Image: s.Image, ImageID: s.ImageID, ContainerID: s.ContainerID,
				Started: s.Started}
			if !p.isOurs(s.Name) {
				withoutMessages(&kept.State)
				withoutMessages(&kept.LastTerminationState)
			}
			*s = kept
		}
	}
}

func withoutMessages(s *corev1.ContainerState) {
	if s.Waiting != nil {
		s.Waiting.Message = ""
	}
	if s.Terminated != nil {
		s.Terminated.Message = ""
	}
}

// containers are the containers of our pods, by the label app of the pods.
var containers = map[string][]string{
	"ovn-multinet-agent":       {"agent", "installer"},
	"ovn-multinet-attach":      {"attach"},
	"ovn-multinet-controller":  {"controller"},
	"ovn-multinet-ovn-central": {"certificates", "nb", "sb", "northd"},
	"ovn-multinet-ovn-node":    {"certificates", "ovsdb", "vswitchd", "controller"},
	"ovn-multinet-uninstall":   {"uninstall"},
}

// isOurs reports whether a container of the pod is one of the chart.
func (p *ownPod) isOurs(container string) bool {
	return slices.Contains(containers[p.Metadata.Labels["app"]], container)
}
