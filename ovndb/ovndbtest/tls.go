package ovndbtest

import (
	"net"
	"path/filepath"
	"testing"
)

// StartNBTLS is StartNB with a remote over mutual TLS, by cert.pem, key.pem and ca.pem of a folder. It returns that
// remote's endpoint.
func StartNBTLS(t testing.TB, dir string) (endpoint string) {
	t.Helper()
	tool := Need(t, "ovsdb-tool")
	NeedFile(t, nbSchema)
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, err := net.SplitHostPort(free.Addr().String())
	if err == nil {
		err = free.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	s := newServer(t, TempDir(t), "db", "OVN_Northbound")
	s.args = []string{
		"--remote=pssl:" + port + ":127.0.0.1", "--certificate=" + filepath.Join(dir, "cert.pem"),
		"--private-key=" + filepath.Join(dir, "key.pem"), "--ca-cert=" + filepath.Join(dir, "ca.pem"),
	}
	run(t, tool, "create", s.file, nbSchema)
	s.start()
	return "ssl:127.0.0.1:" + port
}
