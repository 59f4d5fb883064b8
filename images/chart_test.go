package images

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	cniversion "github.com/containernetworking/cni/pkg/version"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/images/helm"
	"github.com/ovn-multinet/ovn-multinet/internal/version"
)

// update has the tests write the files that are made from the chart; `make install.yaml` sets it.
var update = flag.Bool("update", false, "write install.yaml and docs/install.md")

var helmPath = sync.OnceValues(func() (string, error) { return helm.Path("..") })

// runHelm runs Helm on the chart and returns what Helm prints.
func runHelm(t *testing.T, args ...string) (string, error) {
	t.Helper()
	path, err := helmPath()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, append(args, helm.KubeVersion)...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// external are the values for an OVN that the nodes have.
const external = "ovn: {enabled: false, nbEndpoints: ['ssl:192.0.2.1:6641']}"

// render returns the manifests of a chart with such an OVN and further values, in YAML.
func render(t *testing.T, values string) string {
	t.Helper()
	text, err := tryRender(t, external, values)
	if err != nil {
		t.Fatalf("%s\n%s", values, text)
	}
	return text
}

// tryRender renders the chart with the values of several YAML texts, of which a later one wins.
func tryRender(t *testing.T, values ...string) (string, error) {
	t.Helper()
	args := []string{"template", "ovn-multinet", "chart", "--no-hooks"}
	for i, text := range values {
		file := filepath.Join(t.TempDir(), fmt.Sprintf("%d.yaml", i))
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, "--values="+file)
	}
	return runHelm(t, args...)
}

// TestLimitsOfTheChart: large numbers of controller.limits are in the controller's file as they are written, which Helm does
// not do with every way of writing a value.
func TestLimitsOfTheChart(t *testing.T) {
	text := render(t, `controller: {limits: {"*": {endpoints: 5000}, shop: {bytes: 83886080, flows: 60000}}}`)
	for _, want := range []string{"'*':", "endpoints: 5000", "bytes: 83886080", "flows: 60000"} {
		if !strings.Contains(text, want) {
			t.Errorf("the manifests do not have %q", want)
		}
	}
}

