package source

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/nad"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
)

// ipamClaim is the kind of IPAMClaims. Their definition comes with KubeVirt's IPAM controller.
var ipamClaim = apiKind{group: "k8s.cni.cncf.io", version: "v1alpha1", resource: "ipamclaims"}

const ipamClaimKindName = "IPAMClaim"

// keptClaim is what is kept of an IPAMClaim.
type keptClaim = kept[netmodel.IPAMClaim]

// rawClaim is an IPAMClaim as the API server sends it.
type rawClaim struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              claimSpec   `json:"spec"`
	Status            claimStatus `json:"status"`
}

type claimSpec struct {
	Network    string         `json:"network"`
	Interface  string         `json:"interface"`
	IPRequests []netip.Prefix `json:"ipRequests"`
	problem    error
}

// UnmarshalJSON notes why a spec cannot be read, and does not fail: the others are in the same list.
func (s *claimSpec) UnmarshalJSON(text []byte) error {
	type plain claimSpec
	if err := json.Unmarshal(text, (*plain)(s)); err != nil {
		*s = claimSpec{problem: fmt.Errorf("its spec: %w", conf.JSONError(err))}
	}
	return nil
}

// claimStatus is the status of an IPAMClaim, as of the module's version 0.5.1-alpha.
type claimStatus struct {
	IPs        []string           `json:"ips"`
	OwnerPod   *claimPod          `json:"ownerPod"`
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

type claimPod struct {
	Name string `json:"name"`
}

// UnmarshalJSON reads what a status has. A status is another one's to write, too, and later versions of the definition
// have a name where this one has an object: what cannot be read is left out.
func (s *claimStatus) UnmarshalJSON(text []byte) error {
	var fields map[string]json.RawMessage
	if json.Unmarshal(text, &fields) == nil {
		_ = json.Unmarshal(fields["ips"], &s.IPs)
		_ = json.Unmarshal(fields["ownerPod"], &s.OwnerPod)
		_ = json.Unmarshal(fields["conditions"], &s.Conditions)
	}
	return nil
}

func keepClaim(raw *rawClaim) *keptClaim {
	deleting := raw.DeletionTimestamp != nil
	claim := &netmodel.IPAMClaim{
		Namespace: raw.Namespace, Name: raw.Name, UID: string(raw.UID), Network: short(raw.Spec.Network),
		Interface: short(raw.Spec.Interface), Deleting: deleting,
	}
	switch n := len(raw.Spec.IPRequests); {
	case raw.Spec.problem != nil:
		claim.Problem = conf.OneLine(raw.Spec.problem.Error(), conf.MaxReason)
	case n > nad.MaxIPs:
		claim.Problem = fmt.Sprintf("its spec.ipRequests: %d addresses are more than %d", n, nad.MaxIPs)
	default:
		claim.Requested = raw.Spec.IPRequests
	}
	is := &claim.Status
	// One more than an interface has says that the status is not ours.
	for _, text := range raw.Status.IPs[:min(len(raw.Status.IPs), nad.MaxIPs+1)] {
		is.IPs = append(is.IPs, short(text))
	}
	if pod := raw.Status.OwnerPod; pod != nil {
		is.Pod = short(pod.Name)
	}
	if c := meta.FindStatusCondition(raw.Status.Conditions, netmodel.IPsAllocated); c != nil {
		is.Allocated, is.Reason, is.Message = c.Status == metav1.ConditionTrue, short(c.Reason), short(c.Message)
	}
	known := &keptClaim{object: claim}
	known.owners = fmt.Sprint(claim.Network, " ", claim.Interface, " ", claim.Requested, deleting, claim.Problem)
	known.setMeta(&raw.ObjectMeta)
	return known
}

// short copies the first bytes of a text that has no bound of its own.
func short(text string) string { return strings.Clone(text[:min(len(text), 256)]) }

func (k *Kube) claimReader() rawReader[rawClaim, netmodel.IPAMClaim] {
	return rawReader[rawClaim, netmodel.IPAMClaim]{k, ipamClaim, keepClaim}
}

// watchClaims creates the informer of IPAMClaims.
func (k *Kube) watchClaims(changed func(namespace, name string)) error {
	informer := k.claimReader().informer(byNamespace())
	k.claims = informed(ipamClaim.resource, informer)
	k.run = append(k.run, informer.Run)
	return listen(informer, onKept(func(c *keptClaim) {
		k.policyPods.need()
		changed(c.Namespace, c.Name)
	}))
}

// IPAMClaims returns the IPAMClaims.
func (o *objects) IPAMClaims(ctx context.Context) ([]*netmodel.IPAMClaim, error) {
	known, err := o.claims.all(ctx)
	return objectsOf(known, err, o.withClaimState)
}

// KnownIPAMClaim returns one IPAMClaim; nil if it does not exist.
func (o *objects) KnownIPAMClaim(ctx context.Context, namespace, name string) (*netmodel.IPAMClaim, error) {
	if err := o.claims.wait(ctx); err != nil {
		return nil, err
	}
	obj, there, err := o.claims.GetByKey(namespace + "/" + name)
	if !there || err != nil {
		return nil, err
	}
	all, err := objectsOf([]any{obj}, nil, o.withClaimState)
	return all[0], err
}

// LiveIPAMClaim reads an IPAMClaim from the API. The error is netmodel.ErrNotFound if it does not exist.
func (k *Kube) LiveIPAMClaim(ctx context.Context, namespace, name string) (*netmodel.IPAMClaim, error) {
	raw, err := k.rawClaim(ctx, namespace, name)
	if err != nil {
		return nil, err
	}
	return keepClaim(raw).object, nil
}

func (k *Kube) rawClaim(ctx context.Context, namespace, name string) (*rawClaim, error) {
	raw, err := get(ctx, k, func(ctx context.Context, name string, _ metav1.GetOptions) (*rawClaim, error) {
		text, err := k.api(http.MethodGet, ipamClaim).Suffix("namespaces", namespace, ipamClaim.resource, name).DoRaw(ctx)
		raw := &rawClaim{}
		if err == nil {
			err = utiljson.Unmarshal(text, raw)
		}
		return raw, err
	}, name)
	if apierrors.IsNotFound(err) {
		err = netmodel.ErrNotFound
	}
	if err != nil {
		return nil, fmt.Errorf("IPAMClaim %s/%s: %w", namespace, name, err)
	}
	return raw, nil
}

// SetIPAMClaimStatus writes the status of an IPAMClaim. It leaves the conditions of other types alone.
func (k *Kube) SetIPAMClaimStatus(ctx context.Context, c *netmodel.IPAMClaim, is netmodel.IPAMClaimStatus) error {
	live, err := k.rawClaim(ctx, c.Namespace, c.Name)
	if err != nil {
		return err
	}
	// With the UID, the patch does not change another IPAMClaim that has the same name.
	body, err := json.Marshal(map[string]any{
		"metadata": map[string]string{"uid": c.UID}, "status": claimStatusOf(is, live.Status.Conditions),
	})
	if err != nil {
		return err
	}
	err = k.api(http.MethodPatch, ipamClaim).Suffix("namespaces", c.Namespace, ipamClaim.resource, c.Name, "status").
		SetHeader("Content-Type", string(types.MergePatchType)).Body(body).Do(ctx).Error()
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("%s: %w", c.ID(), netmodel.ErrNotFound)
	}
	return err
}

