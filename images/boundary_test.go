package images

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/nad"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/netmodel/entry"
	"github.com/ovn-multinet/ovn-multinet/netmodel/policy"
	"github.com/ovn-multinet/ovn-multinet/netmodel/service"
	"github.com/ovn-multinet/ovn-multinet/ovnrun/authority"
)

// TestBoundaryTokenMounts: on the nodes Kubernetes mounts no token by itself. Only the agent's container and the one that
// asks for OVN's certificates have a token, and only the agent's has the Secret with the key for NB.
func TestBoundaryTokenMounts(t *testing.T) { both(t, manifests.tokenMounts) }

func (m manifests) tokenMounts(t *testing.T) {
	const token, key = "token at /var/run/secrets/kubernetes.io/serviceaccount", "nb at /etc/ovn-multinet/nb, "
	want := map[string]string{
		"agent agent": key + token, "ovn-central certificates": token, "ovn-node certificates": token,
	}
	if m.ovn {
		want["agent agent"] = token // the key is on the node
	}
	for name, pod := range m.daemons(t) {
		if name == "controller" {
			continue
		}
		if pod.AutomountServiceAccountToken == nil || *pod.AutomountServiceAccountToken {
			t.Errorf("every container of %s gets the token", name)
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
			if got := strings.Join(has, ", "); got != want[name+" "+c.Name] {
				t.Errorf("container %s of %s has %q, want %q", c.Name, name, got, want[name+" "+c.Name])
			}
		}
	}
	// docs/operations.md has patches of the key's volume and of the installer's arguments, by index.
	pod := m.daemons(t)["agent"]
	if name := pod.Volumes[8].Name; name != "nb" {
		t.Errorf("the volume with index 8 is %s, want nb", name)
	}
	if name := pod.Containers[1].Name; name != "installer" {
		t.Errorf("the second container is %s, want the installer", name)
	}
}

// TestBoundaryKeysForNB: agents and controllers have different Secrets, and neither mounts the Secret of the other. With
// OVN no pod mounts a Secret: each makes its own key.
func TestBoundaryKeysForNB(t *testing.T) { both(t, manifests.keysForNB) }

func (m manifests) keysForNB(t *testing.T) {
	for name, spec := range m.daemons(t) {
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
		want := []string{"ovn-multinet-nb", "ovn-multinet-nb-" + name}
		if m.ovn {
			want = nil
		}
		if !slices.Equal(secrets, want) {
			t.Errorf("%s mounts the Secrets %v, want %v", name, secrets, want)
		}
	}
}

// TestBoundaryContainers: no container of ours has a capability, and those of OVN have only these. No container can gain
// one, or can write to its own root.
func TestBoundaryContainers(t *testing.T) { both(t, manifests.containers) }

func (m manifests) containers(t *testing.T) {
	capabilities := map[string][]corev1.Capability{
		"ovn-node vswitchd":   {"NET_ADMIN", "NET_RAW"}, // links and datapaths; packets of the userspace datapath
		"ovn-node controller": {"NET_ADMIN"},            // moves the address of the tunnels' interface
	}
	for name, pod := range m.daemons(t) {
		if pod.HostPID || pod.HostIPC {
			t.Errorf("the pod of %s shares the host's processes or memory", name)
		}
		for _, c := range append(slices.Clone(pod.InitContainers), pod.Containers...) {
			s := c.SecurityContext
			if s == nil || s.Privileged != nil && *s.Privileged ||
				s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation ||
				s.ReadOnlyRootFilesystem == nil || !*s.ReadOnlyRootFilesystem ||
				s.Capabilities == nil || !slices.Equal(s.Capabilities.Add, capabilities[name+" "+c.Name]) ||
				!slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) ||
				s.SeccompProfile == nil || s.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
				t.Errorf("container %s of %s is not confined: %+v", c.Name, name, s)
			}
		}
	}
}

// TestBoundaryAttach: the one privileged pod of ours is there only if the operator asks for it, and has no credential.
func TestBoundaryAttach(t *testing.T) {
	if without, err := runHelm(t, "template", "ovn-multinet", "chart"); err != nil || strings.Contains(without, "privileged: true") {
		t.Errorf("a pod is privileged by default (%v)", err)
	}
	pods, _ := templates(t, "{}")
	pod := pods["attach"].Spec
	if pod.ServiceAccountName != "" || pod.AutomountServiceAccountToken == nil || *pod.AutomountServiceAccountToken {
		t.Errorf("the pod has the ServiceAccount %q, with its token", pod.ServiceAccountName)
	}
	if len(pod.Volumes) != 1 || pod.Volumes[0].HostPath == nil || len(pod.Containers) != 1 || len(pod.Containers[0].EnvFrom) > 0 {
		t.Errorf("the pod has the volumes %+v, containers %+v", pod.Volumes, pod.Containers)
	}
}

