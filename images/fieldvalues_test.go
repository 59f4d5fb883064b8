package images

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// valuesFile writes values into a file, and returns Helm's flag for it.
func valuesFile(t *testing.T, values string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "values.yaml")
	if err := os.WriteFile(path, []byte(values), 0o600); err != nil {
		t.Fatal(err)
	}
	return "--values=" + path
}

// templates renders the chart with its own OVN and these values, and returns the templates of all pods, by name.
func templates(t *testing.T, values string) (map[string]corev1.PodTemplateSpec, string) {
	t.Helper()
	text, err := runHelm(t, "template", "ovn-multinet", "chart", valuesFile(t, values), "--set=attach.enabled=true")
	if err != nil {
		t.Fatal(text)
	}
	pods := map[string]corev1.PodTemplateSpec{}
	for _, d := range objectsOf[appsv1.DaemonSet](t, text, "DaemonSet") {
		pods[d.Name] = d.Spec.Template
	}
	for _, d := range objectsOf[appsv1.Deployment](t, text, "Deployment") {
		pods[d.Name] = d.Spec.Template
	}
	for _, j := range objectsOf[batchv1.Job](t, text, "Job") {
		pods[j.Name] = j.Spec.Template
	}
	if len(pods) != 6 {
		t.Fatalf("the pods of %v, want six", slices.Sorted(maps.Keys(pods)))
	}
	return pods, text
}

func everyContainer(pod corev1.PodTemplateSpec) []corev1.Container {
	return slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers)
}

// TestImagesFromAMirror: all pods get their images from one registry, with its credentials. Without these values they are
// as the names of the images say.
func TestImagesFromAMirror(t *testing.T) {
	const values = `images: {registry: "registry.example.org:5000/mirror/", pullPolicy: Always, pullSecrets: [a, b], agent: some/agent:1, ` +
		`ovn: quay.io/some/ovn@sha256:` + "0123456789012345678901234567890123456789012345678901234567890123}"
	pods, _ := templates(t, values)
	for name, pod := range pods {
		if got := pod.Spec.ImagePullSecrets; len(got) != 2 || got[0].Name != "a" || got[1].Name != "b" {
			t.Errorf("%s: secrets %v", name, got)
		}
		for _, c := range everyContainer(pod) {
			if !strings.HasPrefix(c.Image, "registry.example.org:5000/mirror/") || strings.Contains(c.Image, "localhost") ||
				strings.Contains(c.Image, "quay.io") || c.ImagePullPolicy != corev1.PullAlways {
				t.Errorf("%s: %s: image %s, %s", name, c.Name, c.Image, c.ImagePullPolicy)
			}
			if c.Name == "agent" && !strings.HasSuffix(c.Image, "/mirror/some/agent:1") { // a name without a registry
				t.Errorf("%s: image %s", name, c.Image)
			}
			if name == "ovn-node" && !strings.Contains(c.Image, "/mirror/some/ovn@sha256:") {
				t.Errorf("%s: %s: image %s", name, c.Name, c.Image)
			}
		}
	}
	pods, _ = templates(t, "{}")
	for name, pod := range pods {
		for _, c := range everyContainer(pod) {
			if len(pod.Spec.ImagePullSecrets) > 0 || !strings.HasPrefix(c.Image, "localhost/ovn-multinet-") || c.ImagePullPolicy != corev1.PullIfNotPresent {
				t.Errorf("%s: %s: image %s, %s, secrets %v", name, c.Name, c.Image, c.ImagePullPolicy, pod.Spec.ImagePullSecrets)
			}
		}
	}
}

