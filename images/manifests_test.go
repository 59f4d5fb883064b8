package images

import (
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/nad"
)

// objects reads all manifests of a kind; a key that the kind does not have is an error.
func objects[T any](t *testing.T, kind string) []T {
	t.Helper()
	text, err := Manifests()
	if err != nil {
		t.Fatal(err)
	}
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

// TestBoundaryTokenMounts: Kubernetes mounts no token by itself on the nodes, and of the containers there only the agent
// has one, and the key for NB.
func TestBoundaryTokenMounts(t *testing.T) {
	pod := objects[appsv1.DaemonSet](t, "DaemonSet")[0].Spec.Template.Spec
	if pod.AutomountServiceAccountToken == nil || *pod.AutomountServiceAccountToken {
		t.Error("every container of the DaemonSet gets the token")
	}
	secret := map[string]bool{}
	for _, v := range pod.Volumes {
		secret[v.Name] = v.Secret != nil || v.Projected != nil
	}
	for _, c := range append(slices.Clone(pod.InitContainers), pod.Containers...) {
		var has []string
		for _, m := range c.VolumeMounts {
			if secret[m.Name] {
				has = append(has, m.Name+" at "+m.MountPath)
			}
		}
		want := ""
		if c.Name == "agent" {
			want = "nb at /etc/ovn-multinet/nb, token at /var/run/secrets/kubernetes.io/serviceaccount"
		}
		if got := strings.Join(has, ", "); got != want {
			t.Errorf("container %s has %q, want %q", c.Name, got, want)
		}
	}
	// docs/operations.md patches the key's volume, and the installer's arguments, by their places.
	if name := pod.Volumes[8].Name; name != "nb" {
		t.Errorf("the volume with index 8 is %s, want nb", name)
	}
	if name := pod.Containers[1].Name; name != "installer" {
		t.Errorf("the second container is %s, want the installer", name)
	}
}

// TestBoundaryKeysForNB: agents and controllers have Secrets of their own, and neither can have the other's.
func TestBoundaryKeysForNB(t *testing.T) {
	for name, spec := range map[string]corev1.PodSpec{
		"agent":      objects[appsv1.DaemonSet](t, "DaemonSet")[0].Spec.Template.Spec,
		"controller": objects[appsv1.Deployment](t, "Deployment")[0].Spec.Template.Spec,
	} {
		var secrets []string
		for _, v := range spec.Volumes {
			if v.Secret != nil {
				secrets = append(secrets, v.Secret.SecretName)
			}
			if v.Projected == nil {
				continue
			}
			for _, s := range v.Projected.Sources {
				if s.Secret != nil {
					secrets = append(secrets, s.Secret.Name)
				}
			}
		}
		// The later one wins where both are there.
		if want := []string{"ovn-multinet-nb", "ovn-multinet-nb-" + name}; !slices.Equal(secrets, want) {
			t.Errorf("%s mounts the Secrets %v, want %v", name, secrets, want)
		}
	}
}

// TestBoundaryContainers: no container of ours has a capability, may gain one, or writes to its own root.
func TestBoundaryContainers(t *testing.T) {
	pods := []corev1.PodSpec{objects[appsv1.DaemonSet](t, "DaemonSet")[0].Spec.Template.Spec, objects[appsv1.Deployment](t, "Deployment")[0].Spec.Template.Spec}
	for _, pod := range pods {
		if pod.HostPID || pod.HostIPC {
			t.Error("a pod shares the host's processes or memory")
		}
		for _, c := range append(slices.Clone(pod.InitContainers), pod.Containers...) {
			s := c.SecurityContext
			if s == nil || s.Privileged != nil && *s.Privileged || s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation ||
				s.ReadOnlyRootFilesystem == nil || !*s.ReadOnlyRootFilesystem || s.Capabilities == nil || len(s.Capabilities.Add) > 0 ||
				!slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) || s.SeccompProfile == nil || s.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
				t.Errorf("container %s is not confined: %+v", c.Name, s)
			}
		}
	}
}

