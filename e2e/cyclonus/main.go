// Command cyclonus owns the truth tables of Cyclonus (github.com/mattfenwick/cyclonus): it prints the cases of its
// generator as JSON, with the MultiNetworkPolicies of each step for a network and with what Cyclonus' matcher says
// about each probe. It may not know how a network serves a policy.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"os"
	"slices"

	"github.com/mattfenwick/cyclonus/pkg/connectivity/probe"
	"github.com/mattfenwick/cyclonus/pkg/generator"
	"github.com/mattfenwick/cyclonus/pkg/matcher"
	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
)

// Case is one case of the generator.
type Case struct {
	Name  string
	Steps []Step
}

// Step is what exists at one step of a case, and the table that holds then.
type Step struct {
	Namespaces map[string]map[string]string // labels
	Pods       []Pod
	Policies   []Policy
	Entries    []Entry
}

// Pod is a pod with its addresses on the network.
type Pod struct {
	Namespace, Name string
	Labels          map[string]string
	IPs             []string // IPv4, IPv6
	Ports           []corev1.ContainerPort
}

// Policy is a MultiNetworkPolicy.
type Policy struct {
	APIVersion string                         `json:"apiVersion"`
	Kind       string                         `json:"kind"`
	Metadata   Metadata                       `json:"metadata"`
	Spec       networkingv1.NetworkPolicySpec `json:"spec"`
}

// Metadata is that of a MultiNetworkPolicy.
type Metadata struct {
	Namespace   string            `json:"namespace"`
	Name        string            `json:"name"`
	Annotations map[string]string `json:"annotations"`
}

// Entry is one probe: a new connection from a pod to a port of another pod.
type Entry struct {
	From, To string // "<namespace>/<name>"
	Protocol string
	Port     int
	Allowed  []bool // by IPv4, by IPv6
}

// hosts are the last 16 bits of the pods' addresses. Cyclonus' ipBlocks cover the last 8 bits of the address of z/c,
// without those that differ in the last 4 bits alone. So each namespace has pods inside the CIDR, in its exception,
// and outside.
var hosts = map[string]uint16{
	"x/a": 0x011, "x/b": 0x021, "x/c": 0x101, "x/d": 0x024,
	"y/a": 0x012, "y/b": 0x022, "y/c": 0x102, "y-2/a": 0x013, "y-2/b": 0x104,
	"z/a": 0x103, "z/b": 0x023, "z/c": 0x014, "w/a": 0x105,
}

// addresses returns a pod's addresses: IPv4, IPv6.
func addresses(pod string) []string {
	host, ok := hosts[pod]
	if !ok {
		panic("pod " + pod + " has no address")
	}
	six := netip.MustParseAddr("fd60::").As16()
	six[14], six[15] = byte(host>>8), byte(host)
	return []string{fmt.Sprintf("10.60.%d.%d", host>>8, host&0xff), netip.AddrFrom16(six).String()}
}

func main() {
	network := flag.String("network", "default/tables", "the NAD that the policies are for")
	flag.Parse()
	logrus.SetOutput(io.Discard)
	cases, err := all(*network)
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(cases)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "cyclonus:", err)
		os.Exit(1)
	}
}

// all returns the cases. The generator knows one address of a pod, so it runs for each family; cases that do not
// differ are one.
func all(network string) (cases []Case, err error) {
	known := map[string]bool{}
	for _, ip := range addresses("z/c") {
		for _, c := range generator.NewTestCaseGenerator(true, ip, []string{"x", "y", "z"}, nil, nil).GenerateAllTestCases() {
			text, err := json.Marshal(c)
			if err != nil {
				return nil, err
			}
			if known[string(text)] {
				continue
			}
			known[string(text)] = true
			one := Case{Name: fmt.Sprintf("%03d %s", len(cases)+1, c.Description)}
			if err := one.run(c, network, len(cases)+1); err != nil {
				return nil, fmt.Errorf("case %s: %w", one.Name, err)
			}
			cases = append(cases, one)
		}
	}
	return cases, nil
}

// world is what exists, as Cyclonus sees it.
type world struct {
	*probe.Resources
	policies []*networkingv1.NetworkPolicy
}

func newWorld() *world {
	w := &world{Resources: &probe.Resources{Namespaces: map[string]map[string]string{}}}
	protocols := []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP}
	for _, ns := range []string{"x", "y", "z"} {
		// The API server gives each namespace the second label.
		w.Namespaces[ns] = map[string]string{"ns": ns, corev1.LabelMetadataName: ns}
		for _, name := range []string{"a", "b", "c"} {
			w.Pods = append(w.Pods, probe.NewDefaultPod(ns, name, []int{80, 81}, protocols, false, ""))
		}
	}
	return w
}

