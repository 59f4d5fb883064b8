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
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/policy"
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
	if known := keepPolicy(raw); known.object != nil {
		f.policies = append(f.policies, known)
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

// indexPolicies adds the policies and namespaces of a file to the maps.
func (m *Manifests) indexPolicies(f *file) {
	for _, p := range f.policies {
		if k := (key{p.object.Namespace, p.object.Name}); m.policies[k] == nil {
			m.policies[k] = p
		}
	}
	for _, n := range f.namespaces {
		if _, known := m.namespaces[n.Name]; !known {
			m.namespaces[n.Name] = n.Labels
		}
	}
}

// policyWorld is what policies depend on.
type policyWorld struct {
	policies   map[key]*keptPolicy
	namespaces map[string]map[string]string
	pods       map[key]*Pod
}

func (m *Manifests) world() policyWorld { return policyWorld{m.policies, m.namespaces, m.pods} }

// labels returns the labels of all namespaces: of those with a manifest, and of those that another manifest names. A
// namespace has the label kubernetes.io/metadata.name, as in Kubernetes.
func (w policyWorld) labels() map[string]map[string]string {
	all := map[string]map[string]string{}
	add := func(name string) {
		if all[name] == nil {
			all[name] = map[string]string{}
			maps.Copy(all[name], w.namespaces[name])
			all[name][corev1.LabelMetadataName] = name
		}
	}
	for name := range w.namespaces {
		add(name)
	}
	for k := range w.pods {
		add(k.namespace)
	}
	for k := range w.policies {
		if k.namespace != "" {
			add(k.namespace)
		}
	}
	return all
}

// tellPolicies tells what differs from before, of policies, namespaces and the labels of pods.
func (m *Manifests) tellPolicies(before policyWorld) {
	if m.changes.Policy == nil {
		return
	}
	namespaces := map[string]bool{}
	for k, p := range m.policies {
		if old := before.policies[k]; old == nil || old.owners != p.owners {
			namespaces[k.namespace] = true
		}
	}
	for k := range before.policies {
		if m.policies[k] == nil {
			namespaces[k.namespace] = true
		}
	}
	for namespace := range namespaces {
		m.changes.Policy(namespace)
	}
	were, are := before.labels(), m.world().labels()
	for name, has := range are {
		if old, there := were[name]; !there || !maps.Equal(old, has) {
			m.changes.Namespace(name)
		}
	}
	for name := range were {
		if _, there := are[name]; !there {
			m.changes.Namespace(name)
		}
	}
	for k, p := range m.pods {
		if old := before.pods[k]; len(p.Ports) > 0 && (old == nil || old.UID != p.UID || !slices.Equal(old.Ports, p.Ports)) {
			m.changes.Ports(k.namespace)
		}
		if old := before.pods[k]; old != nil && old.UID == p.UID && !maps.Equal(old.Labels, p.Labels) {
			m.changes.Pod(k.namespace, p.UID, true)
		}
	}
	for k, old := range before.pods {
		if p := m.pods[k]; p == nil || p.UID != old.UID {
			m.changes.PodGone(k.namespace, old.UID)
		}
	}
}

// tellAttached tells which pods have got their ports since the last scan: their status was written. A pod whose sandbox
// is made anew may get other addresses.
func (m *Manifests) tellAttached(statuses []string) {
	if m.changes.Policy == nil {
		return
	}
	before := m.attached
	m.attached = map[string]fs.FileInfo{}
	for _, name := range statuses {
		if info, err := os.Stat(filepath.Join(m.dir, name)); err == nil {
			m.attached[name] = info
		}
	}
	for k, p := range m.pods {
		is, was := m.attached[p.UID+statusSuffix], before[p.UID+statusSuffix]
		if is == nil && was == nil || is != nil && was != nil && os.SameFile(is, was) && is.ModTime().Equal(was.ModTime()) {
			continue
		}
		if is != nil {
			m.changes.Pod(k.namespace, p.UID, false)
		}
		if m.changes.Backend != nil {
			m.changes.Backend(k.namespace, k.name)
		}
	}
}

// Policies returns the MultiNetworkPolicies of a namespace.
func (m *Manifests) Policies(_ context.Context, namespace string) ([]*policy.Object, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []*policy.Object
	for k, p := range m.policies {
		if k.namespace == namespace {
			with := *p.object
			with.State = string(m.objectState(policyFile(k.namespace, k.name)).Policy)
			all = append(all, &with)
		}
	}
	return all, nil
}

// ClusterPolicies returns the ClusterNetworkPolicies that are for OVN networks.
func (m *Manifests) ClusterPolicies(ctx context.Context) ([]*policy.Object, error) {
	return m.Policies(ctx, "")
}

// AllPolicies returns the MultiNetworkPolicies of all namespaces, and the ClusterNetworkPolicies that are for OVN
// networks.
func (m *Manifests) AllPolicies(ctx context.Context) ([]*policy.Object, error) {
	if err := m.complete(); err != nil {
		return nil, err
	}
	namespaces, err := m.PolicyNamespaces(ctx)
	if err != nil {
		return nil, err
	}
	var all []*policy.Object
	for _, namespace := range append(namespaces, "") {
		list, err := m.Policies(ctx, namespace)
		if err != nil {
			return nil, err
		}
		all = append(all, list...)
	}
	return all, nil
}

// PolicyNamespaces returns the namespaces that have MultiNetworkPolicies.
func (m *Manifests) PolicyNamespaces(context.Context) ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	found := map[string]bool{}
	for k := range m.policies {
		if k.namespace != "" {
			found[k.namespace] = true
		}
	}
	return slices.Collect(maps.Keys(found)), nil
}

// PolicyPods returns the pods of a namespace that request networks.
func (m *Manifests) PolicyPods(_ context.Context, namespace string) ([]*policy.Pod, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var pods []*policy.Pod
	for k, p := range m.pods {
		if k.namespace == namespace && len(conf.NetworkAnnotations(p.Annotations)) > 0 {
			pods = append(pods, &policy.Pod{
				Namespace: p.Namespace, Name: p.Name, UID: p.UID, Mirror: p.Annotations[mirrorAnnotation],
				Node: p.NodeName, Labels: p.Labels, ManyLabels: p.ManyLabels, Version: p.Version,
				Ports: p.Ports, Ready: !p.NotReady, Hostname: p.Hostname, Subdomain: p.Subdomain,
				Outside: p.Annotations[conf.OutsideAnnotation],
			})
		}
	}
	return pods, nil
}

// Namespaces returns all namespaces.
func (m *Manifests) Namespaces(context.Context) (map[string]policy.Namespace, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := map[string]policy.Namespace{}
	for name, labels := range m.world().labels() {
		all[name] = policy.Namespace{Labels: labels}
	}
	return all, nil
}

// policyFile is the name of the file with the state of a policy. A namespace has no upper case letters.
func policyFile(namespace, name string) string {
	return cmp.Or(namespace, policy.ClusterKind) + "." + name + policySuffix
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

// SetPolicyState writes the file with the state of a policy into the folder.
func (m *Manifests) SetPolicyState(_ context.Context, o *policy.Object, state string) error {
	m.mu.Lock()
	there := m.policies[key{o.Namespace, o.Name}] != nil
	m.mu.Unlock()
	if !there {
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
