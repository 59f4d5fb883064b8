package source

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/yaml"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/netmodel/service"
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
		f.add(serviceObjectKind, keepService(raw))
	}
	return err
}

// manifestPod returns what is kept of a pod. In a folder nobody writes conditions, so a pod is ready unless its
// manifest says otherwise.
func manifestPod(p *corev1.Pod) *corev1.Pod {
	pod := knownPod(p)
	pod.Namespace = namespaceOr(p.Namespace)
	pod.Spec.Hostname, pod.Spec.Subdomain = p.Spec.Hostname, p.Spec.Subdomain
	if !slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionFalse
	}) {
		pod.Status.Conditions = readyCondition
	}
	return pod
}

// AllServices returns the Services of all namespaces that are ours.
func (m *Manifests) AllServices(context.Context) ([]*service.Object, error) {
	err := m.complete()
	return objectsOf(m.services.List(), err, m.withServiceState)
}

// serviceFile is the name of the file with the state of a Service.
func serviceFile(namespace, name string) string { return stateFile(namespace, name, serviceSuffix) }

// withService adds the state that the controller wrote for a Service.
func (m *Manifests) withService(o *service.Object) *service.Object {
	with := *o
	with.State = string(m.objectState(serviceFile(o.Namespace, o.Name)).Service)
	return &with
}

// SetServiceState writes the file with the state of a Service into the folder.
func (m *Manifests) SetServiceState(_ context.Context, o *service.Object, state string) error {
	if !m.services.has(o.ID()) {
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
