package sysdump

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/yaml"

	"github.com/ovn-multinet/ovn-multinet/images"
)

// TestKnowsTheChart: what the archive may have of our own objects is what the chart makes: a new key, container or
// argument of the chart must be decided here.
func TestKnowsTheChart(t *testing.T) {
	template, err := os.ReadFile("../../images/chart/templates/20-config.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	for _, m := range regexp.MustCompile(`(?m)^  (OVN_MULTINET_[A-Z_]+):`).FindAllStringSubmatch(string(template), -1) {
		keys = append(keys, m[1])
	}
	decided := slices.Concat(settings, notKept)
	slices.Sort(keys)
	slices.Sort(decided)
	if !slices.Equal(keys, decided) || len(keys) < 20 {
		t.Errorf("the chart writes\n%q\nsettings and notKept have\n%q", keys, decided)
	}
	found := map[string][]string{}
	for document := range strings.SplitSeq(images.Manifests, "\n---\n") {
		var d appsv1.DaemonSet // a Deployment has the same fields here
		if yaml.Unmarshal([]byte(document), &d) != nil || len(d.Spec.Template.Spec.Containers) == 0 {
			continue
		}
		for _, c := range slices.Concat(d.Spec.Template.Spec.InitContainers, d.Spec.Template.Spec.Containers) {
			app := d.Spec.Template.Labels["app"]
			found[app] = append(found[app], c.Name)
			for _, arg := range c.Args {
				if !knownArgument(arg) {
					t.Errorf("container %s of %s has the argument %s", c.Name, app, arg)
				}
			}
		}
	}
	for app, names := range found {
		if slices.Sort(names); !slices.Equal(names, slices.Sorted(slices.Values(containers[app]))) {
			t.Errorf("%s has the containers %q, known are %q", app, names, containers[app])
		}
	}
	if len(found) < 4 {
		t.Errorf("found %v", found)
	}
}
