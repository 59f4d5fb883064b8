package examples

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/controller/configfile"
	"github.com/ovn-multinet/ovn-multinet/delegate/delegateconf"
	"github.com/ovn-multinet/ovn-multinet/nad"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/netmodel/entry"
	"github.com/ovn-multinet/ovn-multinet/netmodel/service"
	"github.com/ovn-multinet/ovn-multinet/source"
)

// namespace is the namespace of all examples.
const namespace = "examples"

// want has the networks that the pods of each example get: attachments to OVN networks by their topology, and delegates.
var want = map[string][]string{
	"hello":          {"hello-client: net1 layer2", "hello-server: net1 layer2"},
	"layer2":         {"layer2-a: net1 layer2", "layer2-b: data0 layer2"},
	"layer3":         {"layer3-a: net1 layer3", "layer3-b: net1 layer3"},
	"localnet":       {"localnet-a: net1 localnet", "localnet-b: net1 localnet"},
	"router-gateway": {"router-black: net1 layer2", "router-red: net1 layer2"},
	"service":        {"service-a: net1 layer2", "service-b: net1 layer2", "service-client: net1 layer2"},
	"dns":            {"dns-client: net1 layer2", "dns-web: net1 layer2", "dns: net1 layer2"},
	"sriov":          {"sriov-a: net1 sriov"},
	"delegate":       {"delegate-a: net1 macvlan", "delegate-b: net1 macvlan"},
	"ovn-kubernetes": {"tenant-a: net1 layer2", "tenant-a: net2 layer3", "tenant-b: net1 layer2", "tenant-b: net2 layer3"},
}

