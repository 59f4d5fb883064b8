package main

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	ktesting "k8s.io/client-go/testing"
)

// pageOf are pods of agents; those whose name begins with "ready" are ready.
func pageOf(next string, names ...string) *corev1.PodList {
	list := &corev1.PodList{ListMeta: metav1.ListMeta{Continue: next}}
	for _, name := range names {
		p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": "ovn-multinet-agent"}}, Spec: corev1.PodSpec{NodeName: "node-" + name}}
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse}}
		if strings.HasPrefix(name, "ready") {
			p.Status.Conditions[0].Status = corev1.ConditionTrue
		}
		if strings.HasSuffix(name, "ends") {
			p.DeletionTimestamp = &metav1.Time{}
		}
		list.Items = append(list.Items, p)
	}
	return list
}

// TestReadyAgents: of a large cluster only as many pods are listed as it takes to find an agent that is ready.
func TestReadyAgents(t *testing.T) {
	for _, tt := range []struct {
		pages []*corev1.PodList
		err   error
		want  string
		lists int
	}{
		{[]*corev1.PodList{pageOf("2", "ready-1", "a"), pageOf("", "ready-2")}, nil, "[{node-ready-1 ready-1 agent}]", 1},
		{[]*corev1.PodList{pageOf("2", "ready-ends", "a"), pageOf("", "b", "ready-2")}, nil, "[{node-ready-2 ready-2 agent}]", 2},
		{[]*corev1.PodList{pageOf("", "a")}, nil, "no agent of ovn-multinet is ready: kubectl -n ovn-multinet get pods; kubectl multinet check", 1},
		{nil, apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", nil),
			"you need the rights to list pods and to create pods/exec in the namespace ovn-multinet: ", 1},
	} {
		core, lists := fake.NewClientset(), 0
		core.PrependReactor("list", "pods", func(ktesting.Action) (bool, runtime.Object, error) {
			if lists++; tt.err != nil {
				return true, nil, tt.err
			}
			return true, tt.pages[lists-1], nil
		})
		all, err := (&cluster{core: core}).readyAgents(t.Context())
		got := fmt.Sprint(all)
		if err != nil {
			got = execRights(err).Error()
		}
		if !strings.HasPrefix(got, tt.want) || lists != tt.lists {
			t.Errorf("%s after %d lists, want %s after %d", got, lists, tt.want, tt.lists)
		}
	}
}
