package ovndbtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"time"
)

// Op is one operation of a transaction, in the notation of RFC 7047, section 5.2.
type Op = map[string]any

// Result is the server's answer to one operation.
type Result struct {
	Rows    []map[string]any `json:"rows"`
	Count   int              `json:"count"`
	UUID    []string         `json:"uuid"`
	Error   string           `json:"error"`
	Details string           `json:"details"`
}

// UUID is the notation of a row key in operations.
func UUID(key string) any { return []any{"uuid", key} }

// Set is the notation of a set of atoms (see UUID) in operations.
func Set[T any](atoms ...T) any {
	members := make([]any, len(atoms))
	for i, a := range atoms {
		members[i] = a
	}
	return []any{"set", members}
}

// Map is the notation of a map of strings in operations.
func Map(m map[string]string) any {
	pairs := make([]any, 0, len(m))
	for k, v := range m {
		pairs = append(pairs, []any{k, v})
	}
	return []any{"map", pairs}
}

// callTimeout limits one request to a server that may hang.
const callTimeout = 2 * time.Minute

// call sends one request over its own connection.
func call(socket, method string, params []any, result any) error {
	conn, err := net.Dial("unix", socket)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(callTimeout)); err != nil {
		return err
	}
	request := map[string]any{"method": method, "params": params, "id": "ovndbtest"}
	if err := json.NewEncoder(conn).Encode(request); err != nil {
		return err
	}
	for dec := json.NewDecoder(conn); ; {
		var reply struct {
			ID     any             `json:"id"`
			Result json.RawMessage `json:"result"`
			Error  any             `json:"error"`
		}
		if err := dec.Decode(&reply); err != nil {
			return err
		}
		if reply.ID != "ovndbtest" { // the server's own echo request
			continue
		}
		if reply.Error != nil {
			return fmt.Errorf("%s: %v", method, reply.Error)
		}
		return json.Unmarshal(reply.Result, result)
	}
}

// transact runs a transaction. The error names the first operation that was refused.
func transact(socket, database string, ops []Op) ([]Result, error) {
	params := []any{database}
	for _, op := range ops {
		params = append(params, op)
	}
	var raw []*Result
	if err := call(socket, "transact", params, &raw); err != nil {
		return nil, err
	}
	results := make([]Result, 0, len(raw))
	for i, r := range raw {
		switch {
		case r == nil:
			return nil, fmt.Errorf("operation %d was not done", i)
		case r.Error != "":
			return nil, fmt.Errorf("operation %d: %s: %s", i, r.Error, r.Details)
		}
		results = append(results, *r)
	}
	if len(results) < len(ops) {
		return nil, errors.New("fewer results than operations")
	}
	return results, nil
}

// plain turns OVSDB's notation (RFC 7047, section 5.1) into plain Go: a set becomes a []any, a map of strings a
// map[string]string, and a row key a string.
func plain(v any) any {
	pair, ok := v.([]any)
	if !ok || len(pair) != 2 {
		return v
	}
	switch pair[0] {
	case "uuid", "named-uuid":
		return pair[1]
	case "set":
		members := pair[1].([]any)
		out := make([]any, len(members))
		for i, m := range members {
			out[i] = plain(m)
		}
		return out
	case "map":
		out := map[string]string{}
		for _, kv := range pair[1].([]any) {
			k, v := kv.([]any)[0], kv.([]any)[1]
			out[fmt.Sprint(plain(k))] = fmt.Sprint(plain(v))
		}
		return out
	}
	return v
}

// Strings reads a column of a dumped row as a set of strings. In OVSDB's notation, a set with one member is only that
// member.
func Strings(v any) []string {
	switch v := v.(type) {
	case string:
		return []string{v}
	case []any:
		out := make([]string, len(v))
		for i, m := range v {
			out[i] = fmt.Sprint(m)
		}
		return out
	}
	return nil
}
