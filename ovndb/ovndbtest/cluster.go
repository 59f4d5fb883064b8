package ovndbtest

import (
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
	tool := Need(t, "ovsdb-tool")
	NeedFile(t, nbSchema)
	dir := TempDir(t)
	c := &Cluster{t: t}
	raft := func(i int) string { return fmt.Sprintf("unix:%s/%d.raft", dir, i) }
	for i := range n {
		s := newServer(t, dir, fmt.Sprint(i), "OVN_Northbound")
		if i == 0 {
			run(t, tool, "create-cluster", s.file, nbSchema, raft(i))
		} else {
			run(t, tool, "join-cluster", s.file, s.database, raft(i), raft(0))
		}
		s.start()
		s.until("has joined", func() bool { return s.status().connected })
		c.Members = append(c.Members, s)
	}
	return c
}

// Endpoints are the addresses of all members.
func (c *Cluster) Endpoints() []string {
	endpoints := make([]string, len(c.Members))
	for i, s := range c.Members {
		endpoints[i] = s.Endpoint()
	}
	return endpoints
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
