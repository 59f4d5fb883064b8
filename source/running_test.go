package source

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestRunning: a pod runs if it has a sandbox in which a container runs, or is started again and again.
func TestRunning(t *testing.T) {
	runs := corev1.ContainerStatus{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}
	waits := func(reason string) corev1.ContainerStatus {
		return corev1.ContainerStatus{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}}
	}
	ended := corev1.ContainerStatus{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}}
	type all = []corev1.ContainerStatus
	tests := []struct {
		name             string
		phase            corev1.PodPhase
		init, containers all
		want             bool
	}{
		{"a container runs", corev1.PodRunning, nil, all{ended, runs}, true},
		{"a container ends again and again", corev1.PodRunning, nil, all{waits("CrashLoopBackOff")}, true},
		{"an init container runs", corev1.PodPending, all{runs}, all{waits("PodInitializing")}, true},
		{"an init container ends again and again", corev1.PodPending, all{waits("CrashLoopBackOff")}, all{waits("PodInitializing")}, true},
		{"a sandbox is made", corev1.PodPending, nil, all{waits("ContainerCreating")}, false},
		{"a sandbox is made again", corev1.PodRunning, nil, all{ended}, false},
		{"its image does not exist", corev1.PodPending, nil, all{waits("ImagePullBackOff")}, false},
		{"it is over", corev1.PodSucceeded, nil, all{ended}, false},
		{"nothing is known yet", corev1.PodPending, nil, nil, false},
		{"a manifest", corev1.PodRunning, nil, nil, true},
	}
	for _, tt := range tests {
		p := &corev1.Pod{Status: corev1.PodStatus{Phase: tt.phase, InitContainerStatuses: tt.init, ContainerStatuses: tt.containers}}
		if got := running(p); got != tt.want {
			t.Errorf("%s: %t", tt.name, got)
		}
		if p.DeletionTimestamp = (&metav1.Time{}); running(p) {
			t.Errorf("%s, and it is being deleted: it runs", tt.name)
		}
	}
}
