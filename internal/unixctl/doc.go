// Package unixctl owns the client of the control sockets of OVN's and Open vSwitch's daemons: the JSON-RPC of
// ovs-appctl(8). It knows no command.
package unixctl
