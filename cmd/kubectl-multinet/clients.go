package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	nadclient "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/client/clientset/versioned"
	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/ovn-multinet/ovn-multinet/internal/program"
	"github.com/ovn-multinet/ovn-multinet/ovndb/members"
	"github.com/ovn-multinet/ovn-multinet/ovnrun/authority"
	"github.com/ovn-multinet/ovn-multinet/source"
)

// installed is the name of the namespace and of the ConfigMap in install.yaml.
const installed = "ovn-multinet"

// nbSecrets lists the Secrets with a TLS key for OVN's Northbound database: the controller's own Secret, and the Secret
// that all programs use together.
var nbSecrets = []string{"ovn-multinet-nb-controller", "ovn-multinet-nb"}

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

// cluster returns the cluster as a source of objects. If no NB endpoint was given, it also reads how to connect to NB.
func (o *options) cluster(ctx context.Context, log *slog.Logger) (from objects, namespace string, err error) {
	config, namespace, err := o.clients.load()
	if err != nil {
		if errors.Is(err, errNoCluster) {
			err = fmt.Errorf("%w, or --manifests where there is none", err)
		}
		return nil, "", err
	}
	core, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, "", err
	}
	api, err := nadclient.NewForConfig(config)
	if err != nil {
		return nil, "", err
	}
	if from, err = source.NewKube(core, api, "", source.Changes{}, log); err != nil {
		return nil, "", err
	}
	if len(o.nb.Endpoints) == 0 {
		err = o.findNB(ctx, core)
	}
	return from, namespace, err
}

// findNB reads the endpoints and certificates of NB from the ConfigMap and the Secret of ovn-multinet.
func (o *options) findNB(ctx context.Context, core kubernetes.Interface) error {
	hint := "give --nb-endpoints"
	configMap, err := core.CoreV1().ConfigMaps(installed).Get(ctx, installed, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("OVN's Northbound database: %w; %s", err, hint)
	}
	o.nb.Endpoints = words(configMap.Data["OVN_MULTINET_NB_ENDPOINTS"])
	nbFiles := nbSecret
	if configMap.Data["OVN_MULTINET_NB_MEMBERS"] != "" {
		nbFiles = operatorFiles
		if o.nb.Endpoints, err = nbMembers(ctx, core); err != nil {
			return fmt.Errorf("the nodes with OVN's Northbound database: %w; %s", err, hint)
		}
	}
	if len(o.nb.ServerNames) == 0 {
		o.nb.ServerNames = words(configMap.Data["OVN_MULTINET_NB_SERVER_NAME"])
	}
	if configMap.Data["OVN_MULTINET_NB_CA_CERT"] == "" {
		return nil
	}
	files, err := nbFiles(ctx, core)
	if err != nil {
		return fmt.Errorf("certificates of OVN's Northbound database: %w; "+
			"%s, --nb-certificate, --nb-private-key and --nb-ca-cert", err, hint)
	}
	dir, err := os.MkdirTemp("", "ovn-multinet-")
	if err != nil {
		return err
	}
	o.temporary = dir
	for name, path := range map[string]*string{
		"tls.crt": &o.nb.Certificate, "tls.key": &o.nb.PrivateKey, "ca.crt": &o.nb.CACert,
	} {
		*path = filepath.Join(dir, name)
		if err := os.WriteFile(*path, files[name], 0o600); err != nil {
			return err
		}
	}
	return nil
}

// nbSecret returns the first of the Secrets that exists and may be read. If there is none, it returns the error of the
// first Secret.
func nbSecret(ctx context.Context, core kubernetes.Interface) (map[string][]byte, error) {
	var first error
	for _, name := range nbSecrets {
		s, err := core.CoreV1().Secrets(installed).Get(ctx, name, metav1.GetOptions{})
		if err == nil {
			return s.Data, nil
		}
		if first == nil {
			first = err
		}
		if !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) {
			break
		}
	}
	return nil, first
}

// nbMembers returns the endpoints of the nodes that have NB, if the chart runs OVN.
func nbMembers(ctx context.Context, core kubernetes.Interface) ([]string, error) {
	configMap, err := core.CoreV1().ConfigMaps(installed).Get(ctx, members.ConfigMapName, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	list, err := members.Parse(configMap.Data[members.ListKey])
	if err == nil && len(list.Members) == 0 {
		err = errors.New("the controller has not chosen them yet")
	}
	return list.Endpoints(members.NBPort), err
}

// operatorFiles makes a certificate for this command by the key of the cluster's own authority.
func operatorFiles(ctx context.Context, core kubernetes.Interface) (map[string][]byte, error) {
	secret, err := core.CoreV1().Secrets(installed).Get(ctx, authority.SecretName, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return authority.OperatorFiles(secret.Data, time.Now())
}

// words splits a list at its commas. The result for "" is empty.
func words(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' })
}
