package ovndb

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/ovn-kubernetes/libovsdb/client"
	"github.com/ovn-kubernetes/libovsdb/ovsdb"
)

// copied is a link with a copy of some tables, which libovsdb keeps.
type copied struct {
	client  client.Client
	monitor []client.MonitorOption

	mu      sync.Mutex
	session context.Context // the context of transactions; it ends with the connection
	end     context.CancelFunc
}

func newCopied(cfg Config, patience time.Duration) (*copied, error) {
	log := logr.FromSlogHandler(cfg.Log.With("db", cfg.Name).Handler())
	opts := []client.Option{client.WithLogger(&log), client.WithReconnect(patience, connectPauses())}
	if cfg.TLS != nil {
		opts = append(opts, client.WithTLSConfig(cfg.TLS))
	}
	for _, e := range cfg.Endpoints {
		opts = append(opts, client.WithEndpoint(e))
	}
	c, err := client.NewOVSDBClient(cfg.Model, opts...)
	if err != nil {
		return nil, err
	}
	l := &copied{client: c, monitor: cfg.Monitor}
	l.session, l.end = context.WithCancel(context.Background())
	return l, nil
}

func (l *copied) connect(ctx context.Context, check func(*ovsdb.DatabaseSchema) error) error {
	if err := l.client.Connect(ctx); err != nil {
		return err
	}
	schema := l.client.Schema() // libovsdb replaces it at each reconnect without a lock
	err := check(&schema)
	if err == nil {
		_, err = l.client.Monitor(ctx, l.client.NewMonitor(l.monitor...))
	}
	if err != nil && !errors.Is(err, client.ErrNotConnected) {
		// The server may still answer, and then sends updates that libovsdb does not expect: v0.8.1 panics at them. The
		// next attempt needs a connection without this monitor.
		l.client.Disconnect()
	}
	return err
}

// connected: libovsdb's Connected stays true after the server has closed the connection; the endpoint does not.
func (l *copied) connected() bool { return l.client.Connected() && l.client.CurrentEndpoint() != "" }

func (l *copied) endpoint() string { return l.client.CurrentEndpoint() }

func (l *copied) transact(ctx context.Context, ops []ovsdb.Operation) ([]ovsdb.OperationResult, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	l.mu.Lock()
	defer context.AfterFunc(l.session, cancel)()
	l.mu.Unlock()
	return l.client.Transact(ctx, ops...)
}

// disconnect: libovsdb cannot reconnect while a transaction waits for its answer. It has a probe of its own
// (WithInactivityCheck), but v0.8.1 panics when a connection ends while an answer arrives.
func (l *copied) disconnect() {
	l.mu.Lock() // later transactions use the next connection
	defer l.mu.Unlock()
	l.end()
	l.client.Disconnect()
	l.session, l.end = context.WithCancel(context.Background())
}

func (l *copied) close() {
	l.mu.Lock()
	l.end()
	l.mu.Unlock()
	l.client.Close()
}