// TestBoundaryHostFolders: each container can write only to these folders of the host.
func TestBoundaryHostFolders(t *testing.T) { both(t, manifests.hostFolders) }

func (m manifests) hostFolders(t *testing.T) {
	const ovs, keys, databases = "/run/openvswitch", "/var/lib/ovn-multinet/pki", "/var/lib/ovn-multinet/ovn"
	want := map[string][]string{
		"agent agent":              {ovs, "/run/ovn-multinet", "/var/lib/cni/ovn-multinet/release"},
		"agent installer":          {"/etc/cni/net.d", "/opt/cni/bin"},
		"ovn-node certificates":    {keys},
		"ovn-node ovsdb":           {ovs, "/var/lib/ovn-multinet/openvswitch"},
		"ovn-node vswitchd":        {"/dev/net", ovs},
		"ovn-node controller":      {ovs, "/run/ovn", "/run/ovn/log"},
		"ovn-central certificates": {keys + "-central"},
		"ovn-central nb":           {databases},
		"ovn-central sb":           {databases},
	}
	for name, pod := range m.daemons(t) {
		path := map[string]string{}
		for _, v := range pod.Volumes {
			if v.HostPath != nil {
				path[v.Name] = v.HostPath.Path
			}
		}
		for _, c := range append(slices.Clone(pod.InitContainers), pod.Containers...) {
			var writes []string
			for _, m := range c.VolumeMounts {
				if p := path[m.Name]; p != "" && !m.ReadOnly {
					writes = append(writes, p)
				}
				if m.MountPropagation != nil {
					t.Errorf("%s of %s: mounts of %s propagate", c.Name, name, m.Name)
				}
			}
			if slices.Sort(writes); !slices.Equal(writes, want[name+" "+c.Name]) {
				t.Errorf("%s of %s writes to %v, want %v", c.Name, name, writes, want[name+" "+c.Name])
			}
		}
	}
}

// users returns the API server's user name of each program, by the name of its DaemonSet or Deployment. The manifests
// have the ServiceAccounts of these programs and no others.
func (m manifests) users(t *testing.T) map[string]string {
	t.Helper()
	name := func(account string) string { return "system:serviceaccount:ovn-multinet:" + account }
	users := map[string]string{}
	for daemon, pod := range m.daemons(t) {
		users[daemon] = name(pod.ServiceAccountName)
	}
	var accounts []string
	for _, a := range objectsOf[corev1.ServiceAccount](t, m.text, "ServiceAccount") {
		if a.Namespace != "ovn-multinet" {
			t.Errorf("the account %s is in namespace %s", a.Name, a.Namespace)
		}
		accounts = append(accounts, name(a.Name))
	}
	if want := slices.Sorted(maps.Values(users)); !slices.Equal(slices.Sorted(slices.Values(accounts)), want) {
		t.Fatalf("the manifests have the accounts %v, and the programs run as %v", accounts, want)
	}
	return users
}

// allOf matches all versions of the resources, and all operations.
func allOf(groups []string, resources ...string) *admissionv1.MatchResources {
	rule := admissionv1.RuleWithOperations{
		Operations: []admissionv1.OperationType{admissionv1.OperationAll},
		Rule:       admissionv1.Rule{APIGroups: groups, APIVersions: []string{"*"}, Resources: resources},
	}
	return &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: rule}}}
}

// wantedPolicy is whom a policy is for, on which resources, and the keys that it names.
type wantedPolicy struct {
	condition string
	resources *admissionv1.MatchResources
	keys      []string
}

// is matches a user.
func is(who string) string { return "request.userInfo.username == '" + who + "'" }

