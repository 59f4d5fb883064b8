package images

import (
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// objects returns all manifests of a kind.
func objects[T any](t *testing.T, kind string) []T {
	t.Helper()
	return objectsOf[T](t, Manifests, kind)
}

// manifests are what the chart makes, with OVN or for an OVN that the nodes have.
type manifests struct {
	text string
	ovn  bool
}

// both runs a test with both.
func both(t *testing.T, test func(m manifests, t *testing.T)) {
	t.Run("with OVN", func(t *testing.T) { test(manifests{Manifests, true}, t) })
	t.Run("external OVN", func(t *testing.T) { test(manifests{render(t, ""), false}, t) })
}

// daemons returns the templates of the pods of all DaemonSets and Deployments, by name.
func (m manifests) daemons(t *testing.T) map[string]corev1.PodSpec {
	t.Helper()
	pods := map[string]corev1.PodSpec{}
	for _, d := range objectsOf[appsv1.DaemonSet](t, m.text, "DaemonSet") {
		pods[d.Name] = d.Spec.Template.Spec
	}
	for _, d := range objectsOf[appsv1.Deployment](t, m.text, "Deployment") {
		pods[d.Name] = d.Spec.Template.Spec
	}
	return pods
}

// objectsOf returns all objects of a kind in a text. A key that the kind does not have is an error.
func objectsOf[T any](t *testing.T, text, kind string) []T {
	t.Helper()
	var list []T
	for doc := range strings.SplitSeq(text, "\n---\n") {
		var meta metav1.TypeMeta
		if err := yaml.Unmarshal([]byte(doc), &meta); err != nil {
			t.Fatal(err)
		}
		if meta.Kind != kind {
			continue
		}
		var object T
		if err := yaml.UnmarshalStrict([]byte(doc), &object); err != nil {
			t.Fatal(err)
		}
		list = append(list, object)
	}
	if len(list) == 0 {
		t.Fatalf("no %s in the manifests", kind)
	}
	return list
}

// TestFlagsOfTheManifests: the manifests set only flags that the programs have. A program ignores an environment
// variable of no flag, so a wrong name would have no effect.
func TestFlagsOfTheManifests(t *testing.T) {
	daemons := append(flagsOf(t, "agent"), flagsOf(t, "controller")...)
	// Of OVN's pods each names its node's address, too.
	ours := strings.ReplaceAll(Manifests, "OVN_MULTINET_NODE_IP", "")
	variables := regexp.MustCompile(`OVN_MULTINET_[A-Z_]+`).FindAllString(ours, -1)
	for _, v := range variables {
		flag := strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(v, "OVN_MULTINET_"), "_", "-"))
		if flag != "" && !slices.Contains(daemons, flag) {
			t.Errorf("%s: neither agent nor controller has the flag --%s", v, flag)
		}
	}
	args := 0
	for _, c := range objects[appsv1.DaemonSet](t, "DaemonSet")[0].Spec.Template.Spec.Containers {
		for _, arg := range c.Args {
			args++
			if flag, _, _ := strings.Cut(strings.TrimPrefix(arg, "--"), "="); !slices.Contains(flagsOf(t, c.Name), flag) {
				t.Errorf("container %s does not have the flag --%s", c.Name, flag)
			}
		}
	}
	if len(variables) < 8 || args < 4 {
		t.Errorf("found %d variables and %d arguments", len(variables), args)
	}
}

// TestLabelsOfTheManifests: each selector selects the pods of its own template.
func TestLabelsOfTheManifests(t *testing.T) {
	agent, controller := objects[appsv1.DaemonSet](t, "DaemonSet")[0], objects[appsv1.Deployment](t, "Deployment")[0]
	affinity := controller.Spec.Template.Spec.Affinity.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution
	for _, tt := range []struct {
		name     string
		selector *metav1.LabelSelector
		labels   map[string]string
	}{
		{"the agent's selector", agent.Spec.Selector, agent.Spec.Template.Labels},
		{"the controller's selector", controller.Spec.Selector, controller.Spec.Template.Labels},
		{"the controller's affinity", affinity[0].PodAffinityTerm.LabelSelector, controller.Spec.Template.Labels},
	} {
		app := map[string]string{"app": tt.labels["app"]}
		if !maps.Equal(tt.selector.MatchLabels, app) || app["app"] == "" {
			t.Errorf("%s is %v, the pods have %v", tt.name, tt.selector.MatchLabels, tt.labels)
		}
	}
}

// TestImagesOfTheManifests: the manifests name the images that mkimages writes.
func TestImagesOfTheManifests(t *testing.T) {
	var named, written []string
	agent, controller := objects[appsv1.DaemonSet](t, "DaemonSet")[0], objects[appsv1.Deployment](t, "Deployment")[0]
	for _, c := range append(agent.Spec.Template.Spec.Containers, controller.Spec.Template.Spec.Containers...) {
		named = append(named, c.Image)
	}
	for _, image := range All("") {
		written = append(written, image.Name)
	}
	if !slices.Equal(named, written) {
		t.Errorf("the manifests name %v, mkimages writes %v", named, written)
	}
}

