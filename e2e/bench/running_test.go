//go:build bench

package bench

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
	"github.com/ovn-multinet/ovn-multinet/e2e/labtest"
)

// runningHerd is how many pods are edited at once.
const runningHerd = 50

// TestRunning measures edits of the annotation of running pods.
func TestRunning(t *testing.T) {
	w := Here(t.Context())
	p := report(t, "57-running-"+w.OVN, "Networks of running pods, OVN "+w.OVN, fmt.Sprintf(`From the edit of the annotation of a
running pod until the API server has its network-status with the change: KubeVirt waits up to 15 s for that. The pod has one
network, gets a second one, and loses it. The peer is the ADD of a pod with one network on the same node. The herd is %d pods
that are edited at once; its time is that of the last one.`, runningHerd))
	s := emptySite(t)
	s.startController()
	sys := s.startAgent("--attach", "--early-ports=false")
	s.warmUp(sys)
	s.Must(s.node.StartAttach(s.Ctx))
	pod := s.pod(sys, 1)
	_, err := pod.Add(s.Ctx)
	s.Must(err)
	s.runs(pod)
	var adds, add, remove []float64
	for turn := range *turns {
		if turn > 0 && turn%4 == 0 { // a pod may change ten times at once, and then once in 2 s
			time.Sleep(20 * time.Second)
		}
		other := s.pod(sys, 1)
		adds = append(adds, ms(s.call(sys, func() error {
			_, err := other.Add(s.Ctx)
			return err
		}).wall))
		s.Must(other.Del(s.Ctx))
		s.gone(other)
		add = append(add, ms(s.edited(2, pod)))
		remove = append(remove, ms(s.edited(1, pod)))
	}
	p.Rows = append(p.Rows, Compare("a second network", "ms", "the ADD of a pod", add, adds, 0).AtMost(2000),
		Compare("the network goes", "ms", "the ADD of a pod", remove, adds, 0).AtMost(2000))
	var herd []*lab.Pod
	for range runningHerd {
		one := s.pod(sys, 1)
		_, err := one.Add(s.Ctx)
		s.Must(err)
		s.runs(one)
		herd = append(herd, one)
	}
	p.Rows = append(p.Rows, Number("herd, a second network", "s", []float64{s.edited(2, herd...).Seconds()}, 15),
		Number("herd, the network goes", "s", []float64{s.edited(1, herd...).Seconds()}, 15))
}

// runs has the API server say that a pod runs.
func (s *site) runs(p *lab.Pod) {
	_, err := s.Client.CoreV1().Pods("shop").Patch(s.Ctx, p.Name, types.MergePatchType,
		[]byte(`{"status":{"phase":"Running"}}`), metav1.PatchOptions{}, "status")
	s.Must(err)
}

// edited has pods name k networks, and returns how long it takes until the status of each of them says so.
func (s *site) edited(k int, pods ...*lab.Pod) time.Duration {
	var names []string
	for i := range k {
		names = append(names, fmt.Sprint("ovn", i))
	}
	patch := s.JSON(map[string]any{"metadata": map[string]any{"annotations": map[string]string{
		labtest.NetworksAnnotation: strings.Join(names, ",")}}})
	waiting := map[string]bool{}
	for _, p := range pods {
		waiting[p.Name] = true
	}
	list, err := s.Client.CoreV1().Pods("shop").List(s.Ctx, metav1.ListOptions{})
	s.Must(err)
	events, err := s.Client.CoreV1().Pods("shop").Watch(s.Ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	s.Must(err)
	defer events.Stop()
	return stopwatch(func() {
		for _, p := range pods {
			_, err := s.Client.CoreV1().Pods("shop").Patch(s.Ctx, p.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
			s.Must(err)
		}
		for len(waiting) > 0 {
			event, open := <-events.ResultChan()
			if !open || event.Type == watch.Error {
				s.T.Fatalf("the watch of %d pods has ended: %v", len(waiting), event.Object)
			}
			if p, is := event.Object.(*corev1.Pod); is && attached(p) == k {
				delete(waiting, p.Name)
			}
		}
	})
}

// attached is how many further networks the network-status of a pod has.
func attached(p *corev1.Pod) int {
	var entries []any
	if json.Unmarshal([]byte(p.Annotations["k8s.v1.cni.cncf.io/network-status"]), &entries) != nil {
		return -1
	}
	return len(entries) - 1
}
