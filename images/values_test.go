package images

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// flagValues has the chart's value of each flag, and a sample of it in YAML with what the program gets.
var flagValues = []struct{ programs, flag, value, sample, want string }{
	{"agent controller installer", "log-level", "logLevel", "debug", "debug"},
	{"agent controller", "nb-endpoints", "ovn.nbEndpoints", "['ssl:a:1', 'ssl:b:2']", "ssl:a:1,ssl:b:2"},
	{"agent controller", "nb-server-name", "ovn.nbServerNames", "[a, ovnnb id:1]", "a,ovnnb id:1"},
	{"controller", "ovn-replicas", "ovn.replicas", "5", "5"},
	{"controller", "ovn-nodes", "ovn.nodes", "a=b", "a=b"},
	{"controller", "ovn-replace-after", "ovn.replaceAfter", "1m", "1m"},
	{"controller", "ovn-signer-name", "ovn.signerName", "clusterissuers.cert-manager.io/ovn", "clusterissuers.cert-manager.io/ovn"},
	{"controller", "ovn-certificate-life", "ovn.certificateLife", "48h", "48h"},
	{"agent", "bridge", "ovn.bridge", "br-x", "br-x"},
	{"agent", "ovn-controller-log", "ovn.controllerLog", "/x/ovn.log", "/x/ovn.log"},
	{"agent", "ovs-socket", "ovn.ovsSocket", "/x/db.sock", "/x/db.sock"},
	{"agent controller", "cluster-id", "cluster.id", "a", "a"},
	{"controller", "adopt-cluster", "cluster.adopt", "b", "b"},
	{"installer", "net-dir", "cni.confDir", "/x/net.d", "/x/net.d"},
	{"installer", "bin-dir", "cni.binDir", "/x/bin", "/x/bin"},
	{"installer", "primary", "cni.primary", "10-x.conflist", "10-x.conflist"},
	{"installer", "cni-version", "cni.version", "1.0.0", "1.0.0"},
	{"agent", "pod-resources-socket", "kubelet.rootDir", "/x/kubelet", "/x/kubelet/pod-resources/kubelet.sock"},
	{"agent controller", "keep-on-primary", "agent.keepOnPrimary", "[10.0.0.0/8, '2001:db8::/32']", "10.0.0.0/8,2001:db8::/32"},
	{"agent controller", "namespace-isolation", "agent.namespaceIsolation", "false", "false"},
	{"agent controller", "global-namespaces", "agent.globalNamespaces", "[a, b]", "a,b"},
	{"agent", "nad-conf-dir", "agent.nadConfDir", "/x/nads", "/x/nads"},
	{"agent", "cni-args-for-static", "agent.cniArgsForStatic", "true", "true"},
	{"agent", "early-ports", "agent.earlyPorts", "false", "false"},
	{"agent", "attach", "attach.enabled", "true", "true"},
	{"agent", "reconcile-period", "agent.reconcilePeriod", "1m30s", "1m30s"},
	{"agent", "metrics-address", "agent.metricsAddress", "':9401'", ":9401"},
	{"controller", "joining-namespaces", "controller.joiningNamespaces", "[a, b]", "a,b"},
	{"controller", "orphan-period", "controller.orphanPeriod", "2m", "2m"},
	{"controller", "widest-ipam-subnet", "controller.widestIPAMSubnet", "20", "20"},
	{"controller", "denied-log-rate", "controller.deniedLogRate", "0", "0"},
	{"controller", "services-per-namespace", "controller.servicesPerNamespace", "5", "5"},
	{"controller", "startup-taint", "controller.startupTaint", "false", "false"},
	{"controller", "metrics-address", "controller.metricsAddress", "':9402'", ":9402"},
	{"controller", "config", "controller.routers", "{}", "/etc/ovn-multinet/controller/controller.yaml"},
	{"controller", "config", "controller.physicalNetworks", "{}", "/etc/ovn-multinet/controller/controller.yaml"},
	{"controller", "config", "controller.portSecurityOff", "{namespaces: []}", "/etc/ovn-multinet/controller/controller.yaml"},
	{"controller", "config", "controller.securityProfiles", "{}", "/etc/ovn-multinet/controller/controller.yaml"},
	{"controller", "config", "controller.limits", "{}", "/etc/ovn-multinet/controller/controller.yaml"},
	{"installer", "allowed-delegates", "plugin.allowedDelegates", "[sriov]", "sriov"},
	{"installer", "allowed-ipam", "plugin.allowedIPAM", "[static, dhcp]", "static,dhcp"},
	{"installer", "strict-status", "plugin.strictStatus", "true", "true"},
	{"installer", "plugin-timeout", "plugin.timeout", "2m", "2m"},
	{"installer", "plugin-log", "plugin.log", "/var/log/x.log", "/var/log/x.log"},
}

