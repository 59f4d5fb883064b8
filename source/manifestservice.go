package source

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/yaml"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/policy"
	"github.com/ovn-multinet/ovn-multinet/service"
)

// parseService reads a Service that is ours. One that cannot be served is not an error of the file. The others are not
// read: a folder may have them for other programs.
func (f *file) parseService(doc []byte) error {
	var its struct {
		APIVersion string `json:"apiVersion"`
		Metadata   struct {
			Labels map[string]any `json:"labels"`
		} `json:"metadata"`
	}
	if err := yaml.Unmarshal(doc, &its); err != nil {
		return err
	}
	if its.APIVersion != "v1" || its.Metadata.Labels[service.ProxyLabel] != service.ProxyName {
		return nil
	}
	raw, err := parseRaw("Service", doc)
	if err == nil {
		f.services = append(f.services, keepService(raw))
	}
	return err
}

// manifestPod converts a pod. In a folder nobody writes conditions, so a pod is ready unless its manifest says
// otherwise.
func manifestPod(p *corev1.Pod) *Pod {
	pod := fromPod(knownPod(p))
	pod.Hostname, pod.Subdomain = p.Spec.Hostname, p.Spec.Subdomain
	pod.NotReady = slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionFalse
	})
	return pod
}

// indexServices adds the Services of a file to the map.
func (m *Manifests) indexServices(f *file) {
	for _, s := range f.services {
		if k := (key{s.object.Namespace, s.object.Name}); m.services[k] == nil {
			m.services[k] = s
		}
	}
}

// tellServices tells what differs from before, of Services and of the pods that they may select. tellAttached tells of
// the networks of pods.
func (m *Manifests) tellServices(before map[key]*keptService, pods map[key]*Pod) {
	if m.changes.Service == nil {
		return
	}
	for k, s := range m.services {
		if old := before[k]; old == nil || old.owners != s.owners || old.UID != s.UID {
			m.changes.Service(k.namespace, k.name)
		}
	}
	for k := range before {
		if m.services[k] == nil {
			m.changes.Service(k.namespace, k.name)
		}
	}
	for k, old := range pods {
		if p := m.pods[k]; p == nil || p.UID != old.UID || p.NotReady != old.NotReady || p.Hostname != old.Hostname ||
			p.Subdomain != old.Subdomain || !maps.Equal(p.Labels, old.Labels) || networked(p) != networked(old) ||
			p.Annotations[conf.OutsideAnnotation] != old.Annotations[conf.OutsideAnnotation] {
			m.changes.Backend(k.namespace, k.name)
		}
	}
}

// networked tells whether a pod requests networks.
func networked(p *Pod) bool { return len(conf.NetworkAnnotations(p.Annotations)) > 0 }

// Services returns the Services of a namespace that are ours.
func (m *Manifests) Services(_ context.Context, namespace string) ([]*service.Object, error) {
	return m.servicesWhere(func(k key) bool { return k.namespace == namespace }), nil
}

// AllServices returns the Services of all namespaces that are ours.
func (m *Manifests) AllServices(context.Context) ([]*service.Object, error) {
	if err := m.complete(); err != nil {
		return nil, err
	}
	return m.servicesWhere(func(key) bool { return true }), nil
}

func (m *Manifests) servicesWhere(is func(key) bool) (all []*service.Object) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for k, s := range m.services {
		if is(k) {
			with := *s.object
			with.State = string(m.objectState(serviceFile(k.namespace, k.name)).Service)
			all = append(all, &with)
		}
	}
	return all
}

// Service returns one Service; nil if it does not exist or is not ours.
func (m *Manifests) Service(_ context.Context, namespace, name string) (*service.Object, error) {
	all := m.servicesWhere(func(k key) bool { return k == key{namespace, name} })
	if len(all) == 0 {
		return nil, nil
	}
	return all[0], nil
}

// ServiceNamespaces returns the namespaces that have such Services.
func (m *Manifests) ServiceNamespaces(context.Context) ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	found := map[string]bool{}
	for k := range m.services {
		found[k.namespace] = true
	}
	return slices.Collect(maps.Keys(found)), nil
}

// serviceFile is the name of the file with the state of a Service.
func serviceFile(namespace, name string) string { return namespace + "." + name + serviceSuffix }

// SetServiceState writes the file with the state of a Service into the folder.
func (m *Manifests) SetServiceState(_ context.Context, o *service.Object, state string) error {
	m.mu.Lock()
	there := m.services[key{o.Namespace, o.Name}] != nil
	m.mu.Unlock()
	if !there {
		return fmt.Errorf("%s: %w", o.ID(), netmodel.ErrNotFound)
	}
	err := m.write(serviceFile(o.Namespace, o.Name),
		objectState{Namespace: o.Namespace, Name: o.Name, Service: json.RawMessage(state)})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("state of the Service: %w", err)
	}
	return nil
}

// SetServiceIngress does nothing: the file with the state has the outside addresses.
func (m *Manifests) SetServiceIngress(context.Context, *service.Object, []netip.Addr) error {
	return nil
}

// SetEndpoints does nothing: nobody reads EndpointSlices from a folder.
func (m *Manifests) SetEndpoints(context.Context, *service.Object, []discoveryv1.EndpointSlice) error {
	return nil
}

// ServiceEvent logs an event of a Service.
func (m *Manifests) ServiceEvent(o *service.Object, warning bool, reason, message string) {
	m.log.Info("event", "service", o.ID(), "kind", eventKind(warning), "reason", reason,
		"message", conf.OneLine(message, conf.MaxReason))
}

// PodsWithOutside returns the pods that request outside addresses, as "<namespace>/<name>".
func (m *Manifests) PodsWithOutside(context.Context) (ids []string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for k, p := range m.pods {
		if p.Annotations[conf.OutsideAnnotation] != "" {
			ids = append(ids, k.namespace+"/"+k.name)
		}
	}
	return ids, nil
}

// OutsideEvent logs an event of a pod.
func (m *Manifests) OutsideEvent(p *policy.Pod, warning bool, reason, message string) {
	m.Event(&Pod{Namespace: p.Namespace, Name: p.Name, UID: p.UID}, eventKind(warning), reason, message)
}