// TestBoundaryHostFolders: which folders of the host a container may write to is decided here, and read nowhere else.
func TestBoundaryHostFolders(t *testing.T) {
	pod := objects[appsv1.DaemonSet](t, "DaemonSet")[0].Spec.Template.Spec
	path := map[string]string{}
	for _, v := range pod.Volumes {
		if v.HostPath != nil {
			path[v.Name] = v.HostPath.Path
		}
	}
	want := map[string][]string{
		"agent":     {"/run/openvswitch", "/run/ovn-multinet", "/var/lib/cni/ovn-multinet/release"},
		"installer": {"/etc/cni/net.d", "/opt/cni/bin"},
	}
	for _, c := range pod.Containers {
		var writes []string
		for _, m := range c.VolumeMounts {
			if p := path[m.Name]; p != "" && !m.ReadOnly {
				writes = append(writes, p)
			}
			if m.MountPropagation != nil {
				t.Errorf("%s: mounts of %s propagate", c.Name, m.Name)
			}
		}
		if slices.Sort(writes); !slices.Equal(writes, want[c.Name]) {
			t.Errorf("%s writes to %v, want %v", c.Name, writes, want[c.Name])
		}
	}
}

// TestBoundaryPolicies: each policy denies, fails closed, names our accounts, and has the keys that the programs write.
// What they refuse is seen in e2e, where an API server evaluates them.
func TestBoundaryPolicies(t *testing.T) {
	bound := map[string]bool{}
	for _, b := range objects[admissionv1.ValidatingAdmissionPolicyBinding](t, "ValidatingAdmissionPolicyBinding") {
		bound[b.Spec.PolicyName] = slices.Equal(b.Spec.ValidationActions, []admissionv1.ValidationAction{admissionv1.Deny}) && b.Spec.MatchResources == nil
	}
	keys := map[string][]string{
		"ovn-multinet-agent-pods":          {nad.StatusAnnotation},
		"ovn-multinet-events":              {},
		"ovn-multinet-controller-networks": {conf.NetworkStateAnnotation, conf.NetworkFinalizer},
	}
	policies := objects[admissionv1.ValidatingAdmissionPolicy](t, "ValidatingAdmissionPolicy")
	if len(policies) != len(keys) {
		t.Errorf("%d policies, want %d", len(policies), len(keys))
	}
	for _, p := range policies {
		if !bound[p.Name] || p.Spec.FailurePolicy == nil || *p.Spec.FailurePolicy != admissionv1.Fail {
			t.Errorf("policy %s does not deny, or does not fail closed", p.Name)
		}
		var all []string
		for _, v := range p.Spec.Variables {
			all = append(all, v.Expression)
		}
		for _, key := range keys[p.Name] {
			if !slices.Contains(all, "'"+key+"'") {
				t.Errorf("policy %s does not have the key %s", p.Name, key)
			}
		}
		for _, v := range p.Spec.Validations {
			if v.Reason == nil || *v.Reason != metav1.StatusReasonForbidden {
				t.Errorf("policy %s: a refusal is not Forbidden: %s", p.Name, v.Expression)
			}
		}
	}
}

// TestBoundaryRoles: what each ServiceAccount may do, whole: a new right is seen here and is then held against the policies.
func TestBoundaryRoles(t *testing.T) {
	want := map[string]string{
		"ovn-multinet-agent": "pods get list watch; pods/status patch; namespaces[kube-system] get; events create patch; network-attachment-definitions get list watch",
		"ovn-multinet-controller": "network-attachment-definitions get list watch patch; pods list; namespaces[kube-system] get; nodes list watch; events create patch; " +
			"leases[ovn-multinet-controller] get update; leases create",
	}
	rules := map[string][]string{}
	words := func(name string, list []rbacv1.PolicyRule) {
		for _, r := range list {
			resource := strings.Join(r.Resources, ",")
			if len(r.ResourceNames) > 0 {
				resource += "[" + strings.Join(r.ResourceNames, ",") + "]"
			}
			rules[name] = append(rules[name], resource+" "+strings.Join(r.Verbs, " "))
		}
	}
	for _, r := range objects[rbacv1.ClusterRole](t, "ClusterRole") {
		words(r.Name, r.Rules)
	}
	for _, r := range objects[rbacv1.Role](t, "Role") {
		words(r.Name, r.Rules)
	}
	for name, list := range rules {
		if got := strings.Join(list, "; "); got != want[name] {
			t.Errorf("%s may %s, want %s", name, got, want[name])
		}
	}
}
