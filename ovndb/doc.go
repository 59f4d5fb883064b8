// Package ovndb owns the access to OVN's Northbound database and to a node's OVS database: the generated row models,
// the connection, guarded operations and row keys. It may know neither pods nor networks.
package ovndb
