package ovnrun

import (
	"context"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/ovn-multinet/ovn-multinet/ovndb/members"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
)

// world has nodes with members of a raft. Each node has a loopback address of its own.
type world struct {
	t     *testing.T
	nodes map[string]*node
	list  members.List
	tls   Files
}

type node struct {
	*Database
	ip    netip.Addr
	stop  context.CancelFunc
	ended chan error
}

func newWorld(t *testing.T) *world {
	t.Helper()
	for _, program := range []string{"ovsdb-server", "ovsdb-tool", "ovsdb-client"} {
		ovndbtest.Need(t, program)
	}
	w := &world{t: t, nodes: map[string]*node{}}
	dir := t.TempDir()
	ovndbtest.NewAuthority(t).Sign(dir, func(c *x509.Certificate) { c.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)} })
	file := func(name string) string { return filepath.Join(dir, name) }
	w.tls = Files{Certificate: file("cert.pem"), PrivateKey: file("key.pem"), CACert: file("ca.pem")}
	return w
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// node makes a node that may become a member.
func (w *world) node(name string) *node {
	pid, i := os.Getpid(), len(w.nodes)+1
	dir := ovndbtest.TempDir(w.t)
	n := &node{ip: netip.AddrFrom4([4]byte{127, byte(pid>>8)%200 + 20, byte(pid), byte(i)}), Database: &Database{
		Kind: NB, Node: name, Dir: filepath.Join(dir, "disk"), RunDir: dir, Members: filepath.Join(dir, "members"),
		Schema: "/usr/share/ovn/ovn-nb.ovsschema", TLS: w.tls, ElectionTimer: testTimer,
		Log: slog.New(slog.DiscardHandler)}}
	for _, sub := range []string{n.Dir, n.Members} {
		w.must(os.Mkdir(sub, 0o755))
	}
	w.nodes[name] = n
	w.write(n)
	return n
}

// host makes a node with an empty database of Open vSwitch, which nobody serves.
func (w *world) host() *Host {
	dir := ovndbtest.TempDir(w.t)
	h := &Host{RunDir: dir, DBDir: dir, Schema: "/usr/share/openvswitch/vswitch.ovsschema"}
	w.must(h.create(w.t.Context(), h.file()))
	return h
}

// members sets the list, in which NAME=ID is a member.
func (w *world) members(formed bool, ids ...string) {
	w.t.Helper()
	w.list = members.List{Formed: formed}
	for _, entry := range ids {
		name, id := entry[:len(entry)-2], entry[len(entry)-1:]
		w.list.Members = append(w.list.Members, members.Member{Node: name, IP: w.nodes[name].ip, ID: id})
	}
	for _, n := range w.nodes {
		w.write(n)
	}
}

func (w *world) write(n *node) {
	w.t.Helper()
	write := func(key, text string) {
		tmp := filepath.Join(n.Members, ".new")
		w.must(os.WriteFile(tmp, []byte(text), 0o644))
		w.must(os.Rename(tmp, filepath.Join(n.Members, key)))
	}
	if w.list.Formed {
		write(members.FormedKey, "true")
	}
	write(members.ListKey, w.list.String())
}

// start runs the node's database until stop or the end of the test.
func (w *world) start(n *node) {
	ctx, stop := context.WithCancel(context.Background())
	n.stop, n.ended = stop, make(chan error, 1)
	go func() { n.ended <- n.Run(ctx) }()
	w.t.Cleanup(func() { w.end(n) })
}

func (w *world) end(n *node) {
	if n.stop == nil {
		return
	}
	n.stop()
	n.stop = nil
	if err := <-n.ended; err != nil {
		w.t.Errorf("database of %s: %v", n.Node, err)
	}
}

func (w *world) eventually(what string, ok func() error) {
	w.t.Helper()
	err := ok()
	for deadline := time.Now().Add(3 * time.Minute); err != nil; err = ok() {
		if time.Now().After(deadline) {
			w.t.Fatalf("%s: %v", what, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// status is what a node knows of the raft.
func (n *node) status() (status, error) { return n.Database.status(context.Background()) }

// wantRaft waits until each of the nodes knows exactly these servers, and one of the nodes leads. It returns the leader.
func (w *world) wantRaft(nodes ...*node) (leader *node) {
	w.t.Helper()
	var want []string
	for _, n := range nodes {
		want = append(want, members.Endpoint(n.ip, NB.RaftPort))
	}
	slices.Sort(want)
	w.eventually("raft of "+fmt.Sprint(want), func() error {
		leader = nil
		for _, n := range nodes {
			s, err := n.status()
			if err != nil {
				return err
			}
			var have []string
			for _, server := range s.servers {
				have = append(have, server.address)
			}
			slices.Sort(have)
			if !s.joined || !slices.Equal(have, want) {
				return fmt.Errorf("%s knows %v, joined: %t", n.Node, have, s.joined)
			}
			if s.leader {
				leader = n
			}
		}
		if leader == nil {
			return fmt.Errorf("no leader")
		}
		return nil
	})
	return leader
}

// testTimer takes two steps from the default of a new database, 1 s.
const testTimer = 2500 * time.Millisecond

// wantTimer waits until each of the nodes has the election timer.
func (w *world) wantTimer(want time.Duration, nodes ...*node) {
	w.t.Helper()
	w.eventually("election timer", func() error {
		for _, n := range nodes {
			if s, err := n.status(); err != nil || s.timer != want {
				return fmt.Errorf("%s has %s, want %s: %w", n.Node, s.timer, want, err)
			}
		}
		return nil
	})
}

// insert writes a row by a node. The raft may have no leader for a moment.
func (w *world) insert(n *node, name string) {
	w.t.Helper()
	w.eventually("insert "+name, func() error {
		_, err := n.transact(context.Background(),
			op{"op": "insert", "table": "Logical_Switch", "row": map[string]any{"name": name}})
		return err
	})
}

// wantRows waits until a node's own copy has exactly one row of each of these names.
func (w *world) wantRows(n *node, names ...string) {
	w.t.Helper()
	w.eventually("rows of "+n.Node, func() error {
		for _, name := range names {
			found, err := n.transact(context.Background(), op{"op": "select", "table": "Logical_Switch",
				"where": where("name", name), "columns": []string{"name"}})
			if err != nil {
				return err
			}
			if len(found[0].Rows) != 1 {
				return fmt.Errorf("%d rows %s", len(found[0].Rows), name)
			}
		}
		return nil
	})
}
