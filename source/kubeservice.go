package source

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/netmodel/policy"
	"github.com/ovn-multinet/ovn-multinet/netmodel/service"
)

// keptService is what the informer keeps of a Service.
type keptService = kept[service.Object]

var serviceKind = apiKind{version: "v1", resource: "services", selector: service.ProxyLabel + "=" + service.ProxyName}

func (k *Kube) serviceReader() rawReader[rawObject, service.Object] {
	return rawReader[rawObject, service.Object]{k, serviceKind, keepService}
}

func keepService(raw *rawObject) *keptService {
	owners := map[string]string{"spec": string(raw.Spec)}
	for key, value := range raw.Annotations {
		if strings.HasPrefix(key, "ovn-multinet/") && key != service.StateAnnotation {
			owners["annotation "+key] = value
		}
	}
	known := &keptService{owners: policy.Hash(owners), object: service.NewObject(
		raw.Namespace, raw.Name, raw.CreationTimestamp.Unix(), raw.Labels, raw.Annotations, raw.Spec)}
	known.setMeta(&raw.ObjectMeta)
	if known.object != nil {
		known.object.UID = string(raw.UID)
		for _, ingress := range raw.Status.LoadBalancer.Ingress {
			a, _ := netip.ParseAddr(ingress.IP) // the zero Addr, for a host name, equals none of ours
			known.object.Ingress = append(known.object.Ingress, a)
		}
	}
	return known
}

// watchServices creates the informers of our Services, and of the EndpointSlices that we have written.
func (k *Kube) watchServices(changes Changes) error {
	known := k.serviceReader().informer(byNamespace())
	k.services, k.slices = informed("Services", known), newSliceWatch(k)
	k.run = append(k.run, known.Run, k.slices.informer.Run)
	return errors.Join(k.slices.tell(changes.Service), listen(known, onKept(func(s *keptService) {
		k.policyPods.need()
		changes.Service(s.Namespace, s.Name)
	})))
}

// AllServices lists the Services of all namespaces that are ours. Unlike the other methods it always asks the API
// server.
func (k *Kube) AllServices(ctx context.Context) ([]*service.Object, error) {
	list, err := k.serviceReader().list(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list services: %w", err)
	}
	var all []*service.Object
	for _, known := range list.Items {
		if known.object != nil {
			all = append(all, known.object)
		}
	}
	return all, nil
}

// SetServiceIngress writes the outside addresses into the status of a Service.
func (k *Kube) SetServiceIngress(ctx context.Context, o *service.Object, addresses []netip.Addr) error {
	ingress := []corev1.LoadBalancerIngress{}
	for _, a := range addresses {
		ingress = append(ingress, corev1.LoadBalancerIngress{IP: a.String()})
	}
	patch, err := json.Marshal(map[string]any{"status": map[string]any{
		"loadBalancer": map[string]any{"ingress": ingress},
	}})
	if err != nil {
		return err
	}
	services := k.core.CoreV1().Services(o.Namespace)
	_, err = services.Patch(ctx, o.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("%s: %w", o.ID(), netmodel.ErrNotFound)
	}
	return err
}

// SetServiceState writes the annotation with the state of a Service.
func (k *Kube) SetServiceState(ctx context.Context, o *service.Object, state string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"annotations": map[string]string{service.StateAnnotation: state},
	}})
	if err != nil {
		return err
	}
	services := k.core.CoreV1().Services(o.Namespace)
	_, err = services.Patch(ctx, o.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("%s: %w", o.ID(), netmodel.ErrNotFound)
	}
	return err
}

// ServiceEvent records an Event of a Service. It does not wait: an Event that the API server refuses is lost.
func (k *Kube) ServiceEvent(o *service.Object, warning bool, reason, message string) {
	ref := &corev1.ObjectReference{
		Kind: "Service", APIVersion: "v1", Namespace: o.Namespace, Name: o.Name, UID: types.UID(o.UID),
	}
	k.record.Event(ref, string(eventKind(warning)), reason, conf.OneLine(message, conf.MaxReason))
}