// TestExamples reads each example as agent and controller do.
func TestExamples(t *testing.T) {
	for name, want := range want {
		t.Run(name, func(t *testing.T) {
			m, err := source.NewManifests(name, source.Changes{}, slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			config := operatorConfig(t, m)
			nads, err := m.NADs(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, n := range nads {
				checkNetwork(t, n, config)
			}
			pods, err := m.Pods(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, p := range pods {
				got = append(got, attachments(t, name, m, p)...)
			}
			slices.Sort(got)
			if d := deployment(t, name); d != nil {
				p := &netmodel.Pod{Namespace: d.Namespace, Name: d.Name, Annotations: d.Spec.Template.Annotations}
				got = append(got, attachments(t, name, m, p)...)
			}
			if !slices.Equal(got, want) {
				t.Errorf("the pods get %q, want %q", got, want)
			}
			services, err := m.AllServices(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range services {
				checkService(t, s, m)
			}
		})
	}
}

// operatorConfig returns what the objects in operator.yaml say, which an example may have.
func operatorConfig(t *testing.T, m *source.Manifests) configfile.Config {
	t.Helper()
	objects, err := m.Entries(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	text, err := entry.Join(nil, objects)
	if err != nil {
		t.Fatal(err)
	}
	config, err := configfile.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return config
}

// deployment returns the Deployment in deployment.yaml, which an example may have.
func deployment(t *testing.T, example string) *appsv1.Deployment {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(example, "deployment.yaml"))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	object := &appsv1.Deployment{}
	if err == nil {
		err = yaml.UnmarshalStrict(text, object)
	}
	if err != nil || object.Namespace != namespace {
		t.Fatalf("deployment.yaml of namespace %s: %v", object.Namespace, err)
	}
	return object
}

// checkService checks a Service, which its network has to serve.
func checkService(t *testing.T, o *service.Object, m *source.Manifests) {
	t.Helper()
	if o.Service == nil {
		t.Fatalf("Service %s: %s", o.ID(), o.Refusal)
	}
	of, name, _ := strings.Cut(o.Service.NAD, "/")
	n, err := m.NAD(t.Context(), of, name)
	if err != nil {
		t.Fatalf("Service %s: %v", o.ID(), err)
	}
	network, err := n.Network()
	if err == nil {
		_, err = o.Service.Subnets(network)
	}
	if err != nil {
		t.Errorf("Service %s: %v", o.ID(), err)
	}
}

// checkNetwork checks an OVN network against what the operator allows.
func checkNetwork(t *testing.T, n *netmodel.NAD, config configfile.Config) {
	t.Helper()
	kind, err := n.Kind()
	if err != nil || n.Namespace != namespace {
		t.Fatalf("NAD %s: %v", n.ID(), err)
	}
	if !conf.IsOVN(kind) {
		return
	}
	network, err := n.Network()
	if err != nil {
		t.Fatalf("NAD %s: %v", n.ID(), err)
	}
	if err := config.Physical.Check(n.Namespace, network); err != nil {
		t.Errorf("NAD %s: %v", n.ID(), err)
	}
	if network.Router == "" {
		return
	}
	router := config.Routers[network.RouterName()]
	if router == nil {
		t.Errorf("NAD %s: operator.yaml does not have router %s", n.ID(), network.RouterName())
	} else if err := router.CheckJoin(network); err != nil {
		t.Errorf("NAD %s: %v", n.ID(), err)
	}
}

var allowed = regexp.MustCompile(`"--allowed-delegates=([a-z,]+)", --allowed-ipam=([a-z,]+)`)

// attachments returns the interfaces of a pod with their kinds. The plugins that the README allows may run.
func attachments(t *testing.T, example string, m *source.Manifests, p *netmodel.Pod) (all []string) {
	t.Helper()
	rules := nad.Rules{Isolated: true}
	rules.Allowed, rules.AllowedIPAM = delegateconf.Shipped()
	readme, err := os.ReadFile(filepath.Join(example, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	if args := allowed.FindSubmatch(readme); args != nil {
		rules.Allowed, rules.AllowedIPAM = strings.Split(string(args[1]), ","), strings.Split(string(args[2]), ",")
	}
	requests, err := nad.ParseRequests(p.Annotations, p.Namespace, "eth0")
	if err != nil {
		t.Fatalf("pod %s: %v", p.Name, err)
	}
	list, err := nad.Resolve(t.Context(), p.Namespace, requests, rules, m.NAD)
	if err != nil {
		t.Fatalf("pod %s: %v", p.Name, err)
	}
	for _, a := range list {
		kind := ""
		if a.Network != nil {
			kind = string(a.Network.Topology)
		} else {
			kind = typeOf(t, a.Delegate.Conflist)
		}
		all = append(all, fmt.Sprintf("%s: %s %s", p.Name, a.Interface, kind))
	}
	return all
}

// typeOf returns the type of the first plugin of a list.
func typeOf(t *testing.T, conflist []byte) string {
	t.Helper()
	var list struct{ Plugins []struct{ Type string } }
	if err := yaml.Unmarshal(conflist, &list); err != nil || len(list.Plugins) == 0 {
		t.Fatalf("conflist %s: %v", conflist, err)
	}
	return list.Plugins[0].Type
}

// TestFiles: every file of an example has a known purpose, every document a known kind, and the pages name every example.
func TestFiles(t *testing.T) {
	index, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	links(t, "README.md", index)
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.IsDir() && want[e.Name()] == nil {
			t.Errorf("folder %s is not tested", e.Name())
		}
	}
	kinds := map[string]string{
		"networks.yaml": "k8s.cni.cncf.io/v1 NetworkAttachmentDefinition", "pods.yaml": "v1 Pod",
		"services.yaml": "v1 Service", "configmap.yaml": "v1 ConfigMap", "deployment.yaml": "apps/v1 Deployment",
		"uplink.yaml": entry.APIVersion + " PhysicalNetwork",
	}
	for name := range want {
		if !bytes.Contains(index, []byte("["+name+"]("+name+"/README.md)")) {
			t.Errorf("README.md does not name %s", name)
		}
		files, err := os.ReadDir(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			path := filepath.Join(name, f.Name())
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if f.Name() == "README.md" {
				links(t, path, text)
				continue
			}
			for _, got := range kindsOf(t, path, text) {
				if f.Name() == "operator.yaml" && strings.HasPrefix(got, entry.APIVersion+" ") {
					continue
				}
				if want := kinds[f.Name()]; got != want {
					t.Errorf("%s has %q, want %q", path, got, want)
				}
			}
		}
	}
}

// kindsOf returns version and kind of each document in a YAML file.
func kindsOf(t *testing.T, path string, text []byte) (all []string) {
	t.Helper()
	for documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text))); ; {
		doc, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return all
		}
		var object metav1.TypeMeta
		if err == nil {
			err = yaml.Unmarshal(doc, &object)
		}
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		all = append(all, object.APIVersion+" "+object.Kind)
	}
}

var (
	link    = regexp.MustCompile(`\]\(([^)#]*)(?:#([^)]*))?\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	symbol  = regexp.MustCompile(`[^a-z0-9 _-]`)
)

// links checks that the files and headings exist which a page links to.
func links(t *testing.T, path string, text []byte) {
	t.Helper()
	for _, m := range link.FindAllSubmatch(text, -1) {
		target, err := os.ReadFile(filepath.Join(filepath.Dir(path), string(m[1])))
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		var anchors []string
		for _, h := range heading.FindAllSubmatch(target, -1) {
			words := symbol.ReplaceAllString(strings.ToLower(string(h[1])), "")
			anchors = append(anchors, strings.ReplaceAll(words, " ", "-"))
		}
		if anchor := string(m[2]); anchor != "" && !slices.Contains(anchors, anchor) {
			t.Errorf("%s: %s has no heading #%s", path, m[1], anchor)
		}
	}
}
