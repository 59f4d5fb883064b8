package source

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/netmodel/policy"
)

// SetPolicyState writes the state of a policy: an annotation of a MultiNetworkPolicy, whose kind has no status, and a
// condition of a ClusterNetworkPolicy.
func (k *Kube) SetPolicyState(ctx context.Context, o *policy.Object, state string) error {
	patch, err := k.statePatch(o, state)
	if err != nil {
		return err
	}
	err = patch.Do(ctx).Error()
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("%s: %w", o.ID(), netmodel.ErrNotFound)
	}
	return err
}

func (k *Kube) statePatch(o *policy.Object, state string) (*rest.Request, error) {
	if o.Namespace != "" {
		body, err := json.Marshal(map[string]any{"metadata": map[string]any{
			"annotations": map[string]string{policy.StateAnnotation: state},
		}})
		return k.api(http.MethodPatch, multiKind).Suffix("namespaces", o.Namespace, multiKind.resource, o.Name).
			SetHeader("Content-Type", string(types.MergePatchType)).Body(body), err
	}
	condition, err := conditionOf(state)
	if err != nil {
		return nil, err
	}
	// Server-side apply: the other conditions belong to other implementations.
	body, err := json.Marshal(map[string]any{
		"apiVersion": policy.ClusterAPIVersion, "kind": policy.ClusterKind, "metadata": map[string]any{"name": o.Name},
		"status": map[string]any{"conditions": []metav1.Condition{condition}},
	})
	return k.api(http.MethodPatch, clusterKind).Suffix(clusterKind.resource, o.Name, "status").
		Param("fieldManager", fieldManager).Param("force", "true").
		SetHeader("Content-Type", string(types.ApplyPatchType)).Body(body), err
}

const (
	fieldManager    = "ovn-multinet"
	reasonAccepted  = "PolicyAccepted"
	reasonRefused   = "PolicyRefused"
	messageAccepted = "OVN has the policy"
)

// conditionOf returns the condition that says the same as a state.
func conditionOf(state string) (metav1.Condition, error) {
	var s netmodel.NetworkState
	if err := json.Unmarshal([]byte(state), &s); err != nil {
		return metav1.Condition{}, err
	}
	c := metav1.Condition{
		Type: policy.StateCondition, Status: metav1.ConditionTrue, Reason: reasonAccepted, Message: messageAccepted,
		LastTransitionTime: metav1.NewTime(s.Since),
	}
	if !s.Ready || s.Reason != "" { // of an accepted policy, what is limited
		c.Message = s.Reason
	}
	if !s.Ready {
		c.Status, c.Reason = metav1.ConditionFalse, reasonRefused
	}
	return c, nil
}

// stateOf returns the state that a condition says; "" without one.
func stateOf(conditions []metav1.Condition) string {
	c := meta.FindStatusCondition(conditions, policy.StateCondition)
	if c == nil {
		return ""
	}
	s := netmodel.NetworkState{Ready: c.Status == metav1.ConditionTrue, Since: c.LastTransitionTime.Time}
	if !s.Ready || c.Message != messageAccepted {
		s.Reason = c.Message
	}
	text, err := json.Marshal(s)
	if err != nil {
		return ""
	}
	return string(text)
}

// PolicyEvent records an Event of a policy. It does not wait: an Event that the API server refuses is lost.
func (k *Kube) PolicyEvent(o *policy.Object, warning bool, reason, message string) {
	ref := &corev1.ObjectReference{
		Kind: policy.Kind, APIVersion: policy.APIVersion, Namespace: o.Namespace, Name: o.Name,
	}
	known := k.policies
	if o.Namespace == "" {
		ref.Kind, ref.APIVersion, known = policy.ClusterKind, policy.ClusterAPIVersion, k.clusterPolicies
	}
	if obj, there, err := known.GetByKey(o.ID()); there && err == nil {
		ref.UID = obj.(*keptPolicy).UID
	}
	k.record.Event(ref, string(eventKind(warning)), reason, conf.OneLine(message, conf.MaxReason))
}
