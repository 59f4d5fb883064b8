package ovndbtest

import (
	"cmp"
	"fmt"
	"testing"
)

// Cluster is a raft cluster of ovsdb-servers.
type Cluster struct {
	Members []*Server
	t       testing.TB
}

// StartNBCluster starts a raft cluster of n members with OVN's Northbound database. It returns when all members have
// joined.
func StartNBCluster(t testing.TB, n int) *Cluster {
	t.Helper()
	dir := TempDir(t)
	raft := func(i int) string { return fmt.Sprintf("unix:%s/%d.raft", dir, i) }
	return startNBCluster(t, dir, n, raft, func(*Server) {})
}

// StartNBClusterTLS is StartNBCluster with mutual TLS between the members and with the clients. It uses cert.pem,
// key.pem and ca.pem of a folder.
func StartNBClusterTLS(t testing.TB, files string, n int) *Cluster {
	t.Helper()
	return StartNBClusterAt(t, here, files, n)
}

// Place is where servers listen.
type Place struct {
	IP string
	// In calls f in the network namespace that has the address. A server that f starts has to end with the namespace's
	// owner at the latest. nil: the namespace is that of the test.
	In func(f func() error) error
}

var here = Place{IP: "127.0.0.1"}

// StartNBClusterAt is StartNBClusterTLS at another place.
func StartNBClusterAt(t testing.TB, at Place, files string, n int) *Cluster {
	t.Helper()
	raft := make([]string, n)
	for i := range raft {
		raft[i] = sslEndpoint(at.freePort(t))
	}
	return startNBCluster(t, TempDir(t), n, func(i int) string { return raft[i] }, func(s *Server) {
		address := at.freePort(t)
		s.args, s.tls, s.in = tlsArgs(files, "pssl:"+address), sslEndpoint(address), at.In
	})
}

func startNBCluster(t testing.TB, dir string, n int, raft func(i int) string, prepare func(*Server)) *Cluster {
	t.Helper()
	tool := Need(t, "ovsdb-tool")
	NeedFile(t, nbSchema)
	c := &Cluster{t: t}
	for i := range n {
		s := newServer(t, dir, fmt.Sprint(i), "OVN_Northbound")
		prepare(s)
		if i == 0 {
			run(t, tool, "create-cluster", s.file, nbSchema, raft(i))
		} else {
			run(t, tool, "join-cluster", s.file, s.database, raft(i), raft(0))
		}
		s.start()
		s.Joined()
		c.Members = append(c.Members, s)
	}
	return c
}

// Joined waits until the member of a raft is connected to the others.
func (s *Server) Joined() {
	s.t.Helper()
	s.until("has joined", func() bool { return s.status().connected })
}

// Isolate stops the messages of raft to and from the member, as a cut network would. Its clients stay connected.
func (s *Server) Isolate() { s.failureTest("stop-raft-rpc") }

// Rejoin ends Isolate.
func (s *Server) Rejoin() { s.failureTest("clear") }

// MoveLeadership has a leader give the leadership to another member.
func (s *Server) MoveLeadership() { s.failureTest("transfer-leadership") }

func (s *Server) failureTest(name string) {
	s.t.Helper()
	run(s.t, Need(s.t, "ovs-appctl"), "-t", s.control, "cluster/failure-test", name)
}

// Endpoints are the addresses of all members.
func (c *Cluster) Endpoints() []string {
	endpoints := make([]string, len(c.Members))
	for i, s := range c.Members {
		endpoints[i] = cmp.Or(s.tls, s.Endpoint())
	}
	return endpoints
}

// Sockets are the paths of the members' unix sockets.
func (c *Cluster) Sockets() []string {
	sockets := make([]string, len(c.Members))
	for i, s := range c.Members {
		sockets[i] = s.Socket
	}
	return sockets
}

// Leader waits until a running member is the leader, and returns this member.
func (c *Cluster) Leader() *Server {
	c.t.Helper()
	alive := c.alive()
	if alive == nil {
		c.t.Fatal("no member of the raft runs")
	}
	var leader *Server
	alive.until("has a leader", func() bool {
		for _, s := range c.Members {
			if st := s.status(); st.leader && st.connected {
				leader = s
				return true
			}
		}
		return false
	})
	return leader
}

func (c *Cluster) alive() *Server {
	for _, s := range c.Members {
		select {
		case <-s.ended:
		default:
			return s
		}
	}
	return nil
}

type raftStatus struct{ connected, leader bool }

// status asks the member for its state (ovsdb-server(5), database _Server). A member that does not answer is neither
// connected nor the leader.
func (s *Server) status() raftStatus {
	results, err := transact(s.Socket, "_Server", []Op{{
		"op": "select", "table": "Database", "where": []any{[]any{"name", "==", s.database}},
		"columns": []string{"connected", "leader"},
	}})
	if err != nil || len(results[0].Rows) != 1 {
		return raftStatus{}
	}
	row := results[0].Rows[0]
	return raftStatus{connected: row["connected"] == true, leader: row["leader"] == true}
}