func claimStatusOf(is netmodel.IPAMClaimStatus, conditions []metav1.Condition) claimStatus {
	status := claimStatus{IPs: append([]string{}, is.IPs...), Conditions: conditions}
	if is.Pod != "" {
		status.OwnerPod = &claimPod{is.Pod}
	}
	if is.Reason != "" {
		c := metav1.Condition{
			Type: netmodel.IPsAllocated, Status: metav1.ConditionFalse, Reason: is.Reason, Message: is.Message,
		}
		if is.Allocated {
			c.Status = metav1.ConditionTrue
		}
		meta.SetStatusCondition(&status.Conditions, c)
	}
	return status
}

// parseClaim reads an IPAMClaim. Objects of other groups that have the same kind are not read.
func (f *file) parseClaim(apiVersion string, doc []byte) error {
	if apiVersion != ipamClaim.group+"/"+ipamClaim.version {
		return nil
	}
	text, err := yaml.YAMLToJSONStrict(doc)
	raw := &rawClaim{}
	if err == nil {
		err = utiljson.Unmarshal(text, raw)
	}
	switch {
	case err != nil:
		return err
	case raw.Name == "":
		return fmt.Errorf("%s without metadata.name", ipamClaimKindName)
	case raw.Spec.problem != nil:
		return fmt.Errorf("%s %s: %w", ipamClaimKindName, raw.Name, raw.Spec.problem)
	}
	raw.Namespace, raw.Status = namespaceOr(raw.Namespace), claimStatus{}
	f.add(claimKind, keepClaim(raw))
	return nil
}

func claimFile(namespace, name string) string { return stateFile(namespace, name, claimSuffix) }

// claimFileContent is the content of the file with the status of an IPAMClaim.
type claimFileContent struct {
	Namespace string      `json:"namespace"`
	Name      string      `json:"name"`
	Status    claimStatus `json:"status"`
}

// withClaim adds the status that the controller wrote for an IPAMClaim.
func (m *Manifests) withClaim(c *netmodel.IPAMClaim) *netmodel.IPAMClaim {
	with, is := *c, claimFileContent{}
	text, err := os.ReadFile(filepath.Join(m.dir, claimFile(c.Namespace, c.Name)))
	if err == nil && json.Unmarshal(text, &is) == nil {
		with.Status = keepClaim(&rawClaim{Status: is.Status}).object.Status
	}
	return &with
}

// LiveIPAMClaim reads the folder again and returns the IPAMClaim.
func (m *Manifests) LiveIPAMClaim(ctx context.Context, namespace, name string) (*netmodel.IPAMClaim, error) {
	if err := m.scan(); err != nil {
		return nil, err
	}
	claim, err := m.KnownIPAMClaim(ctx, namespace, name)
	if claim == nil && err == nil {
		err = m.absent(namespace, name, netmodel.ErrNotFound)
	}
	return claim, err
}

// SetIPAMClaimStatus writes the file with the status of an IPAMClaim into the folder.
func (m *Manifests) SetIPAMClaimStatus(_ context.Context, c *netmodel.IPAMClaim, is netmodel.IPAMClaimStatus) error {
	if !m.claims.has(c.ID()) {
		return fmt.Errorf("%s: %w", c.ID(), netmodel.ErrNotFound)
	}
	err := m.write(claimFile(c.Namespace, c.Name), claimFileContent{c.Namespace, c.Name, claimStatusOf(is, nil)})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("status of IPAMClaim %s: %w", c.ID(), err)
	}
	return nil
}