// otherValues are the values that are not for a flag.
var otherValues = []string{"distribution", "images.agent", "images.controller", "images.plugin", "images.ovn", "ovn.enabled",
	"ovn.datapath", "ovn.tunnelInterface", "ovn.electionTimer", "controller.nodes", "controller.tolerations", "controller.topologySpreadConstraints", "networks", "tenantRoles",
	"images.registry", "images.pullPolicy", "images.pullSecrets", "pods.labels", "pods.annotations", "resources.agent", "resources.installer", "resources.attach",
	"resources.controller", "resources.database", "resources.northd", "resources.ovsdb", "resources.vswitchd", "resources.ovnController",
	"resources.certificates", "agent.env", "controller.replicas", "controller.env",
	"agent.extraArgs", "agent.priorityClassName", "agent.nodeSelector", "agent.tolerations",
	"attach.priorityClassName", "controller.extraArgs", "controller.priorityClassName",
	"monitoring.enabled", "monitoring.labels", "monitoring.dashboardLabels"}

// withoutValue has the flags that need no value, with the reason.
var withoutValue = map[string]string{
	"node-name":                 "each agent has the name of its own node",
	"kubeconfig":                "a pod has its ServiceAccount",
	"manifests":                 "the chart is for a cluster",
	"leader-election-namespace": "it is the controller's own namespace",
	"plugin":                    "the path in the image",
	"socket":                    "agent, plugin and kubectl multinet use the same path on all nodes",
	"state-dir":                 "agent, plugin and kubectl multinet use the same path on all nodes",
	"nb-certificate":            "the chart mounts the Secrets, and names their files if an endpoint is ssl:",
	"nb-private-key":            "see nb-certificate",
	"nb-ca-cert":                "see nb-certificate",
	"nb-members":                "with ovn.enabled it is the mounted ConfigMap",
}

// flagsOf returns the flags of the program that a container runs, from its source.
func flagsOf(t *testing.T, container string) (all []string) {
	t.Helper()
	const shared, log = "internal/daemon/flags.go", "internal/program/log.go"
	for _, file := range map[string][]string{
		"agent":      {"cmd/ovn-multinetd/main.go", shared, log},
		"controller": {"cmd/ovn-multinet-controller/main.go", shared, log},
		"installer":  {"cmd/ovn-multinet-install/main.go", log},
	}[container] {
		text, err := os.ReadFile(filepath.Join("..", file))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`Var\(\S+, "([a-z-]+)"`).FindAllSubmatch(text, -1) {
			all = append(all, string(m[1]))
		}
	}
	if len(all) < 10 {
		t.Fatalf("%s: found %d flags", container, len(all))
	}
	return all
}

// settings returns the flags that manifests set, as "agent log-level", in the order of what wins: the ConfigMap, the
// container's environment, its arguments.
func settings(t *testing.T, manifests string) map[string]string {
	t.Helper()
	var config map[string]string
	for _, c := range objectsOf[corev1.ConfigMap](t, manifests, "ConfigMap") {
		if c.Name == "ovn-multinet" {
			config = c.Data
		}
	}
	set := map[string]string{}
	variable := func(c corev1.Container, name, value string) {
		if flag, ours := strings.CutPrefix(name, "OVN_MULTINET_"); ours {
			flag = strings.ToLower(strings.ReplaceAll(flag, "_", "-"))
			if slices.Contains(flagsOf(t, c.Name), flag) {
				set[c.Name+" "+flag] = value
			}
		}
	}
	agent := objectsOf[appsv1.DaemonSet](t, manifests, "DaemonSet")[0].Spec.Template.Spec.Containers
	controller := objectsOf[appsv1.Deployment](t, manifests, "Deployment")[0].Spec.Template.Spec.Containers
	for _, c := range append(agent, controller...) {
		if len(c.EnvFrom) > 0 {
			for name, value := range config {
				variable(c, name, value)
			}
		}
		for _, e := range c.Env {
			variable(c, e.Name, e.Value)
		}
		for _, arg := range c.Args {
			flag, value, given := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
			if !given {
				value = "true"
			}
			set[c.Name+" "+flag] = value
		}
	}
	return set
}

