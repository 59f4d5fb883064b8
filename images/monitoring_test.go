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

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// monitored are the values with monitoring.
const monitored = "monitoring: {enabled: true}\nagent: {metricsAddress: ':9401'}\ncontroller: {metricsAddress: '[::]:9402'}\n"

// podMonitor is the Prometheus Operator's kind, as far as the chart uses it.
type podMonitor struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        metav1.ObjectMeta `json:"metadata"`
	Spec            struct {
		Selector            metav1.LabelSelector `json:"selector"`
		PodMetricsEndpoints []struct {
			Path        string       `json:"path"`
			HonorLabels bool         `json:"honorLabels"`
			Relabelings []relabeling `json:"relabelings"`
		} `json:"podMetricsEndpoints"`
	} `json:"spec"`
}

type relabeling struct {
	Action       string   `json:"action,omitempty"`
	SourceLabels []string `json:"sourceLabels"`
	Regex        string   `json:"regex,omitempty"`
	Replacement  string   `json:"replacement,omitempty"`
	TargetLabel  string   `json:"targetLabel,omitempty"`
}

// relabel applies relabelings as Prometheus does, with its regular expressions, and reports whether the target stays.
func relabel(list []relabeling, labels map[string]string) bool {
	for _, r := range list {
		if r.Regex == "" {
			r.Regex = "(.*)"
		}
		if r.Replacement == "" {
			r.Replacement = "$1"
		}
		value := ""
		for _, name := range r.SourceLabels {
			value += labels[name] // the chart names one
		}
		pattern := regexp.MustCompile("^(?:" + r.Regex + ")$")
		matches := pattern.MatchString(value)
		if r.Action == "keep" && !matches {
			return false
		}
		if r.Action == "" && matches {
			labels[r.TargetLabel] = pattern.ReplaceAllString(value, r.Replacement)
		}
	}
	return true
}

// TestMonitors: Prometheus scrapes each pod of agents and controllers once, at the port of the values, also by IPv6, and
// its samples have the labels by which alerts and dashboard tell the pods apart.
func TestMonitors(t *testing.T) {
	pods, text := templates(t, monitored)
	for _, m := range objectsOf[podMonitor](t, text, "PodMonitor") {
		name := m.Metadata.Name
		pod := pods[name]
		if app := m.Spec.Selector.MatchLabels["app"]; app == "" || app != pod.Labels["app"] || len(m.Spec.Selector.MatchLabels) != 1 {
			t.Errorf("%s selects %v, the pods have %v", name, m.Spec.Selector, pod.Labels)
		}
		if e := m.Spec.PodMetricsEndpoints; len(e) != 1 || e[0].Path != "/metrics" || !e[0].HonorLabels || m.APIVersion != "monitoring.coreos.com/v1" {
			t.Fatalf("%s: %s: %+v", name, m.APIVersion, e)
		}
		list := m.Spec.PodMetricsEndpoints[0].Relabelings
		port := map[string]string{"agent": "9401", "controller": "9402"}[name]
		for ip, want := range map[string]string{"192.0.2.7": "192.0.2.7:" + port, "2001:db8::7": "[2001:db8::7]:" + port} {
			var kept []string
			for _, c := range everyContainer(pod) {
				if slices.ContainsFunc(c.Ports, func(p corev1.ContainerPort) bool { return p.ContainerPort > 0 }) {
					t.Errorf("%s: %s reserves a port of its node", name, c.Name)
				}
				labels := map[string]string{"__meta_kubernetes_pod_ip": ip, "__address__": ip, "__meta_kubernetes_pod_container_name": c.Name,
					"__meta_kubernetes_pod_node_name": "n1"}
				if relabel(list, labels) {
					kept = append(kept, labels["__address__"]+" "+labels["node"])
				}
			}
			if !slices.Equal(kept, []string{want + " n1"}) {
				t.Errorf("%s at %s: Prometheus scrapes %q, want %s", name, ip, kept, want)
			}
		}
		checkScrapeConfig(t, list)
	}
}

