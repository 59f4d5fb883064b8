package ovnrun

import (
	"context"
	"encoding/pem"
	"maps"
	"os"

	"github.com/ovn-multinet/ovn-multinet/internal/unixctl"
)

// trust has the authorities whose certificates a server accepts.
type trust struct {
	known map[string]bool // their certificates; nil: not read yet
	due   bool            // an authority is gone, and the clients are still connected
}

// keepTrust ends the connections of all clients when an authority is trusted no more: a server looks at a client's
// certificate when the client connects, and never again. It does so in the pass after that, when the server has read
// the file.
func (d *Database) keepTrust(ctx context.Context) error {
	t := &d.trusted
	if t.due {
		if err := d.disconnect(ctx); err != nil {
			return err
		}
		t.due = false
	}
	text, err := os.ReadFile(d.TLS.CACert)
	if err != nil {
		return err
	}
	now := map[string]bool{}
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		now[string(block.Bytes)] = true
	}
	for known := range t.known {
		t.due = t.due || !now[known]
	}
	if !maps.Equal(t.known, now) {
		d.Log.Info("authorities whose certificates are trusted", "db", d.Name, "number", len(now))
	}
	t.known = now
	return nil
}

// disconnect ends the connections of all clients; they connect again (ovsdb-server(1), ovsdb-server/reconnect).
func (d *Database) disconnect(ctx context.Context) error {
	_, err := unixctl.Call(ctx, d.control(), "ovsdb-server/reconnect")
	if err == nil {
		d.Log.Info("an authority is trusted no more: all clients connect again", "db", d.Name)
	}
	return err
}