// TestEachFlagHasAValue: a flag of agent, controller or installer has a value in the chart, or a reason to have none.
func TestEachFlagHasAValue(t *testing.T) {
	has, used := map[string]bool{}, map[string]bool{}
	for _, v := range flagValues {
		for program := range strings.FieldsSeq(v.programs) {
			has[program+" "+v.flag] = true
		}
	}
	for _, program := range []string{"agent", "controller", "installer"} {
		for _, flag := range flagsOf(t, program) {
			if _, excluded := withoutValue[flag]; has[program+" "+flag] == excluded {
				t.Errorf("%s: --%s: has a value in the chart: %v, is excluded: %v", program, flag, !excluded, excluded)
			}
			used[program+" "+flag], used[flag] = true, true
		}
	}
	for _, flag := range append(slices.Collect(maps.Keys(has)), slices.Collect(maps.Keys(withoutValue))...) {
		if !used[flag] {
			t.Errorf("no program has the flag %s", flag)
		}
	}
}

// TestValuesReachThePrograms sets all values that have a flag.
func TestValuesReachThePrograms(t *testing.T) {
	// The chart does not set --global-namespaces without --namespace-isolation.
	const alone = "agent.namespaceIsolation"
	together := map[string]any{}
	for _, v := range flagValues {
		if v.value != alone {
			set(t, together, v.value, v.sample)
		}
	}
	text, err := yaml.Marshal(together)
	if err != nil {
		t.Fatal(err)
	}
	outside := settings(t, render(t, string(text)))
	isolation := settings(t, render(t, "agent: {namespaceIsolation: false}"))
	set(t, together, "ovn.enabled", "true")
	set(t, together, "ovn.nbEndpoints", "[]")
	if text, err = yaml.Marshal(together); err != nil {
		t.Fatal(err)
	}
	all := settings(t, render(t, string(text)))
	for _, v := range flagValues {
		got := all
		if v.value == alone {
			got = isolation
		}
		if strings.HasPrefix(v.value, "ovn.nb") {
			got = outside // a chart that brings OVN has no value for them
		}
		for program := range strings.FieldsSeq(v.programs) {
			if got[program+" "+v.flag] != v.want {
				t.Errorf("%s: %s is %s: --%s is %q, want %q", program, v.value, v.sample, v.flag, got[program+" "+v.flag], v.want)
			}
		}
	}
}

// set sets a.b of values to what YAML says.
func set(t *testing.T, values map[string]any, name, text string) {
	t.Helper()
	group, key, nested := strings.Cut(name, ".")
	if nested {
		if values[group] == nil {
			values[group] = map[string]any{}
		}
		set(t, values[group].(map[string]any), key, text)
		return
	}
	var value any
	if err := yaml.Unmarshal([]byte(text), &value); err != nil {
		t.Fatal(err)
	}
	values[name] = value
}

// value is a value of the chart, as values.yaml has it.
type value struct{ name, preset, comment string }

