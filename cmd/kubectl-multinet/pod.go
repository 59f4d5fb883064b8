package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/internal/program"
	"github.com/ovn-multinet/ovn-multinet/kubectl/show"
	"github.com/ovn-multinet/ovn-multinet/nad"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbrows"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/outside"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/policies"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/services"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/view"
)

func podCommand() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use: "pod NAME", Short: "Show the interfaces of a pod, and what is wrong with them", Args: cobra.ExactArgs(1),
		Long: `Show the interfaces of a pod: network, addresses, MAC, MTU, whether the port is up, the policies that select
it, the Services that send to it, and its outside addresses. NAME is <namespace>/<name>, or a pod of the namespace. What
the pod's annotation says is compared with OVN's Northbound database. The exit code is 1 if something is wrong.`,
		Example: "  kubectl multinet pod web-0 -n shop\n  kubectl multinet pod shop/web-0",
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := o.pod(cmd.Context(), args[0], cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			w := cmd.OutOrStdout()
			err = o.print(w, p, func() error { return show.PodPage(w, p) })
			if err == nil && len(p.Problems) > 0 {
				return &program.Exit{Code: 1}
			}
			return err
		},
	}
	o.flags(cmd.Flags())
	return cmd
}

// pod reads what a pod has. name is "<namespace>/<name>" or a name.
func (o *options) pod(ctx context.Context, name string, warn io.Writer) (p *show.Pod, err error) {
	s := &show.PodSources{}
	inNamespace := func(namespace string) (string, string) {
		if of, rest, ok := strings.Cut(name, "/"); ok {
			return of, rest
		}
		return namespace, name
	}
	err = o.with(ctx, func(ctx context.Context, _ objects) error {
		if o.manifests != "" {
			return nil // a folder has no annotations of running pods
		}
		k, namespace, err := o.clients.connect()
		if err != nil {
			return err
		}
		namespace, name := inNamespace(namespace)
		err = k.podStatus(ctx, namespace, name, s)
		if apierrors.IsForbidden(err) && o.states == nil { // NB alone says what there is
			_, err = fmt.Fprintf(warn, "the pod is not read: %v\n", err)
		}
		return err
	}, func(ctx context.Context, db *ovndb.DB, namespace string) error {
		namespace, name := inNamespace(namespace)
		if db == nil {
			p, err = show.PodOf(namespace, name, s)
			return err
		}
		p, err = readPod(ctx, db, namespace, name, s)
		return err
	})
	return p, err
}

// podStatus reads a pod's annotation network-status and its node.
func (k *cluster) podStatus(ctx context.Context, namespace, name string, s *show.PodSources) error {
	pod, err := k.core.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		s.Gone = true
		return nil
	}
	if err != nil {
		return err
	}
	s.Status = &show.PodStatus{
		Namespace: namespace, Name: name, Node: pod.Spec.NodeName, Text: pod.Annotations[nad.StatusAnnotation],
		Routes: pod.Annotations[conf.RoutesAnnotation], Requested: conf.NetworkAnnotations(pod.Annotations),
	}
	return nil
}

// readPod reads what NB has of a pod.
func readPod(ctx context.Context, db *ovndb.DB, namespace, name string, s *show.PodSources) (*show.Pod, error) {
	store := nbrows.NewStore(db)
	var err error
	if s.Networks, err = view.Read(ctx, db); err != nil {
		return nil, err
	}
	if s.Outside, err = outside.New(store).ListForPeople(ctx); err != nil {
		return nil, err
	}
	p, err := show.PodOf(namespace, name, s)
	if err != nil {
		return nil, err
	}
	rows := policies.New(store)
	scopes, err := rows.Scopes(ctx)
	if err != nil {
		return nil, err
	}
	own := p.Scopes()
	scopes = slices.DeleteFunc(scopes, func(s policies.Scope) bool { return !slices.Contains(own, s) })
	views, err := viewsOf(ctx, rows, scopes)
	if err != nil {
		return nil, err
	}
	p.SetPolicies(views)
	served, err := serviceViews(ctx, services.New(store), namespace, "")
	p.SetServices(served)
	return p, err
}
