package source

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/netmodel/policy"
	"github.com/ovn-multinet/ovn-multinet/netmodel/service"
)

var sliceKind = apiKind{
	group: "discovery.k8s.io", version: "v1", resource: "endpointslices",
	selector: discoveryv1.LabelManagedBy + "=" + service.ProxyName,
}

// sliceWatch has the informer of our EndpointSlices. It always runs: a Service may have lost its label, or its slices
// another one, while no controller ran.
type sliceWatch struct {
	core     kubernetes.Interface
	informer cache.SharedIndexInformer

	mu sync.Mutex
	// written has our writes that the informer has not heard of yet, by "<namespace>/<name>" of the slice. Another change
	// that the informer hears of is another program's.
	written map[string]sliceWrites
}

// sliceWrites are writes of one slice.
type sliceWrites struct {
	service string   // whose slice it is, as "<namespace>/<name>"
	hashes  []string // in their order; "": a deletion
}

// keptSlice is what the informer keeps of a slice. Its object is the name of its Service; owners is the hash of what we
// write.
type keptSlice = kept[string]

// byService is the index of slices by the Service, as "<namespace>/<name>".
const byService = "service"

func newSliceWatch(k *Kube) *sliceWatch {
	reader := rawReader[discoveryv1.EndpointSlice, string]{k, sliceKind, keepSlice}
	return &sliceWatch{
		core: k.core, written: map[string]sliceWrites{},
		informer: reader.informer(cache.Indexers{byService: func(obj any) ([]string, error) {
			s := obj.(*keptSlice)
			return []string{s.Namespace + "/" + *s.object}, nil
		}}),
	}
}

func keepSlice(raw *discoveryv1.EndpointSlice) *keptSlice {
	name := raw.Labels[discoveryv1.LabelServiceName]
	known := &keptSlice{object: &name, owners: sliceHash(raw)}
	known.setMeta(&raw.ObjectMeta)
	return known
}

// sliceHash is the hash of what we write into a slice. Other labels and annotations may be other programs'.
func sliceHash(s *discoveryv1.EndpointSlice) string {
	labels := map[string]string{}
	for _, key := range []string{discoveryv1.LabelServiceName, discoveryv1.LabelManagedBy, corev1.IsHeadlessService} {
		if value, ok := s.Labels[key]; ok {
			labels[key] = value
		}
	}
	text, _ := json.Marshal(struct { // no value of these types is refused
		Labels    map[string]string
		Owners    []metav1.OwnerReference `json:",omitempty"`
		Type      discoveryv1.AddressType
		Endpoints []discoveryv1.Endpoint     `json:",omitempty"`
		Ports     []discoveryv1.EndpointPort `json:",omitempty"`
	}{labels, s.OwnerReferences, s.AddressType, s.Endpoints, s.Ports})
	return policy.Hash(map[string]string{"": string(text)})
}

// tell calls changed for the Services of a slice that another program has changed, and for those of the slices that
// exist when the informer starts.
func (w *sliceWatch) tell(changed func(namespace, name string)) error {
	tell := func(s *keptSlice, hash string, services ...string) {
		key := s.Namespace + "/" + s.Name
		if w.heard(key, hash) {
			return
		}
		for _, name := range slices.Compact(services) {
			if name != "" {
				changed(s.Namespace, name)
			}
		}
	}
	_, err := w.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) {
			if s, ok := obj.(*keptSlice); ok {
				tell(s, s.owners, *s.object)
			}
		},
		UpdateFunc: func(old, now any) {
			if was, is := old.(*keptSlice), now.(*keptSlice); was.owners != is.owners || was.UID != is.UID {
				tell(is, is.owners, *was.object, *is.object)
			}
		},
		DeleteFunc: func(obj any) {
			if s, ok := lastKnown(obj).(*keptSlice); ok {
				tell(s, "", *s.object)
			}
		},
	})
	return err
}

// expect notes the hash of a slice before it is written. of is the Service.
func (w *sliceWatch) expect(of, key, hash string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.written[key] = sliceWrites{of, append(w.written[key].hashes, hash)}
}

// heard reports whether the informer has heard of a write of ours. After a change of another program, nothing is known
// of the order of the writes: each is then told.
func (w *sliceWatch) heard(key, hash string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	of := w.written[key]
	i := slices.Index(of.hashes, hash)
	if of.hashes = of.hashes[i+1:]; i >= 0 && len(of.hashes) > 0 {
		w.written[key] = of
	} else {
		delete(w.written, key)
	}
	return i >= 0
}

// forget forgets the writes of a Service's slices that are not wanted any more. If the informer does not have such a
// slice yet, it tells of the slice later, and the next call deletes the slice.
func (w *sliceWatch) forget(service string, wanted map[string]bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	maps.DeleteFunc(w.written, func(key string, of sliceWrites) bool { return of.service == service && !wanted[key] })
}

// notWritten forgets the last write. If it had an effect all the same, the informer tells of it.
func (w *sliceWatch) notWritten(key, hash string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	of := w.written[key]
	if n := len(of.hashes) - 1; n > 0 && of.hashes[n] == hash {
		of.hashes = of.hashes[:n]
		w.written[key] = of
	} else if n == 0 && of.hashes[n] == hash {
		delete(w.written, key)
	}
}

