//go:build kube

package scenarios

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

// attackEntries: the controller's token grants nothing. Of an object of the operator it changes its status and our
// finalizer alone.
func (s *thief) attackEntries() {
	const physical = "apiVersion: ovn-multinet.io/v1alpha1\nkind: PhysicalNetwork\nmetadata: {name: theirs}\n" +
		"spec: {grants: [{vlans: '7', namespaces: [shop]}]}\n"
	s.Must(s.Apply(s.Ctx, physical))
	const path = "/apis/ovn-multinet.io/v1alpha1/physicalnetworks"
	client := s.core.CoreV1().RESTClient()
	patch := func(body string, more ...string) error {
		return client.Patch(types.MergePatchType).AbsPath(append([]string{path, "theirs"}, more...)...).
			Param("dryRun", "All").Body([]byte(body)).Do(s.Ctx).Error()
	}
	const nothingElse = "neither labels, annotations, owners nor the spec of an object of the operator"
	// The policy counts a moment after the kind exists.
	s.Must(lab.Eventually(s.Ctx, func() error {
		if err := patch(`{"spec":{"grants":[{"vlans":"1-4094","namespaces":["shop"]}]}}`); !apierrors.IsForbidden(err) {
			return fmt.Errorf("the policy does not refuse a grant: %w", err)
		}
		return nil
	}))
	s.cannot("grant more", nothingElse, patch(`{"spec":{"grants":[{"vlans":"1-4094","namespaces":["shop"]}]}}`))
	s.cannot("label an object", nothingElse, patch(`{"metadata":{"labels":{"a":"b"}}}`))
	s.cannot("keep an object by another finalizer", "no finalizer of an object of the operator but", patch(`{"metadata":{"finalizers":["a.example/b"]}}`))
	s.cannot("create an object", "cannot create resource", client.Post().AbsPath(path).Body([]byte(
		`{"apiVersion":"ovn-multinet.io/v1alpha1","kind":"PhysicalNetwork","metadata":{"name":"ours"},"spec":{"grants":[]}}`)).Do(s.Ctx).Error())
	s.cannot("delete an object", "cannot delete resource", client.Delete().AbsPath(path, "theirs").Do(s.Ctx).Error())
	e := event("", "own")
	e.InvolvedObject = corev1.ObjectReference{Kind: "ConfigMap", APIVersion: "v1", Namespace: "default", Name: "kube-root-ca.crt"}
	_, err := s.core.CoreV1().Events("default").Create(s.Ctx, e, metav1.CreateOptions{})
	s.cannot("an Event of another ConfigMap", "of ConfigMaps, the controller of ovn-multinet writes Events of ovn-multinet/ovn-multinet-ca only", err)
	s.Must(patch(`{"metadata":{"finalizers":["ovn-multinet.io/in-use"]}}`))
	s.Must(patch(`{"status":{"users":1}}`, "status"))
	s.Must(s.Delete(s.Ctx, physical))
}
