package daemon

import (
	"log/slog"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/internal/program"
)

// NBFlags adds the flags for OVN's Northbound database.
func NBFlags(flags *pflag.FlagSet, n *conf.NB) {
	flags.StringSliceVar(&n.Endpoints, "nb-endpoints", nil,
		"OVN's Northbound database: tcp:HOST:6641, ssl:A:6641,ssl:B:6641 or unix:PATH")
	flags.StringVar(&n.Members, "nb-members", "",
		"in place of --nb-endpoints: folder of the ConfigMap that lists the nodes with OVN's databases")
	flags.StringVar(&n.Certificate, "nb-certificate", "", "client certificate for ssl endpoints (PEM)")
	flags.StringVar(&n.PrivateKey, "nb-private-key", "", "private key of the client certificate (PEM)")
	flags.StringVar(&n.CACert, "nb-ca-cert", "",
		"certificate of the authority that signed the server's certificate (PEM)")
	flags.StringSliceVar(&n.ServerNames, "nb-server-name", nil,
		"the server's certificate must have one of these names; empty: the host of an ssl endpoint, if the certificate "+
			"names a host")
}

// SourceFlags adds the flags for the source of pods and networks.
func SourceFlags(flags *pflag.FlagSet, kubeconfig, manifests *string) {
	flags.StringVar(kubeconfig, "kubeconfig", "",
		"kubeconfig file; with neither this flag nor --manifests, the cluster that the process runs in")
	flags.StringVar(manifests, "manifests", "",
		"folder with YAML manifests of Pods and NetworkAttachmentDefinitions, instead of a cluster")
}

// ClusterFlag adds the flag for the cluster identity.
func ClusterFlag(flags *pflag.FlagSet, id *string) {
	flags.StringVar(id, "cluster-id", "",
		"identity of this cluster, which owns rows in NB; empty: the UID of namespace kube-system, or the content of the "+
			"file .cluster-id in the folder of --manifests")
}

// IsolationFlags adds the flags that say which NADs pods may use. Agents and controllers must have the same values: a
// controller serves the policies of a namespace only on networks that its pods may use.
func IsolationFlags(flags *pflag.FlagSet, isolated *bool, global *[]string) {
	flags.BoolVar(isolated, "namespace-isolation", true,
		"pods may use the NetworkAttachmentDefinitions of their own namespace only, and those of "+
			"--global-namespaces; false: those of all namespaces")
	flags.StringSliceVar(global, "global-namespaces", []string{corev1.NamespaceDefault},
		"namespaces whose NetworkAttachmentDefinitions are for all pods, with --namespace-isolation; empty: none")
}

// SettleIsolation clears the default of --global-namespaces, which is for isolation alone.
func SettleIsolation(flags *pflag.FlagSet, isolated bool, global *[]string) {
	if !isolated && !flags.Changed("global-namespaces") {
		*global = nil
	}
}

// CommonFlags adds the flags for the log and the metrics.
func CommonFlags(flags *pflag.FlagSet, level, metrics *string) {
	program.LogFlag(flags, level)
	flags.StringVar(metrics, "metrics-address", "", "HOST:PORT or unix:PATH to serve Prometheus metrics on; empty: none")
}

// Logger returns the program's logger. The log of client-go goes to the same logger.
func Logger(level string) *slog.Logger {
	log := program.Logger(level)
	klog.SetSlogLogger(log)
	return log
}