// present returns what the informer knows of a slice, or nil, and the hash that the slice has since our last write; ""
// if it does not exist.
func (w *sliceWatch) present(key string) (known *keptSlice, hash string, err error) {
	obj, there, err := w.informer.GetStore().GetByKey(key)
	if err != nil {
		return nil, "", err
	}
	if there {
		known = obj.(*keptSlice)
		hash = known.owners
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if hashes := w.written[key].hashes; len(hashes) > 0 {
		hash = hashes[len(hashes)-1]
	}
	return known, hash, nil
}

// SetEndpoints makes the EndpointSlices of a Service the wanted ones, and deletes the others that are ours. A slice
// that another program has changed is written again.
func (k *Kube) SetEndpoints(ctx context.Context, o *service.Object, wanted []discoveryv1.EndpointSlice) error {
	w := k.slices
	if err := synced(ctx, "EndpointSlices", w.informer); err != nil {
		return err
	}
	if now, err := k.Service(ctx, o.Namespace, o.Name); err != nil {
		return err
	} else if len(wanted) > 0 && (now == nil || now.UID != o.UID) {
		return fmt.Errorf("%s: %w", o.ID(), netmodel.ErrNotFound)
	}
	var errs []error
	names, numbers := map[string]bool{}, map[discoveryv1.AddressType]int{}
	for i := range wanted {
		family := wanted[i].AddressType
		s := sliceOf(o, &wanted[i], numbers[family])
		numbers[family]++
		names[s.Namespace+"/"+s.Name] = true
		errs = append(errs, w.write(ctx, o.ID(), s))
	}
	w.forget(o.ID(), names)
	known, err := w.informer.GetIndexer().ByIndex(byService, o.ID())
	errs = append(errs, err)
	for _, obj := range known {
		if s := obj.(*keptSlice); !names[s.Namespace+"/"+s.Name] {
			errs = append(errs, w.delete(ctx, o.ID(), s))
		}
	}
	return errors.Join(errs...)
}

// sliceOf returns the slice with this number of its family, as the API server stores it.
func sliceOf(o *service.Object, wanted *discoveryv1.EndpointSlice, number int) *discoveryv1.EndpointSlice {
	controls, tcp, noName := true, corev1.ProtocolTCP, ""
	family := strings.ToLower(string(wanted.AddressType))
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: o.Namespace,
			Name:      fmt.Sprintf("%s-%s-%s-%d", o.Name, service.ProxyName, family, number),
			// For Kubernetes each of our Services is headless. kube-proxy ignores slices with this label.
			Labels: map[string]string{
				discoveryv1.LabelServiceName: o.Name, discoveryv1.LabelManagedBy: service.ProxyName, corev1.IsHeadlessService: "",
			},
			// Without blockOwnerDeletion, which would need a right to the finalizers of Services.
			OwnerReferences: []metav1.OwnerReference{
				{APIVersion: "v1", Kind: "Service", Name: o.Name, UID: types.UID(o.UID), Controller: &controls},
			},
		},
		AddressType: wanted.AddressType, Endpoints: wanted.Endpoints, Ports: slices.Clone(wanted.Ports),
	}
	for i := range s.Ports {
		if s.Ports[i].Name == nil {
			s.Ports[i].Name = &noName
		}
		if s.Ports[i].Protocol == nil {
			s.Ports[i].Protocol = &tcp
		}
	}
	return s
}

// write creates or updates a slice, unless it is there already.
func (w *sliceWatch) write(ctx context.Context, of string, s *discoveryv1.EndpointSlice) error {
	key, hash := s.Namespace+"/"+s.Name, sliceHash(s)
	known, has, err := w.present(key)
	if err != nil || has == hash {
		return err
	}
	w.expect(of, key, hash)
	if has == "" {
		known = nil
	}
	done, err := w.put(ctx, s, known)
	if !done {
		w.notWritten(key, hash)
	}
	if err != nil {
		return fmt.Errorf("EndpointSlice %s: %w", key, err)
	}
	return nil
}

// put writes a slice, and reports whether it was not there already. If the informer's copy is not the newest one, put
// reads the slice and tries once more.
func (w *sliceWatch) put(ctx context.Context, s *discoveryv1.EndpointSlice, known *keptSlice) (done bool, err error) {
	api := w.core.DiscoveryV1().EndpointSlices(s.Namespace)
	if known == nil {
		_, err = api.Create(ctx, s, metav1.CreateOptions{})
	} else {
		s.ResourceVersion = known.ResourceVersion
		_, err = api.Update(ctx, s, metav1.UpdateOptions{})
	}
	if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) || known == nil && apierrors.IsNotFound(err) {
		return false, fmt.Errorf("namespace %s: %w", s.Namespace, netmodel.ErrNotFound)
	}
	if !apierrors.IsAlreadyExists(err) && !apierrors.IsConflict(err) {
		return err == nil, err
	}
	live, err := api.Get(ctx, s.Name, metav1.GetOptions{})
	if err != nil {
		return false, err
	}
	if live.Labels[discoveryv1.LabelManagedBy] != service.ProxyName {
		return false, fmt.Errorf("it exists without the label %s=%s and may be another program's; rename or delete it",
			discoveryv1.LabelManagedBy, service.ProxyName)
	}
	if sliceHash(live) == sliceHash(s) {
		return false, nil
	}
	s.ResourceVersion = live.ResourceVersion
	_, err = api.Update(ctx, s, metav1.UpdateOptions{})
	return err == nil, err
}

// delete deletes a slice that is still as the informer knows it.
func (w *sliceWatch) delete(ctx context.Context, of string, s *keptSlice) error {
	key := s.Namespace + "/" + s.Name
	if _, has, err := w.present(key); err != nil || has == "" {
		return err
	}
	w.expect(of, key, "")
	err := w.core.DiscoveryV1().EndpointSlices(s.Namespace).Delete(ctx, s.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &s.UID, ResourceVersion: &s.ResourceVersion},
	})
	if err == nil {
		return nil
	}
	w.notWritten(key, "")
	if apierrors.IsNotFound(err) {
		return nil
	}
	return fmt.Errorf("EndpointSlice %s: %w", key, err)
}
