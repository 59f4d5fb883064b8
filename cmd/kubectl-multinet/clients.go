package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"

	nadclient "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/client/clientset/versioned"
	"github.com/spf13/pflag"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/ovn-multinet/ovn-multinet/internal/program"
	"github.com/ovn-multinet/ovn-multinet/source"
)

// installed is the name of the namespace and of the ConfigMap in install.yaml.
const installed = "ovn-multinet"

// clientOptions are the options that kubectl has too.
type clientOptions struct{ kubeconfig, context, namespace string }

func (c *clientOptions) flags(flags *pflag.FlagSet) {
	c.clusterFlags(flags)
	flags.StringVarP(&c.namespace, "namespace", "n", "", "namespace of names without one; empty: the context's")
}

// clusterFlags adds the options that choose a cluster.
func (c *clientOptions) clusterFlags(flags *pflag.FlagSet) {
	flags.StringVar(&c.kubeconfig, "kubeconfig", "", "kubeconfig file; empty: as kubectl finds it")
	flags.StringVar(&c.context, "context", "", "context of the kubeconfig")
}

var errNoCluster = errors.New("no cluster: give --kubeconfig")

// load reads the kubeconfig as kubectl does.
func (c *clientOptions) load() (config *rest.Config, namespace string, err error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = c.kubeconfig
	overrides := &clientcmd.ConfigOverrides{CurrentContext: c.context}
	overrides.Context.Namespace = c.namespace
	deferred := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides)
	config, err = deferred.ClientConfig()
	if err == nil {
		config.UserAgent = program.UserAgent()
		namespace, _, err = deferred.Namespace()
	}
	if clientcmd.IsEmptyConfig(err) {
		return nil, "", errNoCluster
	}
	if err != nil {
		return nil, "", fmt.Errorf("--kubeconfig: %w", err)
	}
	return config, namespace, nil
}

// connect returns the clients of the cluster, and the namespace of names without one.
func (c *clientOptions) connect() (k *cluster, namespace string, err error) {
	config, namespace, err := c.load()
	if err != nil {
		return nil, "", err
	}
	core, err := kubernetes.NewForConfig(config)
	return &cluster{config, core}, namespace, err
}

// cluster returns the cluster as a source of objects, and its clients. If the client may not read NB, the source has
// the objects of one namespace.
func (o *options) cluster(
	ctx context.Context, log *slog.Logger,
) (from objects, k *cluster, namespace string, err error) {
	k, namespace, err = o.clients.connect()
	if err != nil {
		if errors.Is(err, errNoCluster) {
			err = fmt.Errorf("%w, or --manifests where there is none", err)
		}
		return nil, nil, "", err
	}
	api, err := nadclient.NewForConfig(k.config)
	if err != nil {
		return nil, nil, "", err
	}
	kube, err := source.NewKube(k.core, api, "", source.Changes{}, log)
	if err != nil {
		return nil, nil, "", err
	}
	if len(o.nb.Endpoints) > 0 {
		return kube, k, namespace, nil
	}
	may, err := k.mayReadNB(ctx)
	if err == nil && !may {
		o.states = k
		kube.Only(namespace)
		_, err = fmt.Fprintf(cmp.Or[io.Writer](o.notes, os.Stderr), "this is what annotations and states in namespace %s "+
			"say: to read OVN's Northbound database you need "+
			"the right to create pods/exec in the namespace %s\n", namespace, installed)
	}
	return kube, k, namespace, err
}
