package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"

	authorization "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/ovn-multinet/ovn-multinet/internal/daemon"
	"github.com/ovn-multinet/ovn-multinet/kubectl/show"
	"github.com/ovn-multinet/ovn-multinet/nad"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
)

// cluster is a cluster as its operator reaches it: by the API server alone.
type cluster struct {
	config *rest.Config
	core   kubernetes.Interface
}

// mayReadNB asks the API server whether the client may use an agent to read NB.
func (k *cluster) mayReadNB(ctx context.Context) (bool, error) {
	answer, err := k.core.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorization.SelfSubjectAccessReview{
		Spec: authorization.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorization.ResourceAttributes{
			Namespace: installed, Verb: "create", Resource: "pods", Subresource: "exec"}},
	}, metav1.CreateOptions{})
	return err == nil && answer.Status.Allowed, err
}

// podStatuses reads the annotation network-status of the pods of a namespace.
func (k *cluster) podStatuses(ctx context.Context, namespace string) (all []show.PodStatus, err error) {
	for options := (metav1.ListOptions{Limit: 500}); ; {
		pods, err := k.core.CoreV1().Pods(namespace).List(ctx, options)
		if err != nil {
			return nil, err
		}
		for i := range pods.Items {
			p := &pods.Items[i]
			if text := p.Annotations[nad.StatusAnnotation]; text != "" {
				all = append(all, show.PodStatus{Namespace: p.Namespace, Name: p.Name, Node: p.Spec.NodeName, Text: text})
			}
		}
		if options.Continue = pods.Continue; options.Continue == "" {
			return all, nil
		}
	}
}

// relayTries is how many agents are asked at most: some may not reach NB, or their node may have gone just now.
const relayTries = 3

// openNB connects to NB by an agent. The agent has the key and the way to NB; neither is needed here.
func (k *cluster) openNB(ctx context.Context) (*ovndb.DB, error) {
	all, err := k.readyAgents(ctx)
	if err != nil {
		return nil, execRights(err)
	}
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	var errs []error
	for _, agent := range all[:min(len(all), relayTries)] {
		conn, err := k.dialNB(ctx, agent)
		if err != nil {
			if errs = append(errs, execRights(err)); apierrors.IsForbidden(err) {
				break
			}
			continue
		}
		first := make(chan net.Conn, 1)
		first <- conn
		return daemon.ReadNB("agent of node "+agent.node, func(context.Context, string) (net.Conn, error) {
			select {
			case conn := <-first:
				return conn, nil
			default:
				return k.dialNB(ctx, agent) // the end of an attempt must not end the connection
			}
		})
	}
	return nil, errors.Join(errs...)
}

// execRights says which right is missing, if one is.
func execRights(err error) error {
	if !apierrors.IsForbidden(err) {
		return err
	}
	return fmt.Errorf("you need the rights to list pods and to create pods/exec in the namespace %s: %w", installed, err)
}

var errNoAgent = errors.New("no agent of ovn-multinet is ready: kubectl -n " + installed + " get pods; " +
	"kubectl multinet check")

// readyAgents returns some agents that are ready.
func (k *cluster) readyAgents(ctx context.Context) (all []target, err error) {
	options := metav1.ListOptions{LabelSelector: agentLabel, Limit: 50}
	for {
		pods, err := k.core.CoreV1().Pods(installed).List(ctx, options)
		if err != nil {
			return nil, err
		}
		for i := range pods.Items {
			if p := &pods.Items[i]; p.DeletionTimestamp == nil && isReady(p) {
				all = append(all, target{p.Spec.NodeName, p.Name, agentContainer})
			}
		}
		if options.Continue = pods.Continue; len(all) > 0 {
			return all, nil
		}
		if options.Continue == "" {
			return nil, errNoAgent
		}
	}
}

func isReady(p *corev1.Pod) bool {
	for i := range p.Status.Conditions {
		if c := &p.Status.Conditions[i]; c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// dialNB starts the relay in an agent's pod, until the end of ctx.
func (k *cluster) dialNB(ctx context.Context, agent target) (net.Conn, error) {
	ours, theirs := net.Pipe()
	ended := make(chan error, 1)
	go func() {
		ended <- execIn(ctx, k.config, k.core, agent, []string{agentBinary, "nb"}, theirs, theirs)
		_ = theirs.Close()
	}()
	if err := skipLine(ours); err != nil {
		_ = ours.Close()
		if why := <-ended; why != nil {
			err = why
		}
		return nil, err
	}
	return ours, nil
}

// skipLine reads up to the end of a line, and nothing after it.
func skipLine(r io.Reader) error {
	for b := make([]byte, 1); ; {
		if _, err := r.Read(b); err != nil || b[0] == '\n' {
			return err
		}
	}
}
