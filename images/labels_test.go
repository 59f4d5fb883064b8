package images

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"
)

// The recommended labels: those that stay the same in each version of the chart, and those that an upgrade changes.
var (
	stableLabels  = []string{"app.kubernetes.io/component", "app.kubernetes.io/instance", "app.kubernetes.io/name", "app.kubernetes.io/part-of"}
	releaseLabels = []string{"app.kubernetes.io/managed-by", "app.kubernetes.io/version", "helm.sh/chart"}
)

// rendered is what the tests of labels read of an object.
type rendered struct {
	Kind     string
	Metadata metav1.ObjectMeta
	Spec     struct {
		Selector any
		Template struct{ Metadata metav1.ObjectMeta }
	}
}

func (o *rendered) String() string { return o.Kind + " " + o.Metadata.Name }

// everything renders a chart with all that its values can add, hooks too.
func everything(t *testing.T, chart, release string) (all []rendered) {
	t.Helper()
	text, err := runHelm(t, "template", release, chart, "--namespace=x", "--set=attach.enabled=true,monitoring.enabled=true",
		"--set=agent.metricsAddress=:9401,controller.metricsAddress=:9402", valuesFile(t, "networks: [{name: blue, config: {subnets: 10.1.0.0/16}}]"))
	if err != nil {
		t.Fatal(text)
	}
	for doc := range strings.SplitSeq("\n"+text, "\n---\n") {
		var o rendered
		if err := yaml.Unmarshal([]byte(doc), &o); err != nil {
			t.Fatal(err)
		}
		if o.Kind != "" {
			all = append(all, o)
		}
	}
	return all
}

// recommended returns the recommended labels among all labels.
func recommended(labels map[string]string) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(labels)), func(key string) bool {
		return !strings.HasPrefix(key, "app.kubernetes.io/") && !strings.HasPrefix(key, "helm.sh/")
	})
}

// TestObjectsHaveLabels: each object of the chart has all recommended labels, with values that the API server takes.
func TestObjectsHaveLabels(t *testing.T) {
	want := slices.Sorted(slices.Values(slices.Concat(stableLabels, releaseLabels)))
	all := everything(t, "chart", "shop-net")
	for _, o := range all {
		if got := recommended(o.Metadata.Labels); !slices.Equal(got, want) {
			t.Errorf("%s has the labels %v, want %v", &o, got, want)
		}
		for key, value := range o.Metadata.Labels {
			if wrong := validation.IsValidLabelValue(value); value == "" || len(wrong) > 0 {
				t.Errorf("%s: %s is %q: %v", &o, key, value, wrong)
			}
		}
		if got := o.Metadata.Labels["app.kubernetes.io/instance"]; got != "shop-net" {
			t.Errorf("%s is of the instance %q", &o, got)
		}
	}
	if len(all) < 60 {
		t.Errorf("%d objects", len(all))
	}
}

// TestLabelsThatObjectsHad: the labels that programs and Kubernetes go by are beside the recommended ones.
func TestLabelsThatObjectsHad(t *testing.T) {
	had := map[string]int{}
	for _, o := range everything(t, "chart", "x") {
		for key, value := range o.Metadata.Labels {
			if !slices.Contains(recommended(o.Metadata.Labels), key) {
				had[key+"="+value]++
			}
		}
	}
	want := map[string]int{
		"pod-security.kubernetes.io/enforce=privileged": 1, "ovn-multinet.io/keep=true": 4, "grafana_dashboard=1": 1,
		"rbac.authorization.k8s.io/aggregate-to-view=true":  1,
		"rbac.authorization.k8s.io/aggregate-to-edit=true":  1,
		"rbac.authorization.k8s.io/aggregate-to-admin=true": 1,
	}
	if !maps.Equal(had, want) {
		t.Errorf("the labels beside the recommended ones are %v, want %v", had, want)
	}
}

// TestSelectorsHaveNoLabels: no selector has a recommended label, since a selector can never be changed.
func TestSelectorsHaveNoLabels(t *testing.T) {
	selectors := 0
	for _, o := range everything(t, "chart", "x") {
		text, err := yaml.Marshal(o.Spec.Selector)
		if err != nil {
			t.Fatal(err)
		}
		if o.Spec.Selector == nil {
			continue
		}
		selectors++
		if !regexp.MustCompile(`^matchLabels:\n  app: ovn-multinet-[a-z-]+\n$`).Match(text) {
			t.Errorf("%s has the selector %s", &o, text)
		}
	}
	if selectors != 8 {
		t.Errorf("%d selectors, want those of five workloads, a budget and two monitors", selectors)
	}
}

// TestUpgradeKeepsPods: another version of the chart changes no template of pods, so an upgrade that keeps the images
// restarts nothing. The templates of OVN's databases and of Open vSwitch have no label but that of their selector.
func TestUpgradeKeepsPods(t *testing.T) {
	newer := filepath.Join(t.TempDir(), "chart")
	if err := os.CopyFS(newer, os.DirFS("chart")); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(newer, "Chart.yaml")
	text, err := os.ReadFile(file)
	if err == nil {
		err = os.WriteFile(file, regexp.MustCompile(`(?m)^(version|appVersion): .*$`).ReplaceAll(text, []byte("$1: 9.9.9+build.1")), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	pods := func(chart string) map[string]metav1.ObjectMeta {
		of := map[string]metav1.ObjectMeta{}
		for _, o := range everything(t, chart, "x") {
			if len(o.Spec.Template.Metadata.Labels) > 0 {
				of[o.Metadata.Name] = o.Spec.Template.Metadata
				if l := o.Metadata.Labels; chart == newer && l["helm.sh/chart"]+l["app.kubernetes.io/version"] != "ovn-multinet-9.9.9_build.19.9.9_build.1" {
					t.Errorf("%s has the labels %v", &o, o.Metadata.Labels)
				}
			}
		}
		return of
	}
	before, after := pods("chart"), pods(newer)
	for name, meta := range before {
		want := stableLabels
		if strings.HasPrefix(name, "ovn-") {
			want = nil
		}
		if got := recommended(meta.Labels); !slices.Equal(got, want) {
			t.Errorf("the pods of %s have the labels %v, want %v", name, got, want)
		}
		if meta.Labels["app"] != "ovn-multinet-"+name {
			t.Errorf("the pods of %s have the label app=%s", name, meta.Labels["app"])
		}
		if !maps.Equal(meta.Labels, after[name].Labels) || !maps.Equal(meta.Annotations, after[name].Annotations) {
			t.Errorf("the pods of %s: %v %v in this version, %v %v in the next", name, meta.Labels, meta.Annotations,
				after[name].Labels, after[name].Annotations)
		}
	}
	if len(before) != 6 {
		t.Errorf("the pods of %v, want six", slices.Sorted(maps.Keys(before)))
	}
}