// chartValues reads values.yaml. Each value has one line of comment.
func chartValues(t *testing.T) (all []value) {
	t.Helper()
	text, err := os.ReadFile("chart/values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(`^(  )?(\w+):(?: (.+))?$`)
	group, comment := "", ""
	for text := range strings.SplitSeq(string(text), "\n") {
		if words, is := strings.CutPrefix(strings.TrimSpace(text), "# "); is {
			comment = words
			continue
		}
		m := line.FindStringSubmatch(text)
		switch {
		case m == nil && text != "":
			t.Fatalf("values.yaml: %q is no value", text)
		case m == nil:
		case m[3] == "":
			group = m[2] + "."
		default:
			if m[1] == "" {
				group = ""
			}
			if !strings.HasSuffix(comment, ".") {
				t.Errorf("values.yaml: %s%s has the comment %q", group, m[2], comment)
			}
			all = append(all, value{group + m[2], m[3], comment})
		}
		comment = ""
	}
	return all
}

// TestValuesAreKnown: values.yaml, the schema and the lists of this file have the same values.
func TestValuesAreKnown(t *testing.T) {
	want := slices.Clone(otherValues)
	for _, v := range flagValues {
		want = append(want, v.value)
	}
	slices.Sort(want)
	var has []string
	for _, v := range chartValues(t) {
		has = append(has, v.name)
	}
	slices.Sort(has)
	if !slices.Equal(has, want) {
		t.Errorf("values.yaml has %v\nwant %v", has, want)
	}
	var schema struct {
		Properties map[string]struct{ Properties map[string]any }
	}
	readYAML(t, "chart/values.schema.json", &schema)
	has = nil
	for group, s := range schema.Properties {
		if len(s.Properties) == 0 && group != "global" {
			has = append(has, group)
		}
		for key := range s.Properties {
			has = append(has, group+"."+key)
		}
	}
	if slices.Sort(has); !slices.Equal(has, want) {
		t.Errorf("the schema has %v\nwant %v", has, want)
	}
}

// TestInstallPage: the tables of docs/install.md are made from the chart.
func TestInstallPage(t *testing.T) {
	const page = "../docs/install.md"
	flag := map[string]string{}
	for _, v := range flagValues {
		flag[v.value] = "`--" + v.flag + "`"
	}
	values := "| value | default | flag | meaning |\n|---|---|---|---|\n"
	for _, v := range chartValues(t) {
		values += fmt.Sprintf("| `%s` | `%s` | %s | %s |\n", v.name, v.preset, flag[v.name], v.comment)
	}
	var presets map[string]struct {
		ConfDir, BinDir, KubeletDir string
		KeepOnPrimary               []string
	}
	readYAML(t, "chart/distributions.yaml", &presets)
	folders := "| `distribution` | `cni.confDir` | `cni.binDir` | `kubelet.rootDir` | `agent.keepOnPrimary` |\n|---|---|---|---|---|\n"
	for _, name := range slices.Sorted(maps.Keys(presets)) {
		p := presets[name]
		folders += fmt.Sprintf("| `%s` | `%s` | `%s` | `%s` | `%s` |\n", name, p.ConfDir, p.BinDir, p.KubeletDir,
			strings.Join(p.KeepOnPrimary, ", "))
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	made := string(text)
	for name, table := range map[string]string{"values": values, "distributions": folders} {
		begin, end := "<!-- "+name+": `make install.yaml` -->\n", "<!-- end of "+name+" -->\n"
		before, rest, found := strings.Cut(made, begin)
		_, after, closed := strings.Cut(rest, end)
		if !found || !closed {
			t.Fatalf("docs/install.md does not have the marks of the table of %s", name)
		}
		made = before + begin + table + end + after
	}
	if *update {
		if err := os.WriteFile(page, []byte(made), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if made != string(text) {
		t.Error("the tables of docs/install.md are not those of the chart: run `make install.yaml`")
	}
}

// TestOVNValuesReachThePrograms: the programs of OVN's pods get their values.
func TestOVNValuesReachThePrograms(t *testing.T) {
	text, err := runHelm(t, "template", "ovn-multinet", "chart", "--set=ovn.electionTimer=7s,"+
		`ovn.datapath=userspace,ovn.tunnelInterface=eth7\,192.0.2.0/24,ovn.bridge=br-x`)
	if err != nil {
		t.Fatal(err)
	}
	args := map[string][]string{}
	for _, d := range objectsOf[appsv1.DaemonSet](t, text, "DaemonSet") {
		for _, c := range d.Spec.Template.Spec.Containers {
			args[d.Name+" "+c.Name] = c.Args
		}
	}
	for container, want := range map[string][]string{
		"ovn-central nb":      {"database", "--name=nb", "--election-timer=7s"},
		"ovn-central sb":      {"database", "--name=sb", "--election-timer=7s"},
		"ovn-node vswitchd":   {"vswitchd", "--bridge=br-x", "--datapath=userspace", "--tunnel-interface=eth7,192.0.2.0/24"},
		"ovn-node controller": {"controller", "--bridge=br-x", "--datapath=userspace", "--tunnel-interface=eth7,192.0.2.0/24"},
	} {
		for _, arg := range want {
			if !slices.Contains(args[container], arg) {
				t.Errorf("%s has the arguments %q, want %s", container, args[container], arg)
			}
		}
	}
}
