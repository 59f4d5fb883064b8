package ovnrun

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"time"
)

// probe is the time after which ovn-controller probes a silent server, in ms, and serverProbe the time after which a
// server probes a silent client. With OVN's default of 5 s, all clients connect again whenever a server is busy. A
// server waits longer than its clients, which send something once a minute: so it never has to probe.
const (
	probe       = 60000
	serverProbe = 90000
)

// listen has the servers of all members accept clients by TLS at the port: the row of a connection is in the database
// itself.
func (d *Database) listen(ctx context.Context) error {
	target := "pssl:" + d.Port
	found, err := d.transact(ctx,
		op{"op": "select", "table": "Connection", "where": where("target", target), "columns": []string{"_uuid"}},
		op{"op": "select", "table": d.Global, "where": []any{}, "columns": []string{"_uuid"}})
	if err != nil {
		return err
	}
	if len(found[0].Rows) > 0 && len(found[1].Rows) > 0 {
		return nil
	}
	ops := []any{}
	if len(found[1].Rows) == 0 { // northd inserts the row too, and asserts that it finds none
		ops = append(ops,
			op{"op": "wait", "timeout": 0, "table": d.Global, "where": []any{}, "columns": []string{"_uuid"},
				"until": "==", "rows": []any{}},
			op{"op": "insert", "table": d.Global, "row": map[string]any{}})
	}
	ops = append(ops,
		op{"op": "insert", "table": "Connection", "uuid-name": "c",
			"row": map[string]any{"target": target, "inactivity_probe": serverProbe}},
		op{"op": "mutate", "table": d.Global, "where": []any{},
			"mutations": []any{[]any{"connections", "insert", []any{"named-uuid", "c"}}}})
	_, err = d.transact(ctx, ops...)
	return err
}

// keepTunnelKeys has OVN keep its large range of tunnel keys. If one chassis lists the encapsulation VXLAN,
// northd gives the whole cluster 4,095 keys instead of 16,711,680, and 2,047 ports on a network; each node's
// certificate may write such a row. The chart's nodes use Geneve. OVN 25.03 has an option against it in
// NB_Global (ovn-nb(5), vxlan_mode); older versions do not read it. A value that an operator has set stays.
func (d *Database) keepTunnelKeys(ctx context.Context) error {
	if d.Kind != NB {
		return nil
	}
	// A key that is there keeps its value (RFC 7047, section 5.1, <mutator> insert).
	_, err := d.transact(ctx, op{"op": "mutate", "table": d.Global, "where": []any{}, "mutations": []any{
		[]any{"options", "insert", []any{"map", [][]string{{"vxlan_mode", "false"}}}}}})
	return err
}

func where(column string, value any) []any { return []any{[]any{column, "==", value}} }

// op is an operation (RFC 7047, section 5.2).
type op map[string]any

// result is the result of one operation (RFC 7047, section 5.2).
type result struct {
	Rows           []json.RawMessage
	Error, Details string
}

// transact runs a transaction on this member.
func (d *Database) transact(ctx context.Context, ops ...any) ([]result, error) {
	return transact(ctx, d.Socket(), d.Database, ops...)
}

// transact runs a transaction on a server of this node. Package ovndb is not used: it keeps a connection, and asserts
// the owner of NB, which is not known yet.
func transact(ctx context.Context, socket, database string, ops ...any) ([]result, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Now()) })()
	request := map[string]any{"id": 0, "method": "transact", "params": append([]any{database}, ops...)}
	if err := json.NewEncoder(conn).Encode(request); err != nil {
		return nil, err
	}
	var answer struct {
		Result []*result
		Error  any
	}
	if err := json.NewDecoder(conn).Decode(&answer); err != nil {
		return nil, fmt.Errorf("transaction: %w", err)
	}
	if answer.Error != nil {
		return nil, fmt.Errorf("transaction: %v", answer.Error)
	}
	var results []result
	for _, r := range answer.Result {
		if r == nil {
			break // after an operation that failed
		}
		if r.Error != "" {
			return nil, fmt.Errorf("transaction: %s: %s", r.Error, r.Details)
		}
		results = append(results, *r)
	}
	return results, nil
}

// convert upgrades the database to the schema of this image. A database with a newer schema stays as it is: another
// member has a newer image.
func (d *Database) convert(ctx context.Context) error {
	server := "unix:" + d.Socket()
	have, err := output(ctx, "ovsdb-client", "get-schema-version", server, d.Database)
	if err != nil {
		return err
	}
	image, err := output(ctx, "ovsdb-tool", "schema-version", d.Schema)
	if err != nil || !older(have, image) {
		return err
	}
	d.Log.Info("converting the database to a newer schema", "db", d.Name,
		"from", strings.TrimSpace(have), "to", strings.TrimSpace(image))
	return tool(ctx, "ovsdb-client", "convert", server, d.Schema)
}

// older compares versions of schemas, like 7.0.4.
func older(a, b string) bool {
	numbers := func(s string) (n [3]int) {
		_, _ = fmt.Sscanf(strings.TrimSpace(s), "%d.%d.%d", &n[0], &n[1], &n[2]) // the server refuses other forms
		return n
	}
	x, y := numbers(a), numbers(b)
	for i := range x {
		if x[i] != y[i] {
			return x[i] < y[i]
		}
	}
	return false
}
