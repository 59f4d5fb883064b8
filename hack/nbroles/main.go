// Command nbroles owns the optional role of agents in OVN's Northbound database (ovsdb-server(7), section 4.1.2, and
// the table RBAC_Role):
//
//	nbroles schema < ovn-nb.ovsschema > ovn-nb-roles.ovsschema
//	ovsdb-client transact unix:/run/ovn/ovnnb_db.sock "$(nbroles transact pssl:6641:192.0.2.1)"
//
// The first command adds the tables of roles to a schema. The second prints the transaction that fills these tables and
// makes a listener with the role. docs/operations.md says what the role prevents and what it still permits.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
)

// Role is the name of the agents' role.
const Role = "ovn-multinet-agent"

// object is a JSON object.
type object = map[string]any

func main() {
	if err := run(os.Args[1:], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "nbroles:", err)
		os.Exit(1)
	}
}

func run(args []string, in io.Reader, out io.Writer) error {
	var result any
	switch {
	case len(args) == 1 && args[0] == "schema":
		var schema object
		if err := json.NewDecoder(in).Decode(&schema); err != nil {
			return fmt.Errorf("standard input is not a schema: %w", err)
		}
		if err := addRoles(schema); err != nil {
			return err
		}
		result = schema
	case len(args) == 2 && args[0] == "transact":
		params := []any{"OVN_Northbound"}
		for _, op := range Operations(args[1]) {
			params = append(params, op)
		}
		result = params
	default:
		return errors.New("usage: nbroles schema < SCHEMA, or nbroles transact TARGET, where TARGET is a Connection's target")
	}
	return json.NewEncoder(out).Encode(result)
}

// addRoles adds the tables and the column of roles, as in the schema of the Southbound database.
func addRoles(schema object) error {
	tables, _ := schema["tables"].(object)
	connection, _ := tables["Connection"].(object)
	columns, _ := connection["columns"].(object)
	if schema["name"] != "OVN_Northbound" || columns == nil {
		return errors.New("the schema is not that of OVN_Northbound")
	}
	many := func(key, value any) object {
		t := object{"key": key, "min": 0, "max": "unlimited"}
		if value != nil {
			t["value"] = value
		}
		return object{"type": t}
	}
	columns["role"] = object{"type": "string"}
	tables["RBAC_Role"] = object{"isRoot": true, "columns": object{
		"name":        object{"type": "string"},
		"permissions": many("string", object{"type": "uuid", "refTable": "RBAC_Permission", "refType": "weak"}),
	}}
	tables["RBAC_Permission"] = object{"isRoot": true, "columns": object{
		"table": object{"type": "string"}, "authorization": many("string", nil),
		"insert_delete": object{"type": "boolean"}, "update": many("string", nil),
	}}
	delete(schema, "cksum") // of the unchanged file
	return nil
}

// permission is what the role may write in a table.
type permission struct {
	table        string
	own          bool // only rows that name the client's node
	insertDelete bool
	update       []string
}

// permissions of an agent. All other tables are read-only.
var permissions = []permission{
	{"Logical_Switch_Port", true, true, []string{"addresses", "external_ids", "options", "port_security"}},
	{"Copp", true, true, []string{"external_ids", "name"}},
	{"HA_Chassis", true, false, []string{"priority"}},
	// A network's row names no node: an agent that may link its port may unlink any port.
	{"Logical_Switch", false, false, []string{"ports"}},
}

// Operations returns the transaction that replaces the role and makes a listener with the role. The listener must be
// new, because ovsdb-server 3.1 gives no role to an existing one. If the target has a listener, the transaction fails.
func Operations(target string) []object {
	ops := []object{
		{"op": "delete", "table": "RBAC_Role", "where": []any{[]any{"name", "==", Role}}},
		{"op": "delete", "table": "RBAC_Permission", "where": []any{}},
	}
	var named []any
	for _, p := range permissions {
		authorization := "" // everyone
		if p.own {
			authorization = "external_ids:ovn-multinet/node"
		}
		name := "p" + p.table
		ops = append(ops, object{"op": "insert", "table": "RBAC_Permission", "uuid-name": name, "row": object{
			"table": p.table, "authorization": authorization, "insert_delete": p.insertDelete,
			"update": []any{"set", p.update}}})
		named = append(named, []any{p.table, []any{"named-uuid", name}})
	}
	return append(ops,
		object{"op": "insert", "table": "RBAC_Role", "row": object{
			"name": Role, "permissions": []any{"map", named}}},
		object{"op": "insert", "table": "Connection", "uuid-name": "listener", "row": object{
			"target": target, "role": Role}},
		object{"op": "mutate", "table": "NB_Global", "where": []any{}, "mutations": []any{
			[]any{"connections", "insert", []any{"set", []any{[]any{"named-uuid", "listener"}}}}}})
}