// checkScrapeConfig has promtool read relabelings, as the Prometheus Operator writes them into Prometheus' configuration.
func checkScrapeConfig(t *testing.T, list []relabeling) {
	t.Helper()
	var configs []map[string]any
	for _, r := range list {
		c := map[string]any{"source_labels": r.SourceLabels}
		for key, value := range map[string]string{"action": r.Action, "regex": r.Regex, "replacement": r.Replacement, "target_label": r.TargetLabel} {
			if value != "" {
				c[key] = value
			}
		}
		configs = append(configs, c)
	}
	text, err := yaml.Marshal(map[string]any{"scrape_configs": []any{map[string]any{
		"job_name": "x", "honor_labels": true, "relabel_configs": configs, "static_configs": []any{map[string]any{"targets": []string{"a:1"}}},
	}}})
	file := filepath.Join(t.TempDir(), "prometheus.yaml")
	if err == nil {
		err = os.WriteFile(file, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	runPromtool(t, "check", "config", file)
}

// TestMonitoringAddsOnly: monitoring is off by default, and on it adds four objects and changes none.
func TestMonitoringAddsOnly(t *testing.T) {
	const addresses = "agent: {metricsAddress: ':9401'}\ncontroller: {metricsAddress: '[::]:9402'}\n"
	documents := func(text string) map[string]string {
		all := map[string]string{}
		for doc := range strings.SplitSeq("\n"+text, "\n---\n") {
			var o metav1.PartialObjectMetadata
			if err := yaml.Unmarshal([]byte(doc), &o); err != nil {
				t.Fatal(err)
			}
			if o.Kind != "" {
				all[o.Kind+" "+o.Namespace+"/"+o.Name] = strings.TrimSpace(doc)
			}
		}
		return all
	}
	_, before := templates(t, addresses)
	_, after := templates(t, monitored)
	was, is := documents(before), documents(after)
	var added []string
	for name, doc := range is {
		if was[name] == "" {
			added = append(added, name)
		} else if was[name] != doc {
			t.Errorf("%s: %s\nwith monitoring: %s", name, was[name], doc)
		}
	}
	slices.Sort(added)
	want := []string{"ConfigMap ovn-multinet/ovn-multinet-dashboard", "PodMonitor ovn-multinet/agent", "PodMonitor ovn-multinet/controller",
		"PrometheusRule ovn-multinet/ovn-multinet"}
	if !slices.Equal(added, want) || len(is) != len(was)+len(want) {
		t.Errorf("monitoring adds %q, want %q", added, want)
	}
}

// TestMonitoringNeedsAddresses: without an address that Prometheus reaches, the chart is refused by one line that names the
// value.
func TestMonitoringNeedsAddresses(t *testing.T) {
	for values, want := range map[string]string{
		"controller: {metricsAddress: ':9402'}":                                         `agent.metricsAddress, an address that Prometheus reaches, such as ":9401"`,
		"agent: {metricsAddress: ':9401'}":                                              `controller.metricsAddress, an address that Prometheus reaches, such as ":9402"`,
		"agent: {metricsAddress: '127.0.0.1:9401'}\ncontroller: {metricsAddress: ':1'}": "agent.metricsAddress",
		"agent: {metricsAddress: 'localhost:9401'}\ncontroller: {metricsAddress: ':1'}": "agent.metricsAddress",
		"agent: {metricsAddress: ':9401'}\ncontroller: {metricsAddress: '[::1]:9402'}":  "controller.metricsAddress",
	} {
		out, err := tryRender(t, "monitoring: {enabled: true}", values)
		var lines []string
		for line := range strings.Lines(out) {
			if strings.Contains(line, "monitoring.enabled needs "+want) {
				lines = append(lines, line)
			}
		}
		if err == nil || len(lines) != 1 {
			t.Errorf("%s: %v: %s", values, err, out)
		}
	}
}

// TestMonitoringObjects: the objects have the labels of the values, and the chart's files as they are.
func TestMonitoringObjects(t *testing.T) {
	_, text := templates(t, "monitoring: {enabled: true, labels: {release: prom}, dashboardLabels: {grafana_dashboard: null, dash: yes-please}}\n"+
		"agent: {metricsAddress: ':9401'}\ncontroller: {metricsAddress: ':9402'}")
	for _, m := range objectsOf[podMonitor](t, text, "PodMonitor") {
		if m.Metadata.Labels["release"] != "prom" || m.Metadata.Labels["app.kubernetes.io/component"] != "monitoring" {
			t.Errorf("%s has the labels %v", m.Metadata.Name, m.Metadata.Labels)
		}
	}
	type rule struct {
		metav1.TypeMeta `json:",inline"`
		Metadata        metav1.ObjectMeta `json:"metadata"`
		Spec            any               `json:"spec"`
	}
	var rules any
	readYAML(t, rulesFile, &rules)
	list := objectsOf[rule](t, text, "PrometheusRule")
	if len(list) != 1 || fmt.Sprint(list[0].Spec) != fmt.Sprint(rules) || list[0].Metadata.Labels["release"] != "prom" {
		t.Errorf("the alerts are not those of %s, or have the labels %v", rulesFile, list[0].Metadata.Labels)
	}
	file, err := os.ReadFile(dashboardFile)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range objectsOf[corev1.ConfigMap](t, text, "ConfigMap") {
		if c.Name != "ovn-multinet-dashboard" {
			continue
		}
		_, without := c.Labels["grafana_dashboard"]
		if strings.TrimSpace(c.Data["ovn-multinet.json"]) != strings.TrimSpace(string(file)) || without || c.Labels["dash"] != "yes-please" {
			t.Errorf("the dashboard is not that of %s, or has the labels %v", dashboardFile, c.Labels)
		}
	}
}

// TestAlertsAreExplained: docs/monitoring.md has for each alert what it means, what to run and what to do, where the alert's
// runbook_url leads. Each alert has a severity.
func TestAlertsAreExplained(t *testing.T) {
	page, err := os.ReadFile("../docs/monitoring.md")
	if err != nil {
		t.Fatal(err)
	}
	sections := map[string]string{}
	for _, part := range strings.Split(string(page), "\n### ")[1:] {
		name, text, _ := strings.Cut(part, "\n")
		text, _, _ = strings.Cut(text, "\n## ")
		sections[name] = text
	}
	for _, r := range alertRules(t) {
		text, found := sections[r.Alert]
		delete(sections, r.Alert)
		if want := regexp.MustCompile(`^\n\*(critical|warning|info)\*\. [A-Z][^*]+\n\n- \*\*Run\*\* [^*]+\n- \*\*Do\*\* [^*]+\n$`); !found || !want.MatchString(text+"\n") && !want.MatchString(text) {
			t.Errorf("docs/monitoring.md says of %s: %q", r.Alert, text)
		}
		if !strings.HasPrefix(text, "\n*"+r.Labels["severity"]+"*. ") {
			t.Errorf("docs/monitoring.md does not have the severity %q of %s", r.Labels["severity"], r.Alert)
		}
		const home = "https://github.com/ovn-multinet/ovn-multinet/blob/main/docs/monitoring.md#"
		if r.Annotations["runbook_url"] != home+strings.ToLower(r.Alert) || r.Annotations["summary"] == "" {
			t.Errorf("%s has the annotations %v", r.Alert, r.Annotations)
		}
	}
	if len(sections) > 0 {
		t.Errorf("docs/monitoring.md explains alerts that there are not: %v", slices.Sorted(maps.Keys(sections)))
	}
}
