package ovndbtest

import (
	"errors"
	"net"
	"path/filepath"
	"strings"
	"testing"
)

// StartNBTLS is StartNB with a remote over mutual TLS. It uses cert.pem, key.pem and ca.pem of a folder, and returns
// the endpoint of the remote.
func StartNBTLS(t testing.TB, dir string) (s *Server, endpoint string) {
	t.Helper()
	address := freePort(t)
	s = startNBTLS(t, dir, nbSchema, "pssl:"+address)
	return s, sslEndpoint(address)
}

// StartNBConnections is StartNBTLS with a schema of the test; "": OVN's own. Its remotes are the rows of the table
// Connection, which is empty at first. The test may insert a row with the target, which opens the endpoint.
func StartNBConnections(t testing.TB, dir, schema string) (s *Server, target, endpoint string) {
	t.Helper()
	address := freePort(t)
	if schema == "" {
		schema = nbSchema
	}
	s = startNBTLS(t, dir, schema, "db:OVN_Northbound,NB_Global,connections")
	s.Transact(t, Op{"op": "insert", "table": "NB_Global", "row": Op{}})
	return s, "pssl:" + address, sslEndpoint(address)
}

// sslEndpoint is the endpoint of a freePort.
func sslEndpoint(address string) string {
	port, ip, _ := strings.Cut(address, ":")
	return "ssl:" + net.JoinHostPort(ip, port)
}

func tlsArgs(dir, remote string) []string {
	return []string{
		"--remote=" + remote, "--certificate=" + filepath.Join(dir, "cert.pem"),
		"--private-key=" + filepath.Join(dir, "key.pem"), "--ca-cert=" + filepath.Join(dir, "ca.pem"),
	}
}

// freePort is a free PORT:127.0.0.1, in the form of ovsdb-server's remotes.
func freePort(t testing.TB) string {
	t.Helper()
	return here.freePort(t)
}

// freePort is a free PORT:IP of the place.
func (p Place) freePort(t testing.TB) (address string) {
	t.Helper()
	listen := func() error {
		free, err := net.Listen("tcp", net.JoinHostPort(p.IP, "0"))
		if err != nil {
			return err
		}
		_, port, err := net.SplitHostPort(free.Addr().String())
		address = port + ":" + p.IP
		return errors.Join(err, free.Close())
	}
	in := p.In
	if in == nil {
		in = func(f func() error) error { return f() }
	}
	if err := in(listen); err != nil {
		t.Fatal(err)
	}
	return address
}

func startNBTLS(t testing.TB, dir, schema, remote string) *Server {
	t.Helper()
	tool := Need(t, "ovsdb-tool")
	NeedFile(t, schema)
	s := newServer(t, TempDir(t), "db", "OVN_Northbound")
	s.args = tlsArgs(dir, remote)
	run(t, tool, "create", s.file, schema)
	s.start()
	return s
}
