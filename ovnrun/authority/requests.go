package authority

import (
	"context"
	"sync"
	"time"

	certificates "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/flowcontrol"
)

// What one node may ask for: so many requests at once, and then one every ten seconds. A node has three programs, and a
// program whose request is denied asks again once a minute. Further requests wait, and those of other nodes do not.
const (
	requestsAtOnce    = 20
	requestsPerSecond = 0.1
	crowded           = time.Minute
)

// turns bounds the requests of each node.
type turns struct {
	mu     sync.Mutex
	byNode map[string]flowcontrol.RateLimiter
}

// next reports whether a request of the node is answered now.
func (t *turns) next(node string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byNode == nil {
		t.byNode = map[string]flowcontrol.RateLimiter{}
	}
	if t.byNode[node] == nil {
		t.byNode[node] = flowcontrol.NewTokenBucketRateLimiter(requestsPerSecond, requestsAtOnce)
	}
	return t.byNode[node].TryAccept()
}

// requestsOfAPage is how many requests one answer of the API server has, when all are listed.
const requestsOfAPage = 100

// watch returns an informer of the requests for certificates of the signer. It calls add with the names of those that
// wait for an answer. Of each request it keeps next to nothing, because anybody in the cluster may make many.
func (s *Signer) watch(add func(name string)) (cache.SharedIndexInformer, error) {
	api := s.Client.CertificatesV1().CertificateSigningRequests()
	ours := fields.OneTermEqualSelector("spec.signerName", s.SignerName)
	informer := cache.NewSharedIndexInformer(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			all := &certificates.CertificateSigningRequestList{}
			opts.FieldSelector, opts.Limit, opts.ResourceVersion = ours.String(), requestsOfAPage, ""
			opts.ResourceVersionMatch = ""
			for {
				page, err := api.List(ctx, opts)
				if err != nil {
					return nil, err
				}
				for i := range page.Items {
					all.Items = append(all.Items, *trim(&page.Items[i]))
				}
				all.ListMeta = page.ListMeta
				if opts.Continue = page.Continue; opts.Continue == "" {
					return all, nil
				}
			}
		},
		WatchFuncWithContext: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			opts.FieldSelector = ours.String()
			return api.Watch(ctx, opts)
		},
	}, &certificates.CertificateSigningRequest{}, 0, cache.Indexers{})
	changed := func(object any) {
		if csr, ok := object.(*certificates.CertificateSigningRequest); ok && s.open(csr) {
			add(csr.Name)
		}
	}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: changed, UpdateFunc: func(_, now any) { changed(now) }})
	if err != nil {
		return nil, err
	}
	return informer, informer.SetTransform(func(object any) (any, error) {
		if csr, ok := object.(*certificates.CertificateSigningRequest); ok {
			return trim(csr), nil
		}
		return object, nil
	})
}

// trim keeps of a request what says whether it waits for an answer.
func trim(csr *certificates.CertificateSigningRequest) *certificates.CertificateSigningRequest {
	kept := &certificates.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{
		Name: csr.Name, UID: csr.UID, ResourceVersion: csr.ResourceVersion,
	}}
	for _, c := range csr.Status.Conditions {
		kept.Status.Conditions = append(kept.Status.Conditions, certificates.CertificateSigningRequestCondition{Type: c.Type})
	}
	if len(csr.Status.Certificate) > 0 {
		kept.Status.Certificate = []byte{1}
	}
	return kept
}
