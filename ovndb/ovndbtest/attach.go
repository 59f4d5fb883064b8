package ovndbtest

import "testing"

// AttachNB returns a Server for an ovsdb-server with OVN's Northbound database that the test has not started. It
// reads and writes the database over its own connections.
func AttachNB(t testing.TB, socket string) *Server {
	return &Server{Socket: socket, t: t, database: "OVN_Northbound"}
}

// AttachSB is AttachNB for OVN's Southbound database.
func AttachSB(t testing.TB, socket string) *Server {
	return &Server{Socket: socket, t: t, database: "OVN_Southbound"}
}