func (m manifests) wantedPolicies(user map[string]string) map[string]wantedPolicy {
	want := map[string]wantedPolicy{
		"ovn-multinet-agent-pods": {
			is(user["agent"]), allOf([]string{""}, "pods", "pods/*"), []string{nad.StatusAnnotation},
		},
		"ovn-multinet-events": {
			"request.userInfo.username in ['" + user["agent"] + "', '" + user["controller"] + "']",
			allOf([]string{"", "events.k8s.io"}, "events"), nil},
		"ovn-multinet-controller-networks": {
			is(user["controller"]),
			allOf([]string{"k8s.cni.cncf.io"}, "network-attachment-definitions", "network-attachment-definitions/*"),
			[]string{netmodel.NetworkStateAnnotation, netmodel.NetworkFinalizer}},
		"ovn-multinet-controller-policies": {
			is(user["controller"]), allOf([]string{"k8s.cni.cncf.io"}, "multi-networkpolicies", "multi-networkpolicies/*"),
			[]string{policy.StateAnnotation}},
		"ovn-multinet-controller-clusterpolicies": {
			is(user["controller"]),
			allOf([]string{"policy.networking.k8s.io"}, "clusternetworkpolicies", "clusternetworkpolicies/*"),
			[]string{policy.StateCondition}},
		"ovn-multinet-controller-services": {
			is(user["controller"]), allOf([]string{""}, "services", "services/*"), []string{service.StateAnnotation}},
		"ovn-multinet-controller-endpointslices": {
			is(user["controller"]), allOf([]string{"discovery.k8s.io"}, "endpointslices", "endpointslices/*"),
			[]string{discoveryv1.LabelManagedBy, corev1.IsHeadlessService, discoveryv1.LabelServiceName}},
		"ovn-multinet-controller-nodes": {
			is(user["controller"]), allOf([]string{""}, "nodes", "nodes/*"), []string{conf.StartupTaint, conf.ReadyLabel}},
		"ovn-multinet-controller-pods": {
			is(user["controller"]), allOf([]string{""}, "pods", "pods/*"), []string{conf.OutsideCondition}},
		"ovn-multinet-controller-objects": {
			is(user["controller"]), allOf([]string{entry.Group}, "*/*"), []string{entry.Finalizer}},
	}
	if m.ovn {
		create := allOf([]string{"certificates.k8s.io"}, "certificatesigningrequests")
		create.ResourceRules[0].Operations = []admissionv1.OperationType{admissionv1.Create}
		const name = "ovn-multinet-certificates"
		want[name] = wantedPolicy{"object.spec.signerName == '" + authority.SignerName + "' || request.userInfo.username in ['" +
			user["controller"] + "', '" + user["ovn-central"] + "', '" + user["ovn-node"] + "']",
			create, []string{authority.SignerName}}
	}
	return want
}

// TestBoundaryPolicies: each policy denies and fails closed. It applies to our accounts and to all operations on its
// resources, and it names the keys that the programs write. The tests in e2e show what an API server refuses by these
// policies.
func TestBoundaryPolicies(t *testing.T) { both(t, manifests.policies) }

