package authority

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	certificates "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
)

// TestBoundaryManyRequests: a node that makes many requests waits itself. Another node's request, which comes last, is
// answered meanwhile.
func TestBoundaryManyRequests(t *testing.T) {
	const many = 10 * requestsAtOnce
	objects := []runtime.Object{}
	for _, name := range []string{"one", "two"} {
		objects = append(objects, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	for i := range many {
		c := request(t, Node, "one", nil)
		c.Name = fmt.Sprint("a-", i)
		objects = append(objects, c)
	}
	last := request(t, Node, "two", nil)
	last.Name = "z"
	client := fake.NewClientset(append(objects, last)...)
	s := Signer{Client: client, Namespace: namespace, SignerName: SignerName, Signs: true, Life: DefaultLife, Nodes: noNodes,
		Leading: func() error { return nil }, Log: slog.New(slog.DiscardHandler)}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	signed := func() (n int, other bool) {
		list, err := client.CertificatesV1().CertificateSigningRequests().List(ctx, metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for i := range list.Items {
			if c := &list.Items[i]; len(c.Status.Certificate) > 0 {
				n++
				other = other || c.Name == "z"
			}
		}
		return n, other
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if _, other := signed(); other {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the other node gets no certificate")
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if n, _ := signed(); n > many/2 {
		t.Errorf("%d requests are answered", n)
	}
}

// TestRequestsAreForgotten: the controller keeps of each request next to nothing, whatever the request has, and reads
// them by pages.
func TestRequestsAreForgotten(t *testing.T) {
	c := request(t, Node, "one", nil)
	c.Name, c.Annotations = "a", map[string]string{"a": "b"}
	c.Status.Conditions = []certificates.CertificateSigningRequestCondition{{Type: certificates.CertificateApproved, Message: "x"}}
	c.Status.Certificate = []byte("certificate")
	client := fake.NewClientset(c)
	s := Signer{Client: client, SignerName: SignerName}
	informer, err := s.watch(func(string) { t.Error("the request is answered already") })
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		informer.Run(ctx.Done())
	}()
	defer func() { stop(); <-ended }()
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		t.Fatal(errors.New("no list"))
	}
	later := c.DeepCopy()
	later.Name = "b"
	if _, err := client.CertificatesV1().CertificateSigningRequests().Create(ctx, later, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); len(informer.GetStore().List()) < 2; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the second request does not come")
		}
	}
	for _, obj := range informer.GetStore().List() {
		kept := obj.(*certificates.CertificateSigningRequest)
		if kept.Spec.Request != nil || kept.Spec.Extra != nil || kept.Annotations != nil || kept.Status.Conditions[0].Message != "" ||
			len(kept.Status.Certificate) != 1 {
			t.Errorf("kept: %+v", kept)
		}
	}
}
