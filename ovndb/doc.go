// Package ovndb owns how OVN's Northbound database and a node's OVS database are spoken to: the generated row
// models, the connection, guarded operations and the keys of rows; it may know neither pods nor networks.
package ovndb
