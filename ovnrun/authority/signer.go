package authority

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	certificates "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/workqueue"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb/members"
)

// Signer answers the requests of our programs for certificates. One runs at a time, with the leader.
type Signer struct {
	Client     kubernetes.Interface
	Namespace  string
	SignerName string
	// Signs reports whether the signer signs. Otherwise it only approves, and another program, such as cert-manager,
	// signs.
	Signs bool
	// Life is how long a certificate is valid. A program may ask for less.
	Life    time.Duration
	Nodes   func(context.Context) ([]netmodel.Node, error)
	Leading func() error
	// Event records an Event about the authority; nil: nobody reads it. It does not wait.
	Event func(warning bool, reason, message string)
	Log   *slog.Logger

	turns      turns
	mu         sync.Mutex
	broken     string    // why the Secret cannot be read; "": it can
	wholeSince time.Time // since when all nodes have certificates of the next authority; zero: not yet
}

// How long the leader waits between two looks at the authority, its Secret and the nodes: this bounds the time until a
// rotation that somebody asks for begins, and the time between its steps.
const (
	loadEvery   = 15 * time.Second
	rotateEvery = 5 * time.Second
)

// Run answers requests until the end of ctx.
func (s *Signer) Run(ctx context.Context) error {
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())
	stop := context.AfterFunc(ctx, queue.ShutDown)
	defer stop()
	informer, err := s.watch(queue.Add)
	if err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		informer.Run(ctx.Done())
	}()
	defer func() { <-ended }()
	if s.Signs {
		go s.keepAuthority(ctx)
	}
	for {
		name, end := queue.Get()
		if end {
			return nil
		}
		later, err := s.turnOf(ctx, name)
		switch {
		case later > 0:
			queue.AddAfter(name, later)
		case err == nil || apierrors.IsNotFound(err):
			queue.Forget(name)
		case ctx.Err() == nil:
			s.Log.Warn("cannot answer a request for a certificate; trying again", "request", name, "err", err)
			queue.AddRateLimited(name)
		}
		queue.Done(name)
	}
}

// turnOf reads a request and answers it. later is how long the request waits if its node makes too many.
func (s *Signer) turnOf(ctx context.Context, name string) (later time.Duration, err error) {
	csr, err := s.Client.CertificatesV1().CertificateSigningRequests().Get(ctx, name, metav1.GetOptions{})
	if err != nil || !s.open(csr) {
		return 0, err
	}
	if who, err := askerOf(csr, s.Namespace); err == nil && !s.turns.next(who.node) {
		return crowded, nil
	}
	return 0, s.answer(ctx, csr)
}

