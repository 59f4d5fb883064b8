package ovndb

import (
	"context"
	"encoding/json"
	"sync"

	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
)

// The leading controller changes one row of NB after it has changed what agents have to read. Agents have the server
// announce the changes of this row, so an idle agent does not have to ask. It is the only row that they watch. Its
// table rarely changes: for each change in a table, the server checks the conditions of everyone who watches its rows.

// NewsKey is the key of that row: an address set without addresses, which no ACL refers to. ovn-northd computes nothing
// again when its external_ids change.
var NewsKey = rowKey("news", "", nil, 0)

// OnNews has news called when a controller has announced something, and when that may have happened unnoticed: at the
// beginning and after each new connection. news must not block. It is for a database without copied tables.
func (d *DB) OnNews(news func()) {
	r := d.link.(*remote)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.news = func() {
		d.probed.Store(nil) // the database may be another one: the next read asks for its owner, too
		news()
	}
	r.beginWatch()
}

// HasNews reports whether the server announces news now. Otherwise an agent has to ask: the connection is new, or no
// controller that announces news has led yet.
func (d *DB) HasNews() bool {
	c, _ := d.link.(*remote).current()
	if c == nil {
		return false
	}
	c.news.mu.Lock()
	defer c.news.mu.Unlock()
	return c.news.exists
}

// newsRow is what a connection knows of the row.
type newsRow struct {
	mu        sync.Mutex
	news      func() // nil: the server does not announce its changes
	announced bool   // a change was announced
	exists    bool
}

// newsUpdate is the answer to the request and an announcement (ovsdb-server(7), monitor_cond and update2). With the
// condition on the row's key, a row in it is the row.
type newsUpdate map[string]map[string]struct {
	Initial, Insert, Modify, Delete json.RawMessage
}

// updated notes a change of the row.
func (n *newsRow) updated(args []json.RawMessage) {
	var update newsUpdate
	if len(args) != 2 || json.Unmarshal(args[1], &update) != nil {
		return
	}
	n.mu.Lock()
	news := n.news
	n.announced = true
	n.take(update)
	n.mu.Unlock()
	if news != nil {
		news()
	}
}

func (n *newsRow) take(update newsUpdate) {
	for _, row := range update[nb.AddressSetTable] {
		n.exists = row.Initial != nil || row.Insert != nil || row.Modify != nil
	}
}

// beginWatch asks the server of the connection to announce changes of the row. The caller has the lock.
func (r *remote) beginWatch() {
	if c, news := r.conn, r.news; c != nil && news != nil {
		r.done.Go(func() {
			if err := c.watchNews(r.ctx, r.endpoints.database, news); err != nil && r.ctx.Err() == nil {
				r.log.Debug("the server announces no news", "endpoint", c.endpoint, "err", err)
			}
		})
	}
}

// watchNews asks the server to announce changes of the row. An announced state is newer than the one in the answer.
func (c *conn) watchNews(ctx context.Context, database string, news func()) error {
	ctx, cancel := context.WithTimeout(ctx, defaultPatience)
	defer cancel()
	c.news.mu.Lock()
	c.news.news = news
	c.news.mu.Unlock()
	defer news()
	var now newsUpdate
	err := c.rpc.CallWithContext(ctx, "monitor_cond", []any{database, "news", map[string]any{
		nb.AddressSetTable: []any{map[string]any{
			"columns": []string{"external_ids"}, "where": byUUID(NewsKey),
		}},
	}}, &now)
	if err != nil {
		return err
	}
	c.news.mu.Lock()
	defer c.news.mu.Unlock()
	if !c.news.announced {
		c.news.take(now)
	}
	return nil
}
