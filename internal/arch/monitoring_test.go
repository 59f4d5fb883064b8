package arch

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// monitoringQueries returns the queries of the chart's alerts and of its dashboard.
func monitoringQueries(t *testing.T) (all []string) {
	t.Helper()
	var rules struct {
		Groups []struct{ Rules []struct{ Expr string } }
	}
	var dashboard struct {
		Panels []struct{ Targets []struct{ Expr string } }
	}
	for name, to := range map[string]any{"rules.yaml": &rules, "dashboard.json": &dashboard} {
		text, err := os.ReadFile(filepath.Join(root, "images", "chart", "monitoring", name))
		if err != nil {
			t.Fatal(err)
		}
		read := yaml.Unmarshal
		if strings.HasSuffix(name, ".json") {
			read = func(text []byte, to any, _ ...yaml.JSONOpt) error { return json.Unmarshal(text, to) }
		}
		if err := read(text, to); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	for _, r := range rules.Groups[0].Rules {
		all = append(all, r.Expr)
	}
	for _, p := range dashboard.Panels {
		for _, target := range p.Targets {
			all = append(all, target.Expr)
		}
	}
	if len(all) < 30 {
		t.Fatalf("found %d queries", len(all))
	}
	return all
}

// TestMetricsOfAlerts: alerts and dashboard ask for metrics and labels that the programs have, and that the monitors add.
func TestMetricsOfAlerts(t *testing.T) {
	known := metrics(t)
	// Of Prometheus itself, and of client_golang's collector of the process.
	for _, name := range []string{"up", "process_resident_memory_bytes", "process_cpu_seconds_total"} {
		known[name] = nil
	}
	used := map[string]bool{}
	for _, query := range monitoringQueries(t) {
		labels := []string{"job", "pod", "node"}
		bare := regexp.MustCompile(`"[^"]*"|\b(by|on) \([^)]*\)`).ReplaceAllString(query, "")
		for _, name := range regexp.MustCompile(`\b(ovn_multinet|process)_\w+|\bup\b`).FindAllString(bare, -1) {
			metric := strings.TrimSuffix(name, "_bucket")
			if metric != name {
				labels = append(labels, "le")
			}
			of, found := known[metric]
			if !found {
				t.Errorf("no program has the metric %s of the query %s", metric, query)
			}
			labels = append(labels, of...)
			used[metric] = true
		}
		var asked []string
		for _, m := range regexp.MustCompile(`\b(?:by|on) \(([^)]*)\)`).FindAllStringSubmatch(query, -1) {
			asked = append(asked, strings.Split(m[1], ", ")...)
		}
		for _, m := range regexp.MustCompile(`(\w+)[!=]~?"`).FindAllStringSubmatch(query, -1) {
			asked = append(asked, m[1])
		}
		for _, label := range asked {
			if !slices.Contains(labels, label) {
				t.Errorf("no metric of the query has the label %s: %s", label, query)
			}
		}
	}
	if len(used) < 25 {
		t.Errorf("%d metrics are used", len(used))
	}
}
