package ovndb_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
)

// named changes a certificate: its common name, its alternative names and its usages.
func named(cn string, alternatives []string, usages ...x509.ExtKeyUsage) func(*x509.Certificate) {
	return func(c *x509.Certificate) {
		c.Subject, c.ExtKeyUsage = pkix.Name{CommonName: cn}, usages
		for _, a := range alternatives {
			if ip := net.ParseIP(a); ip != nil {
				c.IPAddresses = append(c.IPAddresses, ip)
			} else {
				c.DNSNames = append(c.DNSNames, a)
			}
		}
	}
}

// TestBoundaryServerCertificate: of one authority's certificates, the ones that are no server's, or another server's,
// do not pass for the Northbound database's. A real ovsdb-server poses with each.
func TestBoundaryServerCertificate(t *testing.T) {
	const server, client = x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth
	const here = "127.0.0.1"
	tests := []struct {
		name   string
		cert   func(*x509.Certificate)
		names  []string // --nb-server-name
		want   string   // in the error; "": accepted
		warned bool
	}{
		{"the endpoint's address", named("nb", []string{here}, server), nil, "", false},
		{"the endpoint's address, usages of both ends", named("nb", []string{here}, client, server), nil, "", false},
		{"the endpoint's address, no usage", named("nb", []string{here}), nil, "", false},
		{"for clients alone", named("node-a", nil, client), nil, "incompatible key usage", false},
		{"for clients alone, with the endpoint's address", named("node-a", []string{here}, client), nil, "incompatible key usage", false},
		{"for clients alone, with the name", named("nb", []string{"nb"}, client), []string{"nb"}, "incompatible key usage", false},
		{"for something else", named("nb", []string{here}, x509.ExtKeyUsageCodeSigning), nil, "incompatible key usage", false},
		{"another server's", named("web", []string{"web.example", "192.0.2.1"}, server), nil,
			"the server's certificate is for web.example, 192.0.2.1 and not for 127.0.0.1, ::1: if it is the right server, set one of its names as --nb-server-name", false},
		{"another server's address, no usage", named("web", []string{"192.0.2.1"}), nil, "is for 192.0.2.1 and not for", false},
		{"another server's name, no usage", named("web", []string{"web.example"}), nil, "is for web.example and not for", false},
		{"another server's name as common name, no usage", named("web.example", []string{"web.example"}), nil, "is for web.example and not for", false},
		{"another server's names, no usage", named("web", []string{"web", "web.example"}), nil, "is for web, web.example and not for", false},
		{"another server's name as common name, for servers", named("web", []string{"web"}, server), nil, "is for web and not for", false},

		{"no name, as of an old ovs-pki", named("nb id:1", nil), nil, "", true},
		{"no name, for servers", named("nb", nil, server), nil, "", true},
		{"a label, as of ovs-pki", named("nb", []string{"nb"}), nil, "", true},
		{"a label, as of ovs-pki --unique", named("nb id:1", []string{"nb id:1"}), nil, "", true},
		{"a label with a host's name, as of ovs-pki --unique", named("nb.example id:1", []string{"nb.example id:1"}), nil, "", true},

		{"the name", named("x", []string{"nb.example"}, server), []string{"nb.example"}, "", false},
		{"one of the names", named("x", []string{"nb2"}, server), []string{"nb1", "nb2"}, "", false},
		{"a pattern", named("x", []string{"*.ovn.example"}, server), []string{"nb.ovn.example"}, "", false},
		{"the name, and the endpoint's is another", named("x", []string{"192.0.2.1"}, server), []string{"192.0.2.1"}, "", false},
		{"not the name, but the endpoint's", named("x", []string{here}, server), []string{"nb"}, "is for 127.0.0.1 and not for nb", false},
		{"not the name: a label", named("node-a id:2", []string{"node-a id:2"}), []string{"nb id:1"}, "is for node-a id:2 and not for nb id:1", false},
		{"the name is a label", named("nb id:1", []string{"nb id:1"}), []string{"nb id:1"}, "", false},
		{"not the name: the common name", named("node-a", nil), []string{"nb"}, "is for node-a and not for nb", false},
		{"the name is the common name", named("nb id:1", nil), []string{"nb id:1"}, "", false},
		{"the common name, where there are others", named("nb", []string{"web"}), []string{"nb"}, "is for web and not for nb", false},
		{"no name at all", named("", nil), []string{"nb"}, "and not for nb", false},
	}
	refused := 0
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ca := ovndbtest.NewAuthority(t)
			serverDir, clientDir := t.TempDir(), t.TempDir()
			ca.Sign(serverDir, tt.cert)
			ca.Sign(clientDir)
			_, endpoint := ovndbtest.StartNBTLS(t, serverDir)
			log, err := handshake(t, endpoint, clientDir, tt.names)
			if tt.want != "" {
				refused++
			}
			if got := fmt.Sprint(err); (err == nil) != (tt.want == "") || !strings.Contains(got, tt.want) && err != nil {
				t.Errorf("got %v, want %q", err, tt.want)
			}
			if warned := strings.Contains(log, "--nb-server-name"); warned != tt.warned {
				t.Errorf("warned: %v, want %v: %s", warned, tt.warned, log)
			}
		})
	}
	t.Attr("boundary.server-certificates-refused", fmt.Sprint(refused))
}

