// Package daemon owns what the mains of agent and controller share: flags that the environment may set too, the
// log, the end by signal, the metrics endpoint and the connection to NB; it may hold nothing of their work.
package daemon

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	nadclient "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/client/clientset/versioned"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
)

// envPrefix begins the environment variable of every flag: --nb-endpoints is OVN_MULTINET_NB_ENDPOINTS.
const envPrefix = "OVN_MULTINET_"

// Main runs a command until it ends or SIGINT or SIGTERM ask it to, and returns the exit code.
func Main(cmd *cobra.Command) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	if cmd.Args == nil {
		cmd.Args = cobra.NoArgs
	}
	cmd.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error { return fromEnvironment(cmd.Flags()) }
	if err := cmd.ExecuteContext(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", cmd.Name(), err)
		return 1
	}
	return 0
}

// fromEnvironment sets the flags that the command line leaves to the environment.
func fromEnvironment(flags *pflag.FlagSet) error {
	var errs []error
	flags.VisitAll(func(f *pflag.Flag) {
		name := envPrefix + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
		value, given := os.LookupEnv(name)
		if !given || f.Changed {
			return
		}
		if err := flags.Set(f.Name, value); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
		}
	})
	return errors.Join(errs...)
}

// NBFlags adds the flags for OVN's Northbound database.
func NBFlags(flags *pflag.FlagSet, n *conf.NB) {
	flags.StringSliceVar(&n.Endpoints, "nb-endpoints", nil, "OVN's Northbound database: tcp:HOST:6641, ssl:A:6641,ssl:B:6641 or unix:PATH")
	flags.StringVar(&n.Certificate, "nb-certificate", "", "client certificate for ssl endpoints (PEM)")
	flags.StringVar(&n.PrivateKey, "nb-private-key", "", "its private key (PEM)")
	flags.StringVar(&n.CACert, "nb-ca-cert", "", "certificate of the authority that signed the server's (PEM)")
	flags.StringSliceVar(&n.ServerNames, "nb-server-name", nil, "names of which the server's certificate must have one; empty: the host of an ssl endpoint, if the certificate names a host")
}

// SourceFlags adds the flags for the source of pods and networks.
func SourceFlags(flags *pflag.FlagSet, kubeconfig, manifests *string) {
	flags.StringVar(kubeconfig, "kubeconfig", "", "kubeconfig file; with neither this nor --manifests, the cluster that the process runs in")
	flags.StringVar(manifests, "manifests", "", "folder with YAML manifests of Pods and NetworkAttachmentDefinitions, instead of a cluster")
}

// ClusterFlag adds the flag for the identity of the cluster.
func ClusterFlag(flags *pflag.FlagSet, id *string) {
	flags.StringVar(id, "cluster-id", "", "identity of this cluster, whose rows NB has; empty: the UID of namespace kube-system, or the file .cluster-id of --manifests")
}

// LogFlag adds the flag for the log.
func LogFlag(flags *pflag.FlagSet, level *string) {
	flags.StringVar(level, "log-level", "info", "one of "+strings.Join(conf.LogLevels, ", "))
}

// CommonFlags adds the flags for log and metrics.
func CommonFlags(flags *pflag.FlagSet, level, metrics *string) {
	LogFlag(flags, level)
	flags.StringVar(metrics, "metrics-address", "", "HOST:PORT to serve Prometheus metrics on; empty: none")
}

// Logger logs to standard error from the level on.
func Logger(level string) *slog.Logger {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		l = slog.LevelInfo // a valid one by now: conf has checked it
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: l, ReplaceAttr: shortAttr}))
	klog.SetSlogLogger(log) // what client-go has to say
	return log
}

// maxAttr bounds a value in the log, in bytes: a stack is the longest that there is.
const maxAttr = 8 << 10

// shortAttr bounds what tenants can have written into a log, in errors above all. The handler quotes line ends.
func shortAttr(_ []string, a slog.Attr) slog.Attr {
	text := ""
	switch value := a.Value.Any().(type) {
	case string:
		text = value
	case error:
		text = value.Error()
	}
	if len(text) > maxAttr {
		a.Value = slog.StringValue(text[:maxAttr] + "…")
	}
	return a
}

// OpenNB begins to connect to OVN's Northbound database. cluster tells the identity of this cluster; nil: nothing is written.
func OpenNB(cfg conf.NB, cluster func(ctx context.Context) (string, error), log *slog.Logger) (*ovndb.DB, error) {
	dbModel, err := nb.FullDatabaseModel()
	if err != nil {
		return nil, err
	}
	var tlsConfig *tls.Config
	if cfg.CACert != "" {
		tlsConfig, err = ovndb.TLS(ovndb.TLSConfig{
			Certificate: cfg.Certificate, PrivateKey: cfg.PrivateKey, CACert: cfg.CACert,
			ServerNames: cfg.ServerNames, Endpoints: cfg.Endpoints, Log: log,
		})
		if err != nil {
			return nil, fmt.Errorf("--nb-certificate, --nb-private-key, --nb-ca-cert: %w", err)
		}
	}
	return ovndb.Open(ovndb.Config{
		Name: "NB", Endpoints: cfg.Endpoints, TLS: tlsConfig, Certificate: cfg.Certificate,
		Model: dbModel, LeaderOnly: true, Cluster: cluster, Log: log,
	})
}

// Requests to the API server per second, and at once: kubelet's own limits. client-go's would have a node's herd of pods
// wait for their network-status.
const (
	apiQPS   = 50
	apiBurst = 100
)

// Kubernetes connects to the API: by a kubeconfig file, or as the pod that this process runs in.
func Kubernetes(kubeconfig string) (kubernetes.Interface, nadclient.Interface, error) {
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, nil, fmt.Errorf("--kubeconfig: %w", err)
	}
	cfg.QPS, cfg.Burst = apiQPS, apiBurst
	core, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, nil, err
	}
	nads, err := nadclient.NewForConfig(cfg)
	return core, nads, err
}

// Serve serves the metrics until the end of ctx; without an address, nothing. At /readyz it says whether the program is
// ready, and if not, why; nil: it always is.
func Serve(ctx context.Context, address string, registry *prometheus.Registry, ready func() error) error {
	if address == "" {
		return nil
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("--metrics-address: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if ready != nil {
			if err := ready(); err != nil {
				http.Error(w, err.Error(), http.StatusServiceUnavailable)
				return
			}
		}
		_, _ = io.WriteString(w, "ok\n")
	})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
