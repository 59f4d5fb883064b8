package ovndb

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/cenkalti/rpc2"
	"github.com/cenkalti/rpc2/jsonrpc"
)

// conn is one connection to one server.
type conn struct {
	endpoint string
	rpc      *rpc2.Client
	raft     bool          // the server is a member of a raft; known if the connection is for a leader only
	leading  chan struct{} // closed when the server leads, or has no raft
	news     newsRow

	mu        sync.Mutex
	announced bool // the server has told that its state changed
	led       bool
}

// open connects to an endpoint. If leaderOnly is true, open waits until the server leads its raft, or ctx ends, and the
// connection ends when the server does not lead any more. Without raft there is nothing to wait for.
func (p *endpoints) open(ctx context.Context, endpoint string, leaderOnly bool) (*conn, error) {
	stream, err := p.dial(ctx, endpoint)
	if t, ok := stream.(*tls.Conn); ok {
		err = t.HandshakeContext(ctx)
	}
	if err != nil {
		if stream != nil {
			_ = stream.Close()
		}
		return nil, fmt.Errorf("%s: %w", endpoint, err)
	}
	c := &conn{endpoint: endpoint, rpc: rpc2.NewClientWithCodec(jsonrpc.NewJSONCodec(&timed{stream})),
		leading: make(chan struct{})}
	c.rpc.SetBlocking(true) // requests of the server are answered in their order
	c.rpc.Handle("echo", func(_ *rpc2.Client, args []any, reply *[]any) error {
		*reply = args
		return nil
	})
	c.rpc.Handle("update", func(_ *rpc2.Client, args []json.RawMessage, _ *[]any) error { return p.updated(c, args) })
	c.rpc.Handle("update2", func(_ *rpc2.Client, args []json.RawMessage, _ *[]any) error {
		c.news.updated(args)
		return nil
	})
	go c.rpc.Run()
	if leaderOnly {
		err = p.awaitLeader(ctx, c)
	} else {
		err = c.rpc.CallWithContext(ctx, "echo", []any{}, &[]any{})
	}
	if err != nil {
		_ = c.rpc.Close()
		return nil, fmt.Errorf("%s: %w", endpoint, err)
	}
	return c, nil
}

// timed is a connection whose writes end when the server does not read for a long time.
type timed struct{ net.Conn }

func (t *timed) Write(b []byte) (int, error) {
	if err := t.SetWriteDeadline(time.Now().Add(defaultPatience)); err != nil {
		return 0, err
	}
	return t.Conn.Write(b)
}

// serverTables is the row of a database in _Server (ovsdb-server(5)), as updates of a monitor tell it (RFC 7047,
// section 4.1.6).
type serverTables struct {
	Database map[string]struct {
		New *struct {
			Name, Model       string
			Leader, Connected bool
		}
	}
}

// leads reports whether the server leads the database's raft, or the database has no raft.
func (t *serverTables) leads(database string) (leads, raft, known bool) {
	for _, row := range t.Database {
		if row.New != nil && row.New.Name == database {
			raft = row.New.Model == "clustered"
			return !raft || row.New.Leader && row.New.Connected, raft, true
		}
	}
	return false, false, false
}

// awaitLeader asks the server whether it leads, and to tell when that changes. Then it waits until the server leads:
// during an election no node has to ask again. The other columns of the row, such as the index of the raft's log,
// change with each commit.
func (p *endpoints) awaitLeader(ctx context.Context, c *conn) error {
	var now serverTables
	request := []any{"_Server", nil, map[string]any{"Database": map[string]any{
		"columns": []string{"name", "model", "leader", "connected"}}}}
	if err := c.rpc.CallWithContext(ctx, "monitor", request, &now); err != nil {
		return err
	}
	leads, raft, known := now.leads(p.database)
	if !known {
		return fmt.Errorf("it does not serve database %s", p.database)
	}
	c.raft = raft
	c.note(leads, false)
	select {
	case <-c.leading:
		return nil
	case <-c.rpc.DisconnectNotify():
		return errors.New("the connection ended")
	case <-ctx.Done():
		return errors.New("it is not the raft's leader")
	}
}

// updated notes a change of the server's state.
func (p *endpoints) updated(c *conn, args []json.RawMessage) error {
	var now serverTables
	if len(args) != 2 || json.Unmarshal(args[1], &now) != nil {
		return nil // not an update of this monitor
	}
	if leads, _, known := now.leads(p.database); known {
		c.note(leads, true)
	}
	return nil
}

// note notes whether the server leads. When it does not lead any more, the connection ends. An announced state is newer
// than the answer to the request for the monitor, in whichever order the two are noted.
func (c *conn) note(leads, announced bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.announced && !announced {
		return
	}
	c.announced = c.announced || announced
	switch {
	case leads && !c.led:
		c.led = true
		close(c.leading)
	case !leads && c.led:
		_ = c.rpc.Close()
	}
}
