package e2e

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	nadv1 "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
	"github.com/ovn-multinet/ovn-multinet/netmodel/service"
)

// examplesFolder has one folder for each kind of network.
const examplesFolder = "../examples"

// exampleObjects reads all objects of a file of an example.
func exampleObjects[T any](t testing.TB, example, file string) (all []T) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(examplesFolder, example, file))
	if err != nil {
		t.Fatal(err)
	}
	for documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text))); ; {
		doc, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return all
		}
		var object T
		if err == nil {
			err = yaml.UnmarshalStrict(doc, &object)
		}
		if err != nil {
			t.Fatalf("%s/%s: %v", example, file, err)
		}
		all = append(all, object)
	}
}

// TestExamples applies the examples with OVN networks on a cluster whose operator has created the examples' objects, and
// pings between the pods of each example, and from the pods to the machines outside which the READMEs name. Pods connect
// to the virtual addresses of the example's Services.
func TestExamples(t *testing.T) {
	w := parallelWorld(t, lab.Options{Nodes: 2, Physical: provider}, func(l *lab.Lab) {
		for _, example := range []string{"localnet", "router-gateway"} {
			text, err := os.ReadFile(filepath.Join(examplesFolder, example, "operator.yaml"))
			if err == nil {
				err = l.WriteManifest(example+".yaml", string(text))
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		var nodes []string
		for _, n := range l.Nodes {
			nodes = append(nodes, fmt.Sprintf("apiVersion: v1\nkind: Node\nmetadata:\n  name: %s\n"+
				"  labels: {node-role.kubernetes.io/gateway: \"\"}\n", n.Name))
		}
		if err := l.WriteManifest("nodes.yaml", strings.Join(nodes, "---\n")); err != nil {
			t.Fatal(err)
		}
	})
	w.outside("machine100", 100, "10.50.0.9/24")
	w.outside("machine200", 200, "192.0.2.1/24")
	for _, tt := range []struct {
		example string
		outside string // an address that each pod reaches
	}{
		{"hello", ""}, {"layer2", ""}, {"layer3", ""}, {"localnet", "10.50.0.9"}, {"router-gateway", "192.0.2.1"}, {"ovn-kubernetes", ""},
		{"service", ""},
	} {
		t.Run(tt.example, func(t *testing.T) { w.sub(t).example(tt.example, tt.outside) })
	}
}

// example applies an example and pings.
func (w *world) example(name, outside string) {
	t := w.T
	var networks []string
	for _, n := range exampleObjects[nadv1.NetworkAttachmentDefinition](t, name, "networks.yaml") {
		networks = append(networks, n.Namespace+"/"+n.Name)
		w.network(n.Namespace+"/"+n.Name, n.Spec.Config)
	}
	var pods []*lab.Pod
	for i, object := range exampleObjects[corev1.Pod](t, name, "pods.yaml") {
		p, err := w.Nodes[i%len(w.Nodes)].NewPod(w.Ctx, object.Namespace, object.Name, object.Annotations)
		w.Must(err)
		p.Labels = object.Labels
		w.Must(p.WriteManifest())
		w.Add(p)
		pods = append(pods, p)
	}
	for i, p := range pods {
		peer := pods[(i+1)%len(pods)]
		for ifName, link := range w.Links(peer) {
			if ifName == "eth0" || ifName == "lo" {
				continue
			}
			for _, ip := range link.IPs() {
				if addr, err := netip.ParseAddr(ip); err == nil && !addr.IsLinkLocalUnicast() {
					w.MustReach(p, ip)
				}
			}
		}
		if outside != "" {
			w.MustReach(p, outside)
		}
	}
	w.exampleServices(name, pods)
	w.End(pods...)
	for _, n := range networks {
		w.removeNAD(n)
	}
}

// exampleServices applies the Services that an example may have, with the backends that they select, and connects to
// their virtual addresses from the other pods.
func (w *world) exampleServices(name string, pods []*lab.Pod) {
	if _, err := os.Stat(filepath.Join(examplesFolder, name, "services.yaml")); err != nil {
		return
	}
	for _, s := range exampleObjects[corev1.Service](w.T, name, "services.yaml") {
		text, err := yaml.Marshal(s)
		w.Must(err)
		id := s.Namespace + "/" + s.Name
		addresses := w.service(id, string(text))
		selector, err := labels.Parse(s.Annotations[service.SelectorAnnotation])
		w.Must(err)
		var clients []*lab.Pod
		for _, p := range pods {
			if selector.Matches(labels.Set(p.Labels)) {
				w.answer(p, s.Spec.Ports[0].TargetPort.IntValue())
			} else {
				clients = append(clients, p)
			}
		}
		if len(clients) == 0 || len(addresses) == 0 {
			w.T.Errorf("Service %s has the addresses %q and the clients %v", id, addresses, clients)
		}
		w.NBCtl("--wait=hv", "sync")
		for _, client := range clients {
			for _, a := range addresses {
				w.allowed(client, a, fmt.Sprintf("tcp/%d", s.Spec.Ports[0].Port))
			}
		}
		w.Must(w.RemoveManifest(serviceManifest(id)))
	}
}