func (m manifests) policies(t *testing.T) {
	bound := map[string]bool{}
	for _, b := range objectsOf[admissionv1.ValidatingAdmissionPolicyBinding](t, m.text, "ValidatingAdmissionPolicyBinding") {
		denies := slices.Equal(b.Spec.ValidationActions, []admissionv1.ValidationAction{admissionv1.Deny})
		bound[b.Spec.PolicyName] = denies && b.Spec.MatchResources == nil
	}
	user := m.users(t)
	want := m.wantedPolicies(user)
	var names []string
	for _, p := range objectsOf[admissionv1.ValidatingAdmissionPolicy](t, m.text, "ValidatingAdmissionPolicy") {
		names = append(names, p.Name)
		if !bound[p.Name] || p.Spec.FailurePolicy == nil || *p.Spec.FailurePolicy != admissionv1.Fail {
			t.Errorf("policy %s does not deny, or does not fail closed", p.Name)
		}
		var conditions, all []string
		for _, c := range p.Spec.MatchConditions {
			conditions = append(conditions, strings.Join(strings.Fields(c.Expression), " "))
		}
		if condition := want[p.Name].condition; !slices.Equal(conditions, []string{condition}) {
			t.Errorf("policy %s is for %q, want %q", p.Name, conditions, condition)
		}
		if resources := want[p.Name].resources; !reflect.DeepEqual(p.Spec.MatchConstraints, resources) {
			t.Errorf("policy %s is for the resources %+v, want %+v", p.Name, p.Spec.MatchConstraints, resources)
		}
		for _, v := range p.Spec.Variables {
			all = append(all, v.Expression)
			if strings.Contains(v.Expression, "userInfo.username") && v.Expression != is(user[v.Name]) {
				t.Errorf("policy %s: variable %s is %s, want %s", p.Name, v.Name, v.Expression, is(user[v.Name]))
			}
		}
		for _, key := range want[p.Name].keys {
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
	if slices.Sort(names); !slices.Equal(names, slices.Sorted(maps.Keys(want))) {
		t.Errorf("policies %v, want %v", names, slices.Sorted(maps.Keys(want)))
	}
}

// entryRights are the controller's rights to the operator's objects.
const entryRights = "physicalnetworks,routers,addresspools,securityprofiles.ovn-multinet.io list watch patch; " +
	"physicalnetworks/status,routers/status,addresspools/status,securityprofiles/status.ovn-multinet.io patch; "

// TestBoundaryRoles lists all rights of each ServiceAccount. A change that adds a right must change this list, and the
// policies if RBAC cannot limit the right.
func TestBoundaryRoles(t *testing.T) { both(t, manifests.roles) }

func (m manifests) roles(t *testing.T) {
	roles, bindings := map[string]string{}, map[string]string{}
	for _, r := range objectsOf[rbacv1.ClusterRole](t, m.text, "ClusterRole") {
		roles["ClusterRole "+r.Name] = rightsInWords(r.Rules)
		if r.AggregationRule != nil {
			t.Errorf("ClusterRole %s has the rights of others, too", r.Name)
		}
	}
	for _, r := range objectsOf[rbacv1.Role](t, m.text, "Role") {
		roles["Role "+r.Namespace+"/"+r.Name] = rightsInWords(r.Rules)
	}
	for _, b := range objectsOf[rbacv1.ClusterRoleBinding](t, m.text, "ClusterRoleBinding") {
		bindings["all namespaces: "+b.Name] = boundInWords(b.RoleRef, b.Subjects)
	}
	for _, b := range objectsOf[rbacv1.RoleBinding](t, m.text, "RoleBinding") {
		bindings["namespace "+b.Namespace+": "+b.Name] = boundInWords(b.RoleRef, b.Subjects)
	}
	wantRoles := map[string]string{
		"ClusterRole ovn-multinet-agent": "pods get list watch; pods/status patch; namespaces[kube-system] get; " +
			"events create patch; network-attachment-definitions.k8s.cni.cncf.io get list watch; " +
			"ipamclaims.k8s.cni.cncf.io get",
		"ClusterRole ovn-multinet-controller": "network-attachment-definitions.k8s.cni.cncf.io get list watch patch; " +
			"multi-networkpolicies.k8s.cni.cncf.io get list watch patch; " +
			"ipamclaims.k8s.cni.cncf.io get list watch; ipamclaims/status.k8s.cni.cncf.io patch; " +
			"clusternetworkpolicies.policy.networking.k8s.io list watch; " +
			"clusternetworkpolicies/status.policy.networking.k8s.io patch; " + entryRights + "pods list watch; pods/status patch; namespaces list watch; " +
			"namespaces[kube-system] get; services list watch patch; services/status patch; " +
			"endpointslices.discovery.k8s.io get list watch create update delete; nodes list watch; nodes patch; " +
			"validatingadmissionpolicies.admissionregistration.k8s.io[ovn-multinet-controller-nodes] get; events create patch",
		"Role ovn-multinet/ovn-multinet-controller": "leases.coordination.k8s.io[ovn-multinet-controller] get update; " +
			"leases.coordination.k8s.io create; pods list watch delete; daemonsets.apps[agent] list watch",
		// Without a binding: Kubernetes' own roles get these rights by their labels.
		"ClusterRole ovn-multinet-view": "network-attachment-definitions,multi-networkpolicies.k8s.cni.cncf.io get list watch; " +
			"physicalnetworks,routers,addresspools,securityprofiles.ovn-multinet.io get list watch",
		"ClusterRole ovn-multinet-edit":  "multi-networkpolicies.k8s.cni.cncf.io create update patch delete deletecollection",
		"ClusterRole ovn-multinet-admin": "network-attachment-definitions.k8s.cni.cncf.io create update patch delete deletecollection",
	}
	user := m.users(t)
	wantBindings := map[string]string{
		"all namespaces: ovn-multinet-agent":              "ClusterRole ovn-multinet-agent for " + user["agent"],
		"all namespaces: ovn-multinet-controller":         "ClusterRole ovn-multinet-controller for " + user["controller"],
		"namespace ovn-multinet: ovn-multinet-controller": "Role ovn-multinet-controller for " + user["controller"],
	}
	if m.ovn {
		maps.Copy(wantRoles, map[string]string{
			"ClusterRole ovn-multinet-certificates": "certificatesigningrequests.certificates.k8s.io create get",
			"ClusterRole ovn-multinet-ovn": "certificatesigningrequests.certificates.k8s.io list watch; " +
				"certificatesigningrequests/approval,certificatesigningrequests/status.certificates.k8s.io update; " +
				"signers.certificates.k8s.io[certificates.ovn-multinet/ovn] approve sign; nodes get patch",
			"Role ovn-multinet/ovn-multinet-certificates": "configmaps[ovn-multinet-ca] get list watch",
			"Role ovn-multinet/ovn-multinet-ovn": "secrets[ovn-multinet-ca] get update; " +
				"configmaps[ovn-multinet-ca,ovn-multinet-ovn] get update; secrets,configmaps create; pods list watch",
		})
		asking := user["ovn-central"] + ", " + user["ovn-node"] + ", " + user["controller"]
		maps.Copy(wantBindings, map[string]string{
			"all namespaces: ovn-multinet-certificates":         "ClusterRole ovn-multinet-certificates for " + asking,
			"all namespaces: ovn-multinet-ovn":                  "ClusterRole ovn-multinet-ovn for " + user["controller"],
			"namespace ovn-multinet: ovn-multinet-certificates": "Role ovn-multinet-certificates for " + asking,
			"namespace ovn-multinet: ovn-multinet-ovn":          "Role ovn-multinet-ovn for " + user["controller"],
		})
	}
	wantSame(t, roles, wantRoles)
	wantSame(t, bindings, wantBindings)
}

// rightsInWords returns rules as "resource.group[names] verbs"; a resource of the core API has no group.
func rightsInWords(rules []rbacv1.PolicyRule) string {
	var all []string
	for _, r := range rules {
		words := strings.Join(append(slices.Clone(r.Resources), r.NonResourceURLs...), ",")
		if groups := strings.Join(r.APIGroups, ","); groups != "" {
			words += "." + groups
		}
		if len(r.ResourceNames) > 0 {
			words += "[" + strings.Join(r.ResourceNames, ",") + "]"
		}
		all = append(all, words+" "+strings.Join(r.Verbs, " "))
	}
	return strings.Join(all, "; ")
}

// boundInWords returns the role and the subjects of a binding. A ServiceAccount has its user name.
func boundInWords(role rbacv1.RoleRef, subjects []rbacv1.Subject) string {
	var who []string
	for _, s := range subjects {
		words := s.Kind + " " + s.Name
		if s.Kind == rbacv1.ServiceAccountKind {
			words = "system:serviceaccount:" + s.Namespace + ":" + s.Name
		}
		who = append(who, words)
	}
	return role.Kind + " " + role.Name + " for " + strings.Join(who, ", ")
}

// wantSame reports each entry that differs.
func wantSame(t *testing.T, got, want map[string]string) {
	t.Helper()
	all := maps.Clone(got)
	maps.Copy(all, want)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if got[name] != want[name] {
			t.Errorf("%s: %q, want %q", name, got[name], want[name])
		}
	}
}

// TestBoundaryUninstall: the rights of an uninstall exist only while Helm runs its Job.
func TestBoundaryUninstall(t *testing.T) {
	text, err := runHelm(t, "template", "ovn-multinet", "chart",
		"--show-only=templates/90-uninstall.yaml")
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	for doc := range strings.SplitSeq(text, "\n---\n") {
		var o metav1.PartialObjectMetadata
		if err := yaml.Unmarshal([]byte(doc), &o); err != nil {
			t.Fatal(err)
		}
		if hook := o.Annotations["helm.sh/hook"] + " " + o.Annotations["helm.sh/hook-delete-policy"]; hook !=
			"pre-delete before-hook-creation,hook-succeeded" {
			t.Errorf("%s %s is there for %q", o.Kind, o.Name, hook)
		}
	}
	cluster, own := objectsOf[rbacv1.ClusterRole](t, text, "ClusterRole"), objectsOf[rbacv1.Role](t, text, "Role")
	if len(cluster) != 1 || len(own) != 1 || own[0].Namespace != "ovn-multinet" {
		t.Fatalf("%d cluster roles, %d roles", len(cluster), len(own))
	}
	wantSame(t, map[string]string{"cluster": rightsInWords(cluster[0].Rules), "own": rightsInWords(own[0].Rules)},
		map[string]string{
			"cluster": "network-attachment-definitions.k8s.cni.cncf.io list; nodes get list patch",
			"own": "pods list; pods/log get; daemonsets.apps[agent,ovn-node] get update; daemonsets.apps[ovn-central] delete; " +
				"deployments.apps[controller] delete; configmaps[ovn-multinet-ca,ovn-multinet-ovn] delete; configmaps[ovn-multinet-ovn] get update; " +
				"secrets[ovn-multinet-ca] delete",
		})
}
