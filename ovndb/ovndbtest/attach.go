package ovndbtest

import "testing"

// AttachNB is a server with OVN's Northbound database that someone else started, to read and write it by its own
// connection.
func AttachNB(t testing.TB, socket string) *Server {
	return &Server{Socket: socket, t: t, database: "OVN_Northbound"}
}
