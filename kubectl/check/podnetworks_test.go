package check

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/nad"
)

// TestPodNetworks: pods that run without the networks of their annotation are named, the first ones by name, and no other
// pod is.
func TestPodNetworks(t *testing.T) {
	const primary = `[{"name":"cbr0","interface":"eth0","default":true}]`
	pod := func(name, networks, status string, change func(*corev1.Pod)) *corev1.Pod {
		p := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Annotations: map[string]string{}},
			Status:     corev1.PodStatus{Phase: corev1.PodRunning},
		}
		for key, value := range map[string]string{conf.NetworksAnnotation: networks, nad.StatusAnnotation: status} {
			if value != "" {
				p.Annotations[key] = value
			}
		}
		if change != nil {
			change(p)
		}
		return p
	}
	core := fake.NewClientset(
		pod("without", "blue", "", nil), pod("primary-only", "blue", primary, nil), pod("broken", "[{", primary, nil),
		pod("whole", "blue", `[{"name":"shop/blue","interface":"net1"}]`, nil), pod("plain", "", primary, nil), pod("none", "[]", primary, nil),
		pod("pending", "blue", "", func(p *corev1.Pod) { p.Status.Phase = corev1.PodPending }),
		pod("host", "blue", "", func(p *corev1.Pod) { p.Spec.HostNetwork = true }),
		pod("ending", "blue", "", func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} }),
	)
	c := installed()
	c.readPods(t.Context(), core)
	slices.Sort(c.WithoutNetworks)
	if want := []string{"shop/broken", "shop/primary-only", "shop/without"}; !slices.Equal(c.WithoutNetworks, want) {
		t.Errorf("without networks: %q, want %q", c.WithoutNetworks, want)
	}
	c.WithoutNetworks = append(c.WithoutNetworks, "a/1", "a/2", "a/3")
	found := c.checkPodNetworks()
	if len(found) != 1 || found[0].Level != Warning || found[0].Cause != "pods that run without the networks of their annotation: "+
		"a/1, a/2, a/3, shop/broken, shop/primary-only and 1 more" {
		t.Errorf("%+v", found)
	}
	if c.WithoutNetworks = nil; c.checkPodNetworks()[0].Level != OK {
		t.Error("not ok without such pods")
	}
	c.unread = append(c.unread, unread("pod-networks", "", nil))
	if len(c.checkPodNetworks()) > 0 {
		t.Error("ok of pods that were not read")
	}
}
