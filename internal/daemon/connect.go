package daemon

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"time"

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
	c, err := nbConfig(cfg, cluster != nil, log)
	if err != nil {
		return nil, err
	}
	c.Cluster = cluster
	return ovndb.Open(c)
}

// nbConfig says how to reach NB. waits tells that the files of the certificate may come later.
func nbConfig(cfg conf.NB, waits bool, log *slog.Logger) (ovndb.Config, error) {
	c := ovndb.Config{Name: nbName, Endpoints: cfg.Endpoints, Certificate: cfg.Certificate, LeaderOnly: true, Log: log}
	var err error
	if c.Model, err = nb.FullDatabaseModel(); err != nil {
		return c, err
	}
	if cfg.CACert != "" {
		c.TLS, err = ovndb.TLS(ovndb.TLSConfig{
			Certificate: cfg.Certificate, PrivateKey: cfg.PrivateKey, CACert: cfg.CACert,
			ServerNames: cfg.ServerNames, Endpoints: cfg.Endpoints, Later: waits, Log: log,
		})
		if err != nil {
			return c, fmt.Errorf("--nb-certificate, --nb-private-key, --nb-ca-cert: %w", err)
		}
	}
	if cfg.Members != "" {
		list, err := members.Read(cfg.Members)
		if err != nil {
			return c, fmt.Errorf("--nb-members: %w", err)
		}
		c.Endpoints = list.Endpoints(members.NBPort)
	}
	return c, nil
}

// nbName is NB's name in logs and errors.
const nbName = "NB"

// relayPatience is the time in which a relay must reach NB. It is shorter than the default --timeout of
// `kubectl multinet`, so that the reason reaches the operator.
const relayPatience = 8 * time.Second

// RelayNB passes a client's reads from in to NB, and the answers to out: see [ovndb.Relay].
func RelayNB(ctx context.Context, cfg conf.NB, in io.Reader, out io.Writer) error {
	c, err := nbConfig(cfg, false, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	c.Patience = relayPatience
	return ovndb.Relay(ctx, c, in, out)
}

// ReadNB opens NB for reading by a relay, which dial connects to. name is the relay's, for errors.
func ReadNB(name string, dial func(ctx context.Context, endpoint string) (net.Conn, error)) (*ovndb.DB, error) {
	rows, err := nb.FullDatabaseModel()
	if err != nil {
		return nil, err
	}
	return ovndb.Open(ovndb.Config{Name: nbName, Endpoints: []string{name}, Dial: dial, Model: rows,
		Log: slog.New(slog.DiscardHandler)})
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