// handshake speaks TLS with an endpoint twice, as DB does with each connection. It returns what was logged and
// the first error.
func handshake(t *testing.T, endpoint, clientDir string, names []string) (logged string, err error) {
	t.Helper()
	var log bytes.Buffer
	c := tlsConfig(clientDir)
	c.ServerNames, c.Endpoints = names, []string{"tcp:192.0.2.9:1", endpoint, "ssl:[::1]:6641"}
	c.Log = slog.New(slog.NewTextHandler(&log, nil))
	cfg, err := ovndb.TLS(c)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		conn, err := tls.Dial("tcp", strings.TrimPrefix(endpoint, "ssl:"), cfg)
		if err != nil {
			return log.String(), err
		}
		_ = conn.Close()
	}
	if n := strings.Count(log.String(), "\n"); n > 1 {
		t.Errorf("two connections warned %d times", n)
	}
	return log.String(), nil
}

// TestBoundaryOVSPKI: certificates that ovs-pki made serve without a flag, and with one only the server's passes.
func TestBoundaryOVSPKI(t *testing.T) {
	pki := ovndbtest.Need(t, "ovs-pki")
	ovndbtest.Need(t, "openssl")
	dir := t.TempDir()
	run := func(args ...string) {
		t.Helper()
		cmd := exec.Command(pki, append([]string{"--dir=" + filepath.Join(dir, "pki"), "--log=" + filepath.Join(dir, "log")}, args...)...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("ovs-pki %v: %v: %s", args, err, out)
		}
	}
	run("--bits=2048", "init")
	run("--bits=2048", "req+sign", "ovnnb", "switch")
	run("--bits=2048", "--unique", "req+sign", "node-a", "switch")
	for _, name := range []string{"ovnnb", "node-a"} {
		folder := filepath.Join(dir, name)
		if err := os.Mkdir(folder, 0o755); err != nil {
			t.Fatal(err)
		}
		for from, to := range map[string]string{name + "-cert.pem": "cert.pem", name + "-privkey.pem": "key.pem", "pki/switchca/cacert.pem": "ca.pem"} {
			text, err := os.ReadFile(filepath.Join(dir, from))
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(folder, to), text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	server, client := filepath.Join(dir, "ovnnb"), filepath.Join(dir, "node-a")
	pair, err := tls.LoadX509KeyPair(filepath.Join(server, "cert.pem"), filepath.Join(server, "key.pem"))
	if err != nil {
		t.Fatal(err)
	}
	name := pair.Leaf.Subject.CommonName
	_, endpoint := ovndbtest.StartNBTLS(t, server)
	_, posing := ovndbtest.StartNBTLS(t, client)
	if log, err := handshake(t, endpoint, client, nil); err != nil || !strings.Contains(log, "--nb-server-name") {
		t.Errorf("without --nb-server-name: %v; logged %s", err, log)
	}
	if log, err := handshake(t, endpoint, client, []string{name}); err != nil || log != "" {
		t.Errorf("with --nb-server-name=%q: %v; logged %s", name, err, log)
	}
	if _, err := handshake(t, posing, client, []string{name}); err == nil {
		t.Error("a node's certificate passes for the server's")
	}
}
