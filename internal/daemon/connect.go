package daemon

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"

	nadclient "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/client/clientset/versioned"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/internal/program"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/members"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
)

// OpenNB begins to connect to OVN's Northbound database. cluster returns the cluster identity. If cluster is nil, the
// connection is for reading only, for a command. Only a daemon waits for the files of its certificate: on a new cluster
// its Secret may come after its pod, and a daemon that ended would wait for ever longer pauses of kubelet.
func OpenNB(cfg conf.NB, cluster func(ctx context.Context) (string, error), log *slog.Logger) (*ovndb.DB, error) {
	dbModel, err := nb.FullDatabaseModel()
	if err != nil {
		return nil, err
	}
	var tlsConfig *tls.Config
	if cfg.CACert != "" {
		tlsConfig, err = ovndb.TLS(ovndb.TLSConfig{
			Certificate: cfg.Certificate, PrivateKey: cfg.PrivateKey, CACert: cfg.CACert,
			ServerNames: cfg.ServerNames, Endpoints: cfg.Endpoints, Later: cluster != nil, Log: log,
		})
		if err != nil {
			return nil, fmt.Errorf("--nb-certificate, --nb-private-key, --nb-ca-cert: %w", err)
		}
	}
	endpoints := cfg.Endpoints
	if cfg.Members != "" {
		list, err := members.Read(cfg.Members)
		if err != nil {
			return nil, fmt.Errorf("--nb-members: %w", err)
		}
		endpoints = list.Endpoints(members.NBPort)
	}
	return ovndb.Open(ovndb.Config{
		Name: "NB", Endpoints: endpoints, TLS: tlsConfig, Certificate: cfg.Certificate,
		Model: dbModel, LeaderOnly: true, Cluster: cluster, Log: log,
	})
}

// FollowNB has the connection use the members of NB that the folder of --nb-members lists, until the end of ctx.
// Without the flag it returns at once.
func FollowNB(ctx context.Context, cfg conf.NB, db *ovndb.DB, log *slog.Logger) {
	if cfg.Members == "" {
		return
	}
	members.Follow(ctx, cfg.Members, log, func(l members.List) {
		endpoints := l.Endpoints(members.NBPort)
		log.Info("the members of NB", "endpoints", endpoints)
		db.SetEndpoints(endpoints)
	})
}

// Limits for requests to the API server: per second, and at once. They are kubelet's own defaults. With client-go's
// lower defaults, pods that start together on one node would wait for their network-status.
const (
	apiQPS   = 50
	apiBurst = 100
)

// Kubernetes connects to the API server by a kubeconfig file. Without a file, the process must run in a pod.
func Kubernetes(kubeconfig string) (kubernetes.Interface, nadclient.Interface, error) {
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, nil, fmt.Errorf("--kubeconfig: %w", err)
	}
	cfg.QPS, cfg.Burst, cfg.UserAgent = apiQPS, apiBurst, program.UserAgent()
	core, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, nil, err
	}
	nads, err := nadclient.NewForConfig(cfg)
	return core, nads, err
}