func (c *Case) run(of *generator.TestCase, network string, number int) error {
	w := newWorld()
	for _, s := range of.Steps {
		for _, a := range s.Actions {
			if err := w.do(a); err != nil {
				return err
			}
		}
		step := Step{Namespaces: w.Namespaces, Entries: w.entries(s.Probe)}
		for _, p := range w.Pods {
			pod := Pod{Namespace: p.Namespace, Name: p.Name, Labels: p.Labels, IPs: addresses(p.PodString().String())}
			for _, c := range p.KubeContainers() {
				pod.Ports = append(pod.Ports, c.Ports...)
			}
			step.Pods = append(step.Pods, pod)
		}
		for _, p := range w.policies {
			step.Policies = append(step.Policies, Policy{
				APIVersion: "k8s.cni.cncf.io/v1beta1", Kind: "MultiNetworkPolicy", Spec: p.Spec,
				// No two cases have policies of one name: the state of one is not taken for that of another.
				Metadata: Metadata{p.Namespace, fmt.Sprintf("%s-%d", p.Name, number),
					map[string]string{"k8s.v1.cni.cncf.io/policy-for": network}},
			})
		}
		c.Steps = append(c.Steps, step)
	}
	return nil
}

// do takes one action of a step.
func (w *world) do(a *generator.Action) (err error) {
	next := w.Resources
	switch {
	case a.CreatePolicy != nil:
		w.policies = append(slices.Clone(w.policies), a.CreatePolicy.Policy)
	case a.UpdatePolicy != nil:
		w.drop(a.UpdatePolicy.Policy.Namespace, a.UpdatePolicy.Policy.Name)
		w.policies = append(w.policies, a.UpdatePolicy.Policy)
	case a.DeletePolicy != nil:
		w.drop(a.DeletePolicy.Namespace, a.DeletePolicy.Name)
	case a.CreateNamespace != nil:
		labels := maps.Clone(a.CreateNamespace.Labels)
		labels[corev1.LabelMetadataName] = a.CreateNamespace.Namespace
		next, err = w.CreateNamespace(a.CreateNamespace.Namespace, labels)
	case a.SetNamespaceLabels != nil:
		labels := maps.Clone(a.SetNamespaceLabels.Labels)
		labels[corev1.LabelMetadataName] = a.SetNamespaceLabels.Namespace
		next, err = w.UpdateNamespaceLabels(a.SetNamespaceLabels.Namespace, labels)
	case a.DeleteNamespace != nil:
		next, err = w.DeleteNamespace(a.DeleteNamespace.Namespace)
	case a.CreatePod != nil:
		next, err = w.CreatePod(a.CreatePod.Namespace, a.CreatePod.Pod, a.CreatePod.Labels)
	case a.SetPodLabels != nil:
		next, err = w.SetPodLabels(a.SetPodLabels.Namespace, a.SetPodLabels.Pod, a.SetPodLabels.Labels)
	case a.DeletePod != nil:
		next, err = w.DeletePod(a.DeletePod.Namespace, a.DeletePod.Pod)
	default:
		err = fmt.Errorf("action %+v is not known", a)
	}
	w.Resources = next
	return err
}

func (w *world) drop(namespace, name string) {
	w.policies = slices.DeleteFunc(slices.Clone(w.policies), func(p *networkingv1.NetworkPolicy) bool {
		return p.Namespace == namespace && p.Name == name
	})
}

// entries asks the matcher about each probe, by the addresses of each family. A pod's packets to itself never leave
// the pod, so they are no entries.
func (w *world) entries(config *generator.ProbeConfig) (entries []Entry) {
	policies := matcher.BuildNetworkPolicies(true, w.policies)
	for _, job := range (&probe.JobBuilder{}).GetJobsForProbeConfig(w.Resources, config).Valid {
		if job.FromKey == job.ToKey {
			continue
		}
		e := Entry{From: job.FromKey, To: job.ToKey, Protocol: string(job.Protocol), Port: job.ResolvedPort}
		for family := range 2 {
			job.FromIP, job.ToIP = addresses(job.FromKey)[family], addresses(job.ToKey)[family]
			e.Allowed = append(e.Allowed, policies.IsTrafficAllowed(job.Traffic()).IsAllowed())
		}
		entries = append(entries, e)
	}
	return entries
}
