package check

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/nad"
)

// maxNamed is how many pods or interfaces a finding names.
const maxNamed = 5

// readPods finds the pods that run without the networks of their annotation. Of all other pods nothing is kept.
func (c *Cluster) readPods(ctx context.Context, core kubernetes.Interface) {
	list := func(ctx context.Context, opts metav1.ListOptions) (*corev1.PodList, error) {
		opts.FieldSelector = "status.phase=" + string(corev1.PodRunning)
		return core.CoreV1().Pods("").List(ctx, opts)
	}
	err := pages(ctx, list, func(l *corev1.PodList) {
		for i := range l.Items {
			if p := &l.Items[i]; lacksNetworks(p) {
				c.WithoutNetworks = append(c.WithoutNetworks, p.Namespace+"/"+p.Name)
			}
		}
	})
	c.cannot("pod-networks", "list pods in all namespaces", err)
}

// lacksNetworks reports whether a pod names networks, and its network-status has none. ADD writes the status before any
// container runs.
func lacksNetworks(p *corev1.Pod) bool {
	if p.Status.Phase != corev1.PodRunning || p.Spec.HostNetwork || p.DeletionTimestamp != nil {
		return false
	}
	requests, err := nad.ParseRequests(conf.NetworkAnnotations(p.Annotations), p.Namespace, "eth0")
	return (len(requests) > 0 || err != nil) && !nad.HasAttachments(p.Annotations[nad.StatusAnnotation])
}

// checkPodNetworks judges the pods that run without their networks.
func (c *Cluster) checkPodNetworks() []Finding {
	const what = "pod-networks"
	if !c.Installed() || c.unreadable(what) {
		return nil
	}
	all := slices.Sorted(slices.Values(c.WithoutNetworks))
	if len(all) == 0 {
		return []Finding{ok(what, "no pod runs without the networks that its annotation names")}
	}
	const fix = "delete them, so that they are made again; with attach.enabled they get their networks as they run. " +
		"Their Events say why: kubectl multinet pod NAME"
	return []Finding{warning(what, fix, "pods that run without the networks of their annotation: %s", firstOf(all))}
}

// firstOf names the first ones, and counts the others.
func firstOf(all []string) string {
	names := strings.Join(all[:min(len(all), maxNamed)], ", ")
	if more := len(all) - maxNamed; more > 0 {
		names += fmt.Sprintf(" and %d more", more)
	}
	return names
}
