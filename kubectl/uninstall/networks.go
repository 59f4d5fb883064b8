package uninstall

import (
	"context"
	"fmt"
	"slices"
	"strings"

	nadv1 "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/pager"

	"github.com/ovn-multinet/ovn-multinet/nad"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
)

// refuseNetworks returns an error if there is an OVN network that the installation did not make, or a pod that uses one
// that it made. The NAD of an OVN network has our finalizer as long as the network has a switch, and it has a switch as
// long as a pod uses it.
func (c Config) refuseNetworks(ctx context.Context) error {
	all, err := c.NADs.K8sCniCncfIoV1().NetworkAttachmentDefinitions("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list the NetworkAttachmentDefinitions: %w", err)
	}
	var others, own []string
	for i := range all.Items {
		n := &all.Items[i]
		switch id := n.Namespace + "/" + n.Name; {
		case !slices.Contains(n.Finalizers, netmodel.NetworkFinalizer):
		case slices.Contains(c.Networks, id):
			own = append(own, id)
		default:
			others = append(others, id)
		}
	}
	if len(others) > 0 {
		return fmt.Errorf("%d OVN networks exist: delete their pods and NetworkAttachmentDefinitions first: %s",
			len(others), first(others))
	}
	pods, err := c.podsOn(ctx, own)
	if err == nil && len(pods) > 0 {
		err = fmt.Errorf("%d pods use the networks of the release: delete them first: %s", len(pods), first(pods))
	}
	return err
}

// podsOn returns the pods that request one of the networks. A pod that has ended gives its ports back by itself.
func (c Config) podsOn(ctx context.Context, networks []string) (all []string, err error) {
	if len(networks) == 0 {
		return nil, nil
	}
	pages := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return c.Core.CoreV1().Pods("").List(ctx, o)
	})
	err = pages.EachListItem(ctx, metav1.ListOptions{}, func(o runtime.Object) error {
		p, is := o.(*corev1.Pod)
		if !is || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
			return nil
		}
		requests, err := nad.ParseRequests(p.Annotations, p.Namespace, "")
		if err != nil {
			return nil //nolint:nilerr // such a pod does not start
		}
		if slices.ContainsFunc(requests, func(r nad.Request) bool { return slices.Contains(networks, r.String()) }) {
			all = append(all, p.Namespace+"/"+p.Name)
		}
		return nil
	})
	return all, err
}

// deleteNetworks deletes the networks of the installation, and waits until the controller has deleted their switches.
func (c Config) deleteNetworks(ctx context.Context) error {
	client := c.NADs.K8sCniCncfIoV1()
	for _, id := range c.Networks {
		namespace, name, _ := strings.Cut(id, "/")
		err := client.NetworkAttachmentDefinitions(namespace).Delete(ctx, name, metav1.DeleteOptions{})
		if err := ignoreGone(err); err != nil {
			return fmt.Errorf("network %s: %w", id, err)
		}
	}
	return c.until(ctx, "networks of the release", func() (waiting []string, err error) {
		if len(c.Networks) == 0 {
			return nil, nil
		}
		all, err := client.NetworkAttachmentDefinitions("").List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		for i := range all.Items {
			if n := &all.Items[i]; slices.Contains(c.Networks, n.Namespace+"/"+n.Name) {
				waiting = append(waiting, stateOf(n))
			}
		}
		return waiting, nil
	})
}

// stateOf returns a network with what the controller says of it.
func stateOf(n *nadv1.NetworkAttachmentDefinition) string {
	return n.Namespace + "/" + n.Name + " " + n.Annotations[netmodel.NetworkStateAnnotation]
}