// TestInstallYAML: install.yaml is what the chart makes by its default values.
func TestInstallYAML(t *testing.T) {
	path, err := helmPath()
	if err != nil {
		t.Fatal(err)
	}
	text, err := helm.Manifests(path, "chart")
	if err != nil {
		t.Fatal(err)
	}
	text = "# Made by `make install.yaml` from images/chart.\n" + text
	if *update {
		if err := os.WriteFile("install.yaml", []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if text != Manifests {
		t.Error("images/install.yaml is not what images/chart makes: run `make install.yaml`")
	}
}

func TestChartLints(t *testing.T) {
	out, err := runHelm(t, "lint", "--strict", "chart")
	if err != nil || strings.Contains(out, "[WARNING]") {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestChartVersion: the chart has the version of the source tree.
func TestChartVersion(t *testing.T) {
	var chart struct{ Version, AppVersion string }
	readYAML(t, "chart/Chart.yaml", &chart)
	if chart.Version != version.Number || chart.AppVersion != version.Number {
		t.Errorf("images/chart/Chart.yaml has the versions %+v, want %s", chart, version.Number)
	}
}

func readYAML(t *testing.T, file string, to any) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, to); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}

// TestDistributions: each distribution's folders are mounted where the programs expect them.
func TestDistributions(t *testing.T) {
	const k3s = "/var/lib/rancher/k3s"
	const snap = "/var/snap/microk8s"
	for _, tt := range []struct{ name, values, conf, bin, kubelet, networks string }{
		{"kubeadm", "", "/etc/cni/net.d", "/opt/cni/bin", "/var/lib/kubelet", "10.244.0.0/16,10.96.0.0/12"},
		{"k3s", "distribution: k3s", k3s + "/agent/etc/cni/net.d", k3s + "/data/cni", "/var/lib/kubelet",
			"10.42.0.0/16,10.43.0.0/16"},
		{"rke2", "distribution: rke2", "/etc/cni/net.d", "/opt/cni/bin", "/var/lib/kubelet", "10.42.0.0/16,10.43.0.0/16"},
		{"microk8s", "distribution: microk8s", snap + "/current/args/cni-network", snap + "/current/opt/cni/bin",
			snap + "/common/var/lib/kubelet", "10.1.0.0/16,10.152.183.0/24"},
		{"overridden", "distribution: k3s\ncni: {confDir: /a/net.d, binDir: /a/bin}\nkubelet: {rootDir: /a/kubelet}\n" +
			"agent: {keepOnPrimary: [192.0.2.0/24]}", "/a/net.d", "/a/bin", "/a/kubelet", "192.0.2.0/24"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			text := render(t, tt.values)
			flags := settings(t, text)
			for flag, want := range map[string]string{
				"installer net-dir": tt.conf, "installer bin-dir": tt.bin,
				"agent pod-resources-socket": tt.kubelet + "/pod-resources/kubelet.sock",
				"agent keep-on-primary":      tt.networks, "agent ovs-socket": "/run/openvswitch/db.sock",
			} {
				if flags[flag] != want {
					t.Errorf("--%s is %q, want %q", flag, flags[flag], want)
				}
			}
			mounts := hostMounts(objectsOf[appsv1.DaemonSet](t, text, "DaemonSet")[0].Spec.Template.Spec)
			for _, path := range []string{
				"installer " + tt.conf, "installer " + tt.bin, "agent " + tt.kubelet + "/pod-resources read-only",
				"agent /run/openvswitch",
			} {
				if !slices.Contains(mounts, path) {
					t.Errorf("%s is not mounted: %q", path, mounts)
				}
			}
		})
	}
}

// hostMounts lists the folders of the host that containers mount at the same path.
func hostMounts(pod corev1.PodSpec) (all []string) {
	path := map[string]string{}
	for _, v := range pod.Volumes {
		if v.HostPath != nil {
			path[v.Name] = v.HostPath.Path
		}
	}
	for _, c := range pod.Containers {
		for _, m := range c.VolumeMounts {
			if path[m.Name] != m.MountPath {
				continue
			}
			mount := c.Name + " " + m.MountPath
			if m.ReadOnly {
				mount += " read-only"
			}
			all = append(all, mount)
		}
	}
	return all
}

// TestTransports: certificates are for ssl: endpoints; agent and controller refuse them without such an endpoint.
func TestTransports(t *testing.T) {
	for endpoints, want := range map[string]string{
		"tcp:192.0.2.1:6641": "", "ssl:[2001:db8::1]:6641,ssl:nb-2.example.com:6641": "/etc/ovn-multinet/nb/tls.key",
	} {
		flags := settings(t, render(t, "ovn: {nbEndpoints: ['"+strings.ReplaceAll(endpoints, ",", "','")+"']}"))
		for _, program := range []string{"agent", "controller"} {
			if got := flags[program+" nb-endpoints"]; got != endpoints {
				t.Errorf("%s: --nb-endpoints is %q, want %q", program, got, endpoints)
			}
			if got := flags[program+" nb-private-key"]; got != want {
				t.Errorf("%s: %s: --nb-private-key is %q, want %q", program, endpoints, got, want)
			}
		}
	}
}

// TestIsolation: the agent refuses --global-namespaces without --namespace-isolation.
func TestIsolation(t *testing.T) {
	flags := settings(t, render(t, "agent: {namespaceIsolation: false, globalNamespaces: [infra]}"))
	if namespaces, given := flags["agent global-namespaces"]; given || flags["agent namespace-isolation"] != "false" {
		t.Errorf("--global-namespaces is %q, --namespace-isolation %q", namespaces, flags["agent namespace-isolation"])
	}
}

// TestControllersNodes: the controllers and the uninstall run on the nodes that the operator selects, and on none that is
// distrusted.
func TestControllersNodes(t *testing.T) {
	trusted := "{" + conf.DistrustedLabel + " DoesNotExist []}"
	for nodes, want := range map[string]string{
		"":                           "[" + trusted + "]",
		"node-role.kubernetes.io/cp": "[" + trusted + " {node-role.kubernetes.io/cp Exists []}]",
		"a=1, !b,c==2,d != 3,e=":     "[" + trusted + " {a In [1]} {b DoesNotExist []} {c In [2]} {d NotIn [3]} {e In []}]",
	} {
		text := render(t, "controller: {nodes: '"+nodes+"'}")
		pods := []corev1.PodSpec{objectsOf[appsv1.Deployment](t, text, "Deployment")[0].Spec.Template.Spec}
		hooks, err := runHelm(t, "template", "ovn-multinet", "chart", "--set-string=controller.nodes="+strings.ReplaceAll(nodes, ",", `\,`))
		if err != nil {
			t.Fatal(hooks)
		}
		pods = append(pods, objectsOf[batchv1.Job](t, hooks, "Job")[0].Spec.Template.Spec)
		for _, pod := range pods {
			node := pod.Affinity.NodeAffinity
			if p := node.PreferredDuringSchedulingIgnoredDuringExecution; len(p) != 1 || p[0].Preference.MatchExpressions[0].Key != "node-role.kubernetes.io/control-plane" {
				t.Errorf("%q prefers %v", nodes, p)
			}
			required := node.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
			if got := fmt.Sprint(required[0].MatchExpressions); got != want || len(required) != 1 {
				t.Errorf("%q requires %s, want %s", nodes, got, want)
			}
		}
	}
}

// TestReleaseNamespace: the chart makes the namespace ovn-multinet, unless the release is in that namespace.
func TestReleaseNamespace(t *testing.T) {
	for namespace, want := range map[string]bool{"kube-system": true, "ovn-multinet": false} {
		text, err := runHelm(t, "template", "x", "chart", "--namespace="+namespace)
		if err != nil || strings.Contains(text, "kind: Namespace\n") != want {
			t.Errorf("release in %s: want the namespace: %v\n%v", namespace, want, err)
		}
		if strings.Contains(text, "namespace: kube-system") {
			t.Error("objects are in the namespace of the release")
		}
	}
}

// TestAnnotationsOfOurPods: our pods are in the host's network, and have no annotation that a pod with networks has. The
// agent would warn of each of them.
func TestAnnotationsOfOurPods(t *testing.T) {
	both(t, func(m manifests, t *testing.T) {
		for _, d := range objectsOf[appsv1.DaemonSet](t, m.text, "DaemonSet") {
			noNetworks(t, d.Name, d.Spec.Template.Annotations)
		}
		for _, d := range objectsOf[appsv1.Deployment](t, m.text, "Deployment") {
			noNetworks(t, d.Name, d.Spec.Template.Annotations)
		}
	})
}

func noNetworks(t *testing.T, name string, annotations map[string]string) {
	t.Helper()
	if found := conf.NetworkAnnotations(annotations); len(found) > 0 {
		t.Errorf("the pods of %s have the annotations %v", name, found)
	}
}

// TestValuesRestartPods: pods read their settings at their start only.
func TestValuesRestartPods(t *testing.T) {
	hash := func(values string) (all []string) {
		text := render(t, values)
		agent := objectsOf[appsv1.DaemonSet](t, text, "DaemonSet")[0].Spec.Template
		controller := objectsOf[appsv1.Deployment](t, text, "Deployment")[0].Spec.Template
		return []string{agent.Annotations["checksum/values"], controller.Annotations["checksum/values"]}
	}
	before, after := hash(""), hash("agent: {reconcilePeriod: 2m}")
	if before[0] == after[0] || before[1] == after[1] || before[0] == "" {
		t.Errorf("before %q, after %q", before, after)
	}
	if live := hash("controller: {physicalNetworks: {provider: [{vlans: '100', namespaces: [shop]}]}}"); live[1] != before[1] {
		t.Error("a change of the controller's --config, which it follows, starts the pods again")
	}
}

// TestSchemaRefuses: values that cannot work are refused in one line that names them.
func TestSchemaRefuses(t *testing.T) {
	for values, want := range map[string]string{
		"ovn: {nbEndpoints: ['192.0.2.1:6641']}":                                        "'/ovn/nbEndpoints/0': '192.0.2.1:6641' does not match",
		"ovn: {nbEndpoints: ['ssl:192.0.2.1:66410']}":                                   "'/ovn/nbEndpoints/0': 'ssl:192.0.2.1:66410' does not match",
		"ovn: {nbEndpoints: ['unix:/run/ovn/nb.sock']}":                                 "'/ovn/nbEndpoints/0'",
		"ovn: {nbEndpoints: 'tcp:192.0.2.1:6641'}":                                      "'/ovn/nbEndpoints': got string, want array",
		"ovn: {enabled: true}":                                                          "'/ovn/enabled': value must be false",
		"ovn: {nbEndpoints: []}":                                                        "'/ovn/nbEndpoints': minItems: got 0, want 1",
		"ovn: {replicas: 2}":                                                            "'/ovn/replicas': value must be one of",
		"ovn: {datapath: dpdk}":                                                         "'/ovn/datapath': value must be one of",
		"ovn: {endpoints: ['tcp:192.0.2.1:6641']}":                                      "'/ovn': additional properties 'endpoints' not allowed",
		"ovn: {certificateLife: 30m}":                                                   "'/ovn/certificateLife': '30m' does not match",
		"ovn: {certificateLife: 721h}":                                                  "'/ovn/certificateLife': '721h' does not match",
		"controller: {nodes: 'a in (b)'}":                                               "'/controller/nodes': 'a in (b)' does not match",
		"controller: {nodes: 'a,,b'}":                                                   "'/controller/nodes': 'a,,b' does not match",
		"controller: {nodes: '!a=b'}":                                                   "'/controller/nodes': '!a=b' does not match",
		"ovn: {tunnelInterface: 'eth1,,eth2'}":                                          "'/ovn/tunnelInterface': 'eth1,,eth2' does not match pattern",
		"agents: {}":                                                                    "'': additional properties 'agents' not allowed",
		"distribution: minikube":                                                        "'/distribution': value must be one of 'kubeadm', 'k3s', 'rke2'",
		"logLevel: trace":                                                               "'/logLevel': value must be one of",
		"images: {agent: 'no image'}":                                                   "'/images/agent': 'no image' does not match",
		"images: {registry: 'https://registry.example.org'}":                            "'/images/registry': 'https://registry.example.org' does not match",
		"images: {pullPolicy: Sometimes}":                                               "'/images/pullPolicy': value must be one of",
		"images: {pullSecrets: [{name: a}]}":                                            "'/images/pullSecrets/0': got object, want string",
		"pods: {labels: {app: other}}":                                                  "'/pods/labels/app': false schema",
		"pods: {annotations: {k8s.v1.cni.cncf.io/networks: blue}}":                      "'/pods/annotations/k8s.v1.cni.cncf.io~1networks': false schema",
		"resources: {agent: {limits: {memory: 256M}}}":                                  "'/resources/agent/limits/memory': '256M' does not match",
		"resources: {agent: {limit: {memory: 256Mi}}}":                                  "'/resources/agent': additional properties 'limit' not allowed",
		"resources: {nb: {}}":                                                           "'/resources': additional properties 'nb' not allowed",
		"agent: {extraArgs: [-v]}":                                                      "'/agent/extraArgs/0': '-v' does not match",
		"agent: {extraArgs: ['--log-level', debug]}":                                    "'/agent/extraArgs/1': 'debug' does not match",
		"agent: {extraArgs: ['--node-name=a']}":                                         "'/agent/extraArgs/0': 'not' failed",
		"controller: {extraArgs: '--log-level=debug'}":                                  "'/controller/extraArgs': got string, want array",
		"controller: {extraArgs: ['--metrics-address=:1']}":                             "'/controller/extraArgs/0': 'not' failed",
		"controller: {extraArgs: ['--config=/x']}":                                      "'/controller/extraArgs/0': 'not' failed",
		"agent: {priorityClassName: ''}":                                                "'/agent/priorityClassName': '' does not match",
		"attach: {priorityClassName: High}":                                             "'/attach/priorityClassName': 'High' does not match",
		"controller: {priorityClassName: [a]}":                                          "'/controller/priorityClassName': got array, want string",
		"agent: {nodeSelector: {kubernetes.io/os: windows}}":                            "'/agent/nodeSelector/kubernetes.io~1os': false schema",
		"agent: {nodeSelector: {net: true}}":                                            "'/agent/nodeSelector/net': got boolean, want string",
		"agent: {affinity: {}}":                                                         "'/agent': additional properties 'affinity' not allowed",
		"agent: {tolerations: [{key: a, operator: In}]}":                                "'/agent/tolerations/0/operator': value must be one of",
		"attach: {nodeSelector: {a: b}}":                                                "'/attach': additional properties 'nodeSelector' not allowed",
		"images: {plugin: 'a@sha256:0123'}":                                             "'/images/plugin': 'a@sha256:0123' does not match",
		"agent: {env: {OVN_MULTINET_LOG_LEVEL: debug}}":                                 "'/agent/env/OVN_MULTINET_LOG_LEVEL': false schema",
		"controller: {replicas: 0}":                                                     "'/controller/replicas': minimum: got 0, want 1",
		"cni: {confDir: etc/cni}":                                                       "'/cni/confDir': 'etc/cni' does not match",
		"cni: {primary: net.d/10-flannel.conflist}":                                     "'/cni/primary'",
		"cni: {version: '2.0.0'}":                                                       "'/cni/version': value must be one of",
		"agent: {keepOnPrimary: [10.0.0.0/33]}":                                         "'/agent/keepOnPrimary/0': '10.0.0.0/33' does not match",
		"agent: {keepOnPrimary: [10.0.256.0/24]}":                                       "'/agent/keepOnPrimary/0': '10.0.256.0/24' does not match",
		"agent: {keepOnPrimary: ['2001:db8::']}":                                        "'/agent/keepOnPrimary/0': '2001:db8::' does not match",
		"agent: {reconcilePeriod: 60}":                                                  "'/agent/reconcilePeriod': got number, want string",
		"agent: {reconcilePeriod: 0s}":                                                  "'/agent/reconcilePeriod': '0s' does not match",
		"agent: {metricsAddress: ':0'}":                                                 "'/agent/metricsAddress': ':0' does not match",
		"agent: {globalNamespaces: ['*']}":                                              "'/agent/globalNamespaces/0': '*' does not match",
		"controller: {widestIPAMSubnet: 31}":                                            "'/controller/widestIPAMSubnet': maximum: got 31, want 30",
		"controller: {routers: {/core: {vlan: 100}}}":                                   "'/controller/routers/~1core': additional properties 'vlan' not",
		"controller: {physicalNetworks: {p: [{vlan: '1'}]}}":                            "'/controller/physicalNetworks/p/0': additional properties",
		"controller: {securityProfiles: {p: {}}}":                                       "'/controller/securityProfiles/p': missing property 'namespaces'",
		"controller: {limits: {'*': {endpoint: 7}}}":                                    "'/controller/limits/*': additional properties 'endpoint'",
		"networks: [{config: {subnets: 10.1.0.0/16}}]":                                  "'/networks/0': missing property 'name'",
		"networks: [{name: blue}]":                                                      "'/networks/0': missing property 'config'",
		"networks: [{name: blue, config: {mtu: 1400}}]":                                 "'/networks/0/config': missing property 'subnets'",
		"networks: [{name: Blue, config: {subnets: 10.1.0.0/16}}]":                      "'/networks/0/name': 'Blue' does not match",
		"networks: [{name: blue, config: {subnets: 10.1.0.0}}]":                         "'/networks/0/config/subnets': '10.1.0.0' does not match",
		"networks: [{name: blue, config: {subnet: 10.1.0.0/16, subnets: 10.1.0.0/16}}]": "'/networks/0/config': additional properties 'subnet' not allowed",
		"networks: [{name: blue, config: {type: macvlan, subnets: 10.1.0.0/16}}]":       "'/networks/0/config/type': value must be 'ovn-multinet'",
		"networks: [{name: blue, config: '{\"subnets\":\"10.1.0.0/16\"}'}]":             "'/networks/0/config': got string, want object",
		"networks: [{name: blue, config: {topology: layer1, subnets: 10.1.0.0/16}}]":    "'/networks/0/config/topology': value must be one of",
		"networks: [{name: blue, namespace: '*', config: {subnets: 10.1.0.0/16}}]":      "'/networks/0/namespace': '*' does not match",
		"plugin: {allowedDelegates: [/bin/sh]}":                                         "'/plugin/allowedDelegates/0': '/bin/sh' does not match",
		"plugin: {timeout: 3 minutes}":                                                  "'/plugin/timeout': '3 minutes' does not match",
	} {
		out, err := tryRender(t, external, values)
		if err == nil {
			t.Errorf("%s is accepted", values)
			continue
		}
		var lines []string
		for line := range strings.SplitSeq(out, "\n") {
			if strings.HasPrefix(line, "- at ") {
				lines = append(lines, line)
			}
		}
		if len(lines) != 1 || !strings.HasPrefix(lines[0], "- at "+want) {
			t.Errorf("%s\ngot  %q\nwant %q", values, lines, want)
		}
	}
}

// TestSchemaOfTheProduct: the schema has the words and keys that the programs have.
func TestSchemaOfTheProduct(t *testing.T) {
	type schema struct {
		Enum                 []string
		Properties           map[string]schema
		AdditionalProperties any
		Items                *schema
	}
	var s schema
	readYAML(t, "chart/values.schema.json", &s)
	if got := s.Properties["logLevel"].Enum; !slices.Equal(got, conf.LogLevels) {
		t.Errorf("logLevel is one of %v, want %v", got, conf.LogLevels)
	}
	if got := s.Properties["cni"].Properties["version"].Enum[1:]; !slices.Equal(got, cniversion.All.SupportedVersions()) {
		t.Errorf("cni.version is one of %v, want %v", got, cniversion.All.SupportedVersions())
	}
	text, err := os.ReadFile("chart/values.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	for file, types := range map[string][]string{
		"router.go": {"routerJSON"}, "join.go": {"grantJSON"}, "physicalgrant.go": {"physicalGrantJSON"},
	} {
		source, err := os.ReadFile(filepath.Join("..", "netmodel", file))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range types {
			_, body, found := strings.Cut(string(source), "type "+name+" struct {")
			body, _, _ = strings.Cut(body, "\n}")
			keys := regexp.MustCompile(`json:"(\w+)"`).FindAllStringSubmatch(body, -1)
			if !found || len(keys) < 3 {
				t.Errorf("%s: found %d keys of %s", file, len(keys), name)
			}
			for _, key := range keys {
				if !strings.Contains(string(text), `"`+key[1]+`": {`) {
					t.Errorf("the schema does not have the key %s of %s", key[1], name)
				}
			}
		}
	}
	var objects func(path string, s schema)
	objects = func(path string, s schema) {
		if closed, is := s.AdditionalProperties.(bool); s.Properties != nil && (!is || closed) {
			t.Errorf("%s: unknown values are allowed", path)
		}
		for name, p := range s.Properties {
			objects(path+"/"+name, p)
		}
	}
	objects("", s)
}
