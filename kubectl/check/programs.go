package check

import (
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
)

// program is a network program of others that runs as a DaemonSet.
type program struct {
	name   string
	what   string   // the check that names it
	marks  []string // its DaemonSets' names and the last parts of its images' names contain one of these
	level  Level
	cause  string // what we know of it
	fix    string
	covers []string // programs that belong to it: they are not named beside it
}

const (
	untested = "is not tested with ovn-multinet"
	tryFirst = "try the installation on one node first, and see that pods keep their first interface"
	metaFix  = "remove it, and its file from the nodes' CNI folder: ovn-multinet reads the same annotation and the same " +
		"NetworkAttachmentDefinitions"
	ovnFix = "do not install ovn-multinet on the same nodes"
	ovnWhy = "owns OVN and br-int on the nodes"
)

// programs lists what we know of other network programs.
var programs = []program{
	{name: "Canal", what: primaryWhat, marks: []string{"canal"}, level: OK, cause: "10-canal.conflist",
		covers: []string{"Flannel", "Calico"}},
	{name: "Flannel", what: primaryWhat, marks: []string{"flannel"}, level: OK, cause: "10-flannel.conflist"},
	{name: "Calico", what: primaryWhat, marks: []string{"calico-node", "calico"}, level: OK, cause: "10-calico.conflist"},
	{name: "Cilium", what: primaryWhat, marks: []string{"cilium"}, level: Error,
		cause: "its file 05-cilium.conflist comes before 05-ovn-multinet.conflist, and with cni.exclusive=true Cilium " +
			"renames the files of others",
		fix: "use Flannel, Canal or Calico as the primary network"},
	{name: "kindnet", what: primaryWhat, marks: []string{"kindnet"}, level: Warning, cause: untested, fix: tryFirst},
	{name: "Weave Net", what: primaryWhat, marks: []string{"weave-net", "weave-kube"}, level: Warning, cause: untested,
		fix: tryFirst},
	{name: "kube-router", what: primaryWhat, marks: []string{"kube-router"}, level: Warning, cause: untested,
		fix: tryFirst},
	{name: "Amazon VPC CNI", what: primaryWhat, marks: []string{"aws-node", "amazon-k8s-cni"}, level: Warning,
		cause: untested, fix: tryFirst},
	{name: "Azure CNI", what: primaryWhat, marks: []string{"azure-cns", "azure-cni"}, level: Warning, cause: untested,
		fix: tryFirst},
	{name: "Antrea", what: "other-ovn", marks: []string{"antrea"}, level: Error,
		cause: "runs an Open vSwitch of its own with a bridge br-int", fix: ovnFix},
	{name: "Multus", what: metaWhat, marks: []string{"multus"}, level: Error,
		cause: "its file 00-multus.conf comes before 05-ovn-multinet.conflist", fix: metaFix},
	{name: "CNI-Genie", what: metaWhat, marks: []string{"genie"}, level: Error,
		cause: "its file 00-genie.conf comes before 05-ovn-multinet.conflist", fix: metaFix},
	{name: "DANM", what: metaWhat, marks: []string{"danm", "netwatcher"}, level: Error,
		cause: "its file 00-danm.conf comes before 05-ovn-multinet.conflist", fix: metaFix},
	{name: "Nodus", what: metaWhat, marks: []string{"ovn4nfv", "nodus", "nfn-agent"}, level: Error,
		cause: "it reads the same annotation, and " + ovnWhy, fix: metaFix},
	{name: "ovn-kubernetes", what: "other-ovn", marks: []string{"ovnkube", "ovn-kube", "ovn-daemonset"}, level: Error,
		cause: ovnWhy, fix: ovnFix},
	{name: "Kube-OVN", what: "other-ovn", marks: []string{"kube-ovn", "ovs-ovn"}, level: Error, cause: ovnWhy,
		fix: ovnFix},
}

const (
	primaryWhat = "primary-network"
	metaWhat    = "meta-plugins"
)

// lastPart returns the last part of an image's name, without tag and digest: "flannel" of docker.io/flannel/flannel:v1.
func lastPart(image string) string {
	image, _, _ = strings.Cut(image, "@")
	image = image[strings.LastIndexByte(image, '/')+1:]
	image, _, _ = strings.Cut(image, ":")
	return image
}

// imagesOf returns the last parts of the names of all images of a pod.
func imagesOf(spec *corev1.PodSpec) (all []string) {
	for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			all = append(all, lastPart(containers[i].Image))
		}
	}
	return all
}

// runs reports whether a DaemonSet belongs to the program.
func (p *program) runs(d *appsv1.DaemonSet) bool {
	return slices.ContainsFunc(append(imagesOf(&d.Spec.Template.Spec), d.Name), func(name string) bool {
		return slices.ContainsFunc(p.marks, func(mark string) bool { return strings.Contains(name, mark) })
	})
}

// checkPrograms names the other network programs of the cluster.
func (c *Cluster) checkPrograms() (all []Finding) {
	if c.unreadable(primaryWhat) && len(c.DaemonSets) == 0 {
		return nil
	}
	seen := sets.New[string]()
	for i := range programs {
		p := &programs[i]
		for n := range c.DaemonSets {
			d := &c.DaemonSets[n]
			if seen.Has(p.name) || isOurs(d) || !p.runs(d) {
				continue
			}
			seen.Insert(p.name).Insert(p.covers...)
			f := Finding{Level: p.level, What: p.what, Fix: p.fix,
				Cause: fmt.Sprintf("%s (DaemonSet %s/%s): %s", p.name, d.Namespace, d.Name, p.cause)}
			all = append(all, f)
		}
	}
	found := func(what string) bool {
		return slices.ContainsFunc(all, func(f Finding) bool { return f.What == what })
	}
	if !found(primaryWhat) {
		all = append(all, c.embeddedFlannel(found("other-ovn"))...)
	}
	for what, none := range map[string]string{
		metaWhat:    "no other meta-plugin runs",
		"other-ovn": "no other program owns OVN on the nodes",
	} {
		if !found(what) {
			all = append(all, ok(what, "%s", none))
		}
	}
	return all
}

// embeddedFlannel finds a Flannel that runs without a DaemonSet, such as k3s's: it writes annotations on the nodes.
func (c *Cluster) embeddedFlannel(otherPrimary bool) []Finding {
	for i := range c.Nodes {
		if kind := c.Nodes[i].Annotations["flannel.alpha.coreos.com/backend-type"]; kind != "" {
			return []Finding{ok(primaryWhat, "Flannel without a DaemonSet, as k3s has it (annotations of the nodes): %s", kind)}
		}
	}
	if otherPrimary || len(c.Nodes) == 0 {
		return nil
	}
	return []Finding{warning(primaryWhat, "add --nodes, which reads the nodes' CNI configuration",
		"no DaemonSet of a network program that is known, and no annotations of Flannel on the nodes")}
}

// isOurs reports whether a DaemonSet is one of ovn-multinet's, in whichever namespace.
func isOurs(d *appsv1.DaemonSet) bool {
	if d.Spec.Selector != nil && d.Spec.Selector.MatchLabels[agentLabel] == agentApp {
		return true
	}
	return slices.ContainsFunc(imagesOf(&d.Spec.Template.Spec), func(name string) bool {
		return strings.Contains(name, "ovn-multinet-agent") || strings.Contains(name, "ovn-multinet-plugin")
	})
}