// TestResourcesOfPods: each container has what its value says, and Go's heap follows the limit. With equal requests and
// limits a pod is Guaranteed.
func TestResourcesOfPods(t *testing.T) {
	value := map[string]string{
		"agent/agent": "agent", "agent/installer": "installer", "attach/attach": "attach", "controller/controller": "controller", "ovn-central/nb": "database",
		"ovn-central/sb": "database", "ovn-central/northd": "northd", "ovn-central/certificates": "certificates",
		"ovn-node/ovsdb": "ovsdb", "ovn-node/vswitchd": "vswitchd", "ovn-node/controller": "ovnController", "ovn-node/certificates": "certificates",
	}
	var values []string
	of := map[string]string{}
	for i, name := range slices.Compact(slices.Sorted(maps.Values(value))) {
		cpu := fmt.Sprint(1 + i)
		of[name] = cpu
		values = append(values, name+": {requests: {cpu: '"+cpu+"', memory: 1Gi}, limits: {cpu: '"+cpu+"', memory: 1Gi}}")
	}
	pods, _ := templates(t, "resources: {"+strings.Join(values, ", ")+"}")
	seen := 0
	for name, pod := range pods {
		for _, c := range everyContainer(pod) {
			want := of[value[name+"/"+c.Name]]
			if name == "uninstall" {
				continue
			}
			seen++
			if c.Resources.Requests.Cpu().String() != want || !maps.Equal(c.Resources.Requests, c.Resources.Limits) {
				t.Errorf("%s: %s: %v, want cpu %s, and limits that are equal", name, c.Name, c.Resources, want)
			}
			for _, e := range c.Env {
				if e.Name == "GOMEMLIMIT" && e.Value != "800MiB" {
					t.Errorf("%s: %s: Go's limit is %s", name, c.Name, e.Value)
				}
			}
		}
	}
	if seen != len(value) {
		t.Errorf("%d containers, want %d", seen, len(value))
	}
	for values, want := range map[string]string{
		"{}": "200MiB", "resources: {agent: {limits: {memory: 512Mi}}}": "400MiB", "resources: {agent: {limits: null}}": "", "resources: {agent: null}": "",
	} {
		pods, _ := templates(t, values)
		got := ""
		for _, e := range pods["agent"].Spec.Containers[0].Env {
			if e.Name == "GOMEMLIMIT" {
				got = e.Value
			}
		}
		if got != want {
			t.Errorf("%s: Go's limit of the agent is %q, want %q", values, got, want)
		}
	}
}

// TestLabelsAndEnvironment: pods have the labels, annotations and variables of the values beside their own.
func TestLabelsAndEnvironment(t *testing.T) {
	pods, text := templates(t, "pods: {labels: {team: net}, annotations: {example.org/note: text}}\n"+
		"agent: {env: {GODEBUG: gctrace=1}}\ncontroller: {env: {GODEBUG: gctrace=2}, replicas: 3}")
	for name, pod := range pods {
		if name == "uninstall" {
			continue
		}
		if len(pod.Labels)-len(recommended(pod.Labels)) != 2 || pod.Labels["team"] != "net" || pod.Labels["app"] == "" || pod.Annotations["example.org/note"] != "text" {
			t.Errorf("%s: labels %v, annotations %v", name, pod.Labels, pod.Annotations)
		}
		for _, c := range everyContainer(pod) {
			want := map[string]string{"agent/agent": "gctrace=1", "controller/controller": "gctrace=2"}[name+"/"+c.Name]
			got := ""
			for _, e := range c.Env {
				if e.Name == "GODEBUG" {
					got = e.Value
				}
			}
			if got != want {
				t.Errorf("%s: %s: GODEBUG %q, want %q", name, c.Name, got, want)
			}
		}
	}
	for _, d := range objectsOf[appsv1.Deployment](t, text, "Deployment") {
		if *d.Spec.Replicas != 3 {
			t.Errorf("%d controllers, want 3", *d.Spec.Replicas)
		}
	}
	pods, _ = templates(t, "pods: {labels: {app.kubernetes.io/part-of: platform}}")
	if got := pods["agent"].Labels["app.kubernetes.io/part-of"]; got != "platform" {
		t.Errorf("the operator's label of the agent's pods is %q", got)
	}
	pods, _ = templates(t, "{}")
	for name, pod := range pods {
		if len(pod.Labels)-len(recommended(pod.Labels)) != 1 {
			t.Errorf("%s: labels %v", name, pod.Labels)
		}
	}
}

