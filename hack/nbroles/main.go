// Command nbroles owns the optional roles of agents in OVN's Northbound database (ovsdb-server(7), 4.1.2 and RBAC_Role):
//
//	nbroles schema < ovn-nb.ovsschema > ovn-nb-roles.ovsschema
//	ovsdb-client transact unix:/run/ovn/ovnnb_db.sock "$(nbroles transact pssl:6641:192.0.2.1)"
//
// The first adds the tables of roles to a schema, the second prints the transaction that fills them and makes a listener
// with the role. docs/operations.md says what the role closes, and what it leaves open.
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

// object is one of JSON.
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
		return errors.New("usage: nbroles schema < SCHEMA, or nbroles transact TARGET, the target of a row of the table Connection")
	}
	return json.NewEncoder(out).Encode(result)
}

// addRoles adds to the schema of NB what the schema of SB has for its roles.
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
	delete(schema, "cksum") // which is of the file as it was
	return nil
}

// permission is what the role may write in a table. own: only to rows that name the client's node.
type permission struct {
	table        string
	own          bool
	insertDelete bool
	update       []string
}

// permissions of an agent. A table that is missing here is read only.
var permissions = []permission{
	{"Logical_Switch_Port", true, true, []string{"addresses", "external_ids", "options", "port_security"}},
	{"Copp", true, true, []string{"external_ids", "name"}},
	{"HA_Chassis", true, false, []string{"priority"}},
	// The rows of networks name no node: whoever may link a port to one may unlink any.
	{"Logical_Switch", false, false, []string{"ports"}},
}

// Operations make the role what it ought to be, and a listener that has it. The listener must be new: ovsdb-server 3.1 does
// not give a role to one that is there. If there is one of the target, the transaction fails as a whole.
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
			"table": p.table, "authorization": authorization, "insert_delete": p.insertDelete, "update": []any{"set", p.update}}})
		named = append(named, []any{p.table, []any{"named-uuid", name}})
	}
	return append(ops,
		object{"op": "insert", "table": "RBAC_Role", "row": object{"name": Role, "permissions": []any{"map", named}}},
		object{"op": "insert", "table": "Connection", "uuid-name": "listener", "row": object{"target": target, "role": Role}},
		object{"op": "mutate", "table": "NB_Global", "where": []any{}, "mutations": []any{
			[]any{"connections", "insert", []any{"set", []any{[]any{"named-uuid", "listener"}}}}}})
}