// keepAuthority has the authority published before the first request, and renews it.
func (s *Signer) keepAuthority(ctx context.Context) {
	for {
		wait := loadEvery
		if err := s.Leading(); err == nil {
			t, err := s.load(ctx, time.Now(), asker{})
			switch {
			case err != nil && ctx.Err() == nil:
				s.Log.Warn("the authority of OVN's certificates is not ready; trying again", "err", err)
				wait = time.Second
			case t.rotating:
				wait = rotateEvery
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

func (s *Signer) event(warning bool, reason, message string) {
	if s.Event != nil {
		s.Event(warning, reason, message)
	}
}

// open reports whether a request waits for us.
func (s *Signer) open(csr *certificates.CertificateSigningRequest) bool {
	approved := false
	for _, c := range csr.Status.Conditions {
		switch c.Type {
		case certificates.CertificateDenied, certificates.CertificateFailed:
			return false
		case certificates.CertificateApproved:
			approved = true
		}
	}
	return len(csr.Status.Certificate) == 0 && (s.Signs || !approved)
}

// answer approves and signs a request, or denies it. A request that an administrator approved is checked too.
func (s *Signer) answer(ctx context.Context, csr *certificates.CertificateSigningRequest) error {
	if !s.open(csr) {
		return nil
	}
	if err := s.Leading(); err != nil {
		return err
	}
	who, err := askerOf(csr, s.Namespace)
	if errors.Is(err, errNotOurs) && !s.Signs {
		return nil // another program's issuer serves other programs, too
	}
	if err != nil {
		return s.deny(ctx, csr, err)
	}
	node, err := s.Client.CoreV1().Nodes().Get(ctx, who.node, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("node of the request: %w", err)
	}
	who.uid = string(node.UID)
	if conf.Distrusted(node.Labels) {
		return s.deny(ctx, csr, fmt.Errorf("node %s is distrusted (label %s)", who.node, conf.DistrustedLabel))
	}
	var addresses []net.IP
	if who.role.Serves() {
		member, is, err := s.member(ctx, who.node)
		if err != nil {
			return err
		}
		if !is {
			return s.deny(ctx, csr, fmt.Errorf("node %s is no member of OVN's databases (ConfigMap %s)",
				who.node, members.ConfigMapName))
		}
		addresses = []net.IP{member.IP.AsSlice()}
	}
	request, err := check(csr, who, addresses)
	if err != nil {
		return s.deny(ctx, csr, err)
	}
	csr, err = s.condition(ctx, csr, certificates.CertificateApproved,
		fmt.Sprintf("the token is that of %s on node %s", who.role, who.node))
	if err != nil || !s.Signs {
		return err
	}
	now := time.Now()
	t, err := s.load(ctx, now, who)
	if err != nil {
		return err
	}
	if csr.Status.Certificate, err = t.signs.issue(request, who.role.Serves(), now, s.lifeOf(csr)); err != nil {
		return err
	}
	_, err = s.Client.CertificatesV1().CertificateSigningRequests().UpdateStatus(ctx, csr, metav1.UpdateOptions{})
	if err == nil {
		s.Log.Info("signed a certificate", "name", request.Subject.CommonName, "request", csr.Name)
	}
	return err
}

// lifeOf is how long the certificate for a request is valid.
func (s *Signer) lifeOf(csr *certificates.CertificateSigningRequest) time.Duration {
	if asked := csr.Spec.ExpirationSeconds; asked != nil {
		return min(s.Life, time.Duration(*asked)*time.Second)
	}
	return s.Life
}

// member returns the member of OVN's databases on a node. What a node says of itself does not count: its kubelet writes
// its addresses and may label it.
func (s *Signer) member(ctx context.Context, node string) (m members.Member, is bool, err error) {
	list, err := s.memberList(ctx)
	m, is = list.Of(node)
	return m, is, err
}

// memberList returns the members; none if the list is not there yet.
func (s *Signer) memberList(ctx context.Context) (members.List, error) {
	stored, err := s.Client.CoreV1().ConfigMaps(s.Namespace).Get(ctx, members.ConfigMapName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return members.List{}, nil
	}
	if err != nil {
		return members.List{}, err
	}
	list, err := members.Parse(stored.Data[members.ListKey])
	if err != nil {
		return members.List{}, fmt.Errorf("configmap %s: %w", members.ConfigMapName, err)
	}
	return list, nil
}

func (s *Signer) deny(ctx context.Context, csr *certificates.CertificateSigningRequest, reason error) error {
	s.Log.Warn("denied a request for a certificate", "request", csr.Name, "user", csr.Spec.Username, "reason", reason)
	_, err := s.condition(ctx, csr, certificates.CertificateDenied, reason.Error())
	return err
}

// condition sets a condition of a request, unless the request has it.
func (s *Signer) condition(
	ctx context.Context, csr *certificates.CertificateSigningRequest,
	kind certificates.RequestConditionType, message string,
) (*certificates.CertificateSigningRequest, error) {
	for _, c := range csr.Status.Conditions {
		if c.Type == kind {
			return csr, nil
		}
	}
	csr.Status.Conditions = append(csr.Status.Conditions, certificates.CertificateSigningRequestCondition{
		Type: kind, Status: corev1.ConditionTrue, Reason: "OVNMultinet", Message: message})
	requests := s.Client.CertificatesV1().CertificateSigningRequests()
	return requests.UpdateApproval(ctx, csr.Name, csr, metav1.UpdateOptions{})
}