// TestControllersAreSpread: over the operator's zones, and with the chart's own preference for different nodes.
func TestControllersAreSpread(t *testing.T) {
	pods, _ := templates(t, "controller: {topologySpreadConstraints: [{topologyKey: topology.kubernetes.io/zone, maxSkew: 1, "+
		"whenUnsatisfiable: DoNotSchedule, minDomains: 2}]}")
	for name, pod := range pods {
		list := pod.Spec.TopologySpreadConstraints
		if name != "controller" {
			if len(list) > 0 {
				t.Errorf("%s: %v", name, list)
			}
			continue
		}
		if len(list) != 1 || list[0].TopologyKey != "topology.kubernetes.io/zone" || list[0].MaxSkew != 1 || *list[0].MinDomains != 2 ||
			list[0].WhenUnsatisfiable != corev1.DoNotSchedule || list[0].LabelSelector.MatchLabels["app"] != pod.Labels["app"] {
			t.Errorf("%s: %+v", name, list)
		}
		if pod.Spec.Affinity == nil || pod.Spec.Affinity.PodAntiAffinity == nil {
			t.Errorf("%s: %+v", name, pod.Spec.Affinity)
		}
	}
	text, err := runHelm(t, "template", "ovn-multinet", "chart",
		valuesFile(t, "controller: {topologySpreadConstraints: [{topologyKey: zone, maxSkew: 1}]}"))
	if err == nil || !strings.Contains(text, "whenUnsatisfiable") {
		t.Errorf("a constraint without whenUnsatisfiable: %v\n%s", err, text)
	}
}

// TestValuesOfAnOlderVersion: `helm upgrade --reuse-values` takes the values of the older chart instead of those of this one,
// and says what to do.
func TestValuesOfAnOlderVersion(t *testing.T) {
	chart := filepath.Join(t.TempDir(), "chart")
	if err := os.CopyFS(chart, os.DirFS("chart")); err != nil {
		t.Fatal(err)
	}
	var values map[string]any
	readYAML(t, "chart/values.yaml", &values)
	for _, group := range []string{"pods", "resources", "attach", "monitoring"} {
		older := maps.Clone(values)
		delete(older, group)
		text, err := yaml.Marshal(older)
		if err == nil {
			err = os.WriteFile(filepath.Join(chart, "values.yaml"), text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		out, err := runHelm(t, "template", "ovn-multinet", chart)
		const want = "the values are those of an older version: upgrade with --reset-then-reuse-values, not with --reuse-values"
		if err == nil || !strings.Contains(out, want) {
			t.Errorf("without %s: %v: %s", group, err, out)
		}
	}
}

// TestNotes: Helm prints what comes next. Only an installation prints the notes, so a copy of the chart has them in a
// manifest.
func TestNotes(t *testing.T) {
	chart := filepath.Join(t.TempDir(), "chart")
	if err := os.CopyFS(chart, os.DirFS("chart")); err != nil {
		t.Fatal(err)
	}
	const manifest = `notes: {{ include (print $.Template.BasePath "/NOTES.txt") . | quote }}`
	if err := os.WriteFile(filepath.Join(chart, "templates", "notes.yaml"), []byte(manifest), 0o600); err != nil {
		t.Fatal(err)
	}
	for values, want := range map[string]string{
		"networks: [{name: blue, config: {subnets: 10.1.0.0/16}}]": "  default/blue\n",
		external:                                "OVN's Northbound database: ssl:192.0.2.1:6641\n",
		"plugin: {allowedDelegates: [macvlan]}": "other CNI plugins: macvlan (plugin.allowedDelegates)",
		monitored:                               "by the labels {\"grafana_dashboard\":\"1\"}. Without a sidecar",
	} {
		out, err := runHelm(t, "template", "ovn-multinet", chart, "--show-only=templates/notes.yaml", valuesFile(t, values))
		var is struct{ Notes string }
		if err == nil {
			err = yaml.Unmarshal([]byte(out), &is)
		}
		if err != nil || !strings.Contains(is.Notes+"\n", want) || !strings.Contains(is.Notes, "  kubectl multinet check\n") ||
			strings.Contains(is.Notes, "\n\n\n") || strings.Contains(is.Notes, "dashboard") != (values == monitored) {
			t.Errorf("%s: %v: %s", values, err, out)
		}
	}
}