// TestProbes: the pod of agent and installer is Ready when both have said once that they are ready. An agent that does not
// answer is started again within 30 s; the installer never is.
func TestProbes(t *testing.T) {
	want := map[string][]string{"agent": {"/ovn-multinetd", "ready"}, "installer": {"/ovn-multinet-install", "ready"}}
	entrypoints := map[string]bool{}
	for _, img := range All("bin") {
		entrypoints[img.Entrypoint[0]] = true
	}
	for _, c := range objects[appsv1.DaemonSet](t, "DaemonSet")[0].Spec.Template.Spec.Containers {
		p := c.StartupProbe
		if p == nil || p.Exec == nil || !slices.Equal(p.Exec.Command, want[c.Name]) || p.FailureThreshold != math.MaxInt32 {
			t.Errorf("container %s has the startup probe %+v, want %v, without an end", c.Name, p, want[c.Name])
			continue
		}
		if !entrypoints[p.Exec.Command[0]] {
			t.Errorf("container %s: no image has the program %s", c.Name, p.Exec.Command[0])
		}
		if c.ReadinessProbe != nil || (c.LivenessProbe != nil) != (c.Name == "agent") {
			t.Errorf("container %s has the probes %+v and %+v", c.Name, c.ReadinessProbe, c.LivenessProbe)
		}
	}
	controller := objects[appsv1.Deployment](t, "Deployment")[0].Spec.Template.Spec.Containers[0]
	for command, p := range map[string]*corev1.Probe{
		"/ovn-multinetd":           objects[appsv1.DaemonSet](t, "DaemonSet")[0].Spec.Template.Spec.Containers[0].LivenessProbe,
		"/ovn-multinet-controller": controller.LivenessProbe,
	} {
		if p == nil || !slices.Equal(p.Exec.Command, []string{command, "alive"}) {
			t.Fatalf("the liveness probe is %+v, want that of %s", p, command)
		}
		took := p.FailureThreshold*p.PeriodSeconds + p.TimeoutSeconds + int32(*p.TerminationGracePeriodSeconds)
		if took > 30 {
			t.Errorf("%s: %d s from the last answer to the restart, want 30", command, took)
		}
	}
}

// TestProbesOfOVN: each daemon of OVN has a probe for its readiness, and none for restarts.
func TestProbesOfOVN(t *testing.T) {
	found := map[string]bool{}
	text, err := tryRender(t)
	if err != nil {
		t.Fatal(text)
	}
	for _, d := range objectsOf[appsv1.DaemonSet](t, text, "DaemonSet") {
		if !strings.HasPrefix(d.Name, "ovn-") {
			continue
		}
		for _, c := range d.Spec.Template.Spec.Containers {
			found[c.Name] = true
			if c.ReadinessProbe == nil || c.StartupProbe == nil || c.LivenessProbe != nil ||
				c.ReadinessProbe.Exec.Command[2] != c.Name || c.TerminationMessagePolicy != corev1.TerminationMessageFallbackToLogsOnError {
				t.Errorf("%s/%s: probes %+v, %+v, %+v; message %s", d.Name, c.Name, c.StartupProbe, c.ReadinessProbe, c.LivenessProbe,
					c.TerminationMessagePolicy)
			}
		}
	}
	if len(found) != 6 {
		t.Errorf("the chart runs the daemons %v, want six", found)
	}
}

// TestTenantRoles: the roles view, edit and admin of Kubernetes get our rights by their labels, unless the value says no.
func TestTenantRoles(t *testing.T) {
	for value, want := range map[string]string{"true": "admin edit view", "false": ""} {
		var into []string
		for _, r := range objectsOf[rbacv1.ClusterRole](t, render(t, "tenantRoles: "+value), "ClusterRole") {
			for label, is := range r.Labels {
				if role, ok := strings.CutPrefix(label, "rbac.authorization.k8s.io/aggregate-to-"); ok && is == "true" {
					into = append(into, role)
				}
			}
		}
		slices.Sort(into)
		if got := strings.Join(into, " "); got != want {
			t.Errorf("tenantRoles %s: rights for the roles %q, want %q", value, got, want)
		}
	}
}

// TestStartupTaintOff: without the startup taint the controller has no right to change nodes or pods.
func TestStartupTaintOff(t *testing.T) {
	off := render(t, "controller: {startupTaint: false}")
	for _, r := range objectsOf[rbacv1.ClusterRole](t, off, "ClusterRole") {
		if words := rightsInWords(r.Rules); strings.Contains(words, "nodes patch") {
			t.Errorf("ClusterRole %s: %s", r.Name, words)
		}
	}
	for _, r := range objectsOf[rbacv1.Role](t, off, "Role") {
		if words := rightsInWords(r.Rules); strings.Contains(words, "pods") {
			t.Errorf("Role %s: %s", r.Name, words)
		}
	}
	for _, p := range objectsOf[admissionv1.ValidatingAdmissionPolicy](t, off, "ValidatingAdmissionPolicy") {
		if p.Name == "ovn-multinet-controller-nodes" {
			t.Error("the policy is there: its age says since when the startup taint is on")
		}
	}
}
