package source

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/netmodel/policy"
)

// parsePolicy reads a MultiNetworkPolicy or ClusterNetworkPolicy. One that cannot be served is not an error of the
// file.
func (f *file) parsePolicy(kind string, doc []byte) error {
	raw, err := parseRaw(kind, doc)
	if err != nil {
		return err
	}
	version := policy.APIVersion
	if kind == policy.ClusterKind {
		version, raw.Namespace = policy.ClusterAPIVersion, ""
	}
	if raw.APIVersion != version {
		return fmt.Errorf("%s %s: apiVersion is %q, not %s", kind, raw.Name, raw.APIVersion, version)
	}
	if known := keepPolicy(raw); known.object == nil {
		return nil
	} else if kind == policy.ClusterKind {
		f.add(clusterPolicyKind, known)
	} else {
		f.add(policyKind, known)
	}
	return nil
}

// parseRaw reads an object as the API server would send it.
func parseRaw(kind string, doc []byte) (*rawObject, error) {
	text, err := yaml.YAMLToJSONStrict(doc)
	if err != nil {
		return nil, err
	}
	raw := &rawObject{}
	if err := utiljson.Unmarshal(text, raw); err != nil {
		return nil, err
	}
	if raw.Name == "" {
		return nil, fmt.Errorf("%s without metadata.name", kind)
	}
	raw.Namespace = namespaceOr(raw.Namespace)
	return raw, nil
}

// withNamespaces returns the namespaces: those with a manifest, and those that another manifest names. A namespace has
// the label kubernetes.io/metadata.name, as in Kubernetes.
func withNamespaces(manifests []any, others ...[]any) []any {
	labels := map[string]map[string]string{}
	add := func(name string, has map[string]string) {
		if name != "" && labels[name] == nil {
			labels[name] = map[string]string{}
			maps.Copy(labels[name], has)
			labels[name][corev1.LabelMetadataName] = name
		}
	}
	for _, obj := range manifests {
		add(obj.(*corev1.Namespace).Name, obj.(*corev1.Namespace).Labels)
	}
	for _, obj := range slices.Concat(others...) {
		add(obj.(metav1.Object).GetNamespace(), nil)
	}
	var all []any
	for name, has := range labels {
		all = append(all, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: has}})
	}
	return all
}

// Policy returns a MultiNetworkPolicy. A folder sheds none.
func (m *Manifests) Policy(_ context.Context, namespace, name string) (*policy.Object, error) {
	if obj, there, _ := m.policies.GetByKey(namespace + "/" + name); there {
		return obj.(*keptPolicy).object, nil
	}
	return nil, fmt.Errorf("policy %s/%s: %w", namespace, name, netmodel.ErrNotFound)
}

// AllPolicies returns the MultiNetworkPolicies of all namespaces, and the ClusterNetworkPolicies that are for OVN
// networks.
func (m *Manifests) AllPolicies(context.Context) ([]*policy.Object, error) {
	err := m.complete()
	return objectsOf(slices.Concat(m.policies.List(), m.clusterPolicies.List()), err, m.withPolicyState)
}

// policyFile is the name of the file with the state of a policy. A namespace has no upper case letters.
func policyFile(namespace, name string) string {
	return stateFile(cmp.Or(namespace, policy.ClusterKind), name, policySuffix)
}

// objectState is the content of the file with the state of a policy or of a Service.
type objectState struct {
	Namespace string          `json:"namespace"`
	Name      string          `json:"name"`
	Policy    json.RawMessage `json:"policy,omitempty"`
	Service   json.RawMessage `json:"service,omitempty"`
}

// objectState reads such a file.
func (m *Manifests) objectState(file string) (state objectState) {
	text, err := os.ReadFile(filepath.Join(m.dir, file))
	if err != nil || json.Unmarshal(text, &state) != nil {
		return objectState{}
	}
	return state
}

// withPolicy adds the state that the controller wrote for a policy.
func (m *Manifests) withPolicy(o *policy.Object) *policy.Object {
	with := *o
	with.State = string(m.objectState(policyFile(o.Namespace, o.Name)).Policy)
	return &with
}

// SetPolicyState writes the file with the state of a policy into the folder.
func (m *Manifests) SetPolicyState(_ context.Context, o *policy.Object, state string) error {
	if !m.policies.has(o.ID()) && !m.clusterPolicies.has(o.ID()) {
		return nil
	}
	err := m.write(policyFile(o.Namespace, o.Name),
		objectState{Namespace: o.Namespace, Name: o.Name, Policy: json.RawMessage(state)})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("state of the policy: %w", err)
	}
	return nil
}

// PolicyEvent logs an event of a policy.
func (m *Manifests) PolicyEvent(o *policy.Object, warning bool, reason, message string) {
	m.log.Info("event", "policy", o.ID(), "kind", eventKind(warning), "reason", reason,
		"message", conf.OneLine(message, conf.MaxReason))
}
