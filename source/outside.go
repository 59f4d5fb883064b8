package source

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/nad"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
)

// outsideCondition returns the condition that says the same as a state.
func outsideCondition(state netmodel.OutsideState) corev1.PodCondition {
	c := corev1.PodCondition{
		Type: conf.OutsideCondition, Status: corev1.ConditionFalse, Reason: string(state.Reason), Message: state.Message,
	}
	if state.Reason == netmodel.OutsideReady {
		c.Status = corev1.ConditionTrue
	}
	return c
}

// outsideOf returns the state that a pod's condition says. Another program may have written a longer text: it is cut,
// and differs from each text of ours.
func outsideOf(p *corev1.Pod) netmodel.OutsideState {
	for _, c := range p.Status.Conditions {
		if c.Type == conf.OutsideCondition {
			cut := func(text string) string { return strings.Clone(text[:min(len(text), conf.MaxReason+1)]) }
			return netmodel.OutsideState{Reason: netmodel.OutsideReason(cut(c.Reason)), Message: cut(c.Message)}
		}
	}
	return netmodel.OutsideState{}
}

// SetOutsideState writes the condition with the state of a pod's outside addresses. The zero state deletes the
// condition. The UID is a precondition: another pod with the same name is not changed.
func (k *Kube) SetOutsideState(ctx context.Context, p *netmodel.Pod, state netmodel.OutsideState) error {
	condition := map[string]any{"type": conf.OutsideCondition}
	if state == (netmodel.OutsideState{}) {
		condition["$patch"] = "delete"
	} else {
		c, former := outsideCondition(state), outsideCondition(p.OutsideState)
		condition["status"], condition["reason"], condition["message"] = c.Status, c.Reason, c.Message
		if c.Status != former.Status || p.OutsideState == (netmodel.OutsideState{}) {
			condition["lastTransitionTime"] = metav1.Now()
		}
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": p.UID}, "status": map[string]any{"conditions": []any{condition}},
	})
	if err != nil {
		return err
	}
	return k.patchStatus(ctx, p, types.StrategicMergePatchType, patch)
}

// OutsideEvent records an Event for a pod. It does not wait.
func (k *Kube) OutsideEvent(p *netmodel.Pod, warning bool, reason, message string) {
	k.Event(p, eventKind(warning), reason, message)
}

// outsideFile is the content of the file with the state of a pod's outside addresses.
type outsideFile struct {
	Namespace string                `json:"namespace"`
	Name      string                `json:"name"`
	UID       string                `json:"uid"`
	Outside   netmodel.OutsideState `json:"outside-addresses"`
}

// SetOutsideState writes the file with the state of a pod's outside addresses. For the zero state it deletes the file.
func (m *Manifests) SetOutsideState(_ context.Context, p *netmodel.Pod, state netmodel.OutsideState) error {
	name := stateFile(p.Namespace, p.Name, outsideSuffix)
	if state == (netmodel.OutsideState{}) {
		return m.remove("state of the outside addresses", name)
	}
	return m.writeState("state of the outside addresses", name, outsideFile{p.Namespace, p.Name, p.UID, state})
}

// OutsideEvent logs an event of a pod.
func (m *Manifests) OutsideEvent(p *netmodel.Pod, warning bool, reason, message string) {
	m.Event(p, eventKind(warning), reason, message)
}

// withStatus returns what policies and Services need of the pods, with what these files say. A network-status is known
// by its file: a pod whose sandbox is made anew may get other addresses.
func (m *Manifests) withStatus(pods []any, statuses []string) []any {
	all, there := make([]any, 0, len(pods)), sets.New(statuses...)
	for _, obj := range pods {
		p := policyPod(obj.(*corev1.Pod))
		if len(p.Annotations) > 0 {
			m.addStatus(p, there)
		}
		all = append(all, p)
	}
	return all
}

func (m *Manifests) addStatus(p *corev1.Pod, statuses sets.Set[string]) {
	if name := string(p.UID) + statusSuffix; statuses.Has(name) {
		if info, err := os.Stat(filepath.Join(m.dir, name)); err == nil {
			p.Annotations[nad.StatusAnnotation] = fmt.Sprint(info.Sys().(*syscall.Stat_t).Ino, " ", info.ModTime())
		}
	}
	if name := stateFile(p.Namespace, p.Name, outsideSuffix); statuses.Has(name) {
		var is outsideFile
		text, err := os.ReadFile(filepath.Join(m.dir, name))
		if err == nil && json.Unmarshal(text, &is) == nil && is.UID == string(p.UID) {
			p.Status.Conditions = append(slices.Clone(p.Status.Conditions), outsideCondition(is.Outside))
		}
	}
}
