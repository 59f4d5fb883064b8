package ovnrun

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/ovn-multinet/ovn-multinet/ovndb/members"
)

// Kind is one of OVN's two databases.
type Kind struct {
	Name     string // "nb" or "sb"; part of the names of files
	Database string // the name in the schema
	Global   string // the table of the one row that lists the connections
	Port     string // for clients
	RaftPort string
}

// The two databases of OVN.
var (
	NB = Kind{"nb", "OVN_Northbound", "NB_Global", members.NBPort, members.NBRaftPort}
	SB = Kind{"sb", "OVN_Southbound", "SB_Global", members.SBPort, members.SBRaftPort}
)

// KindOf returns the database of that name.
func KindOf(name string) (Kind, error) {
	for _, k := range []Kind{NB, SB} {
		if k.Name == name {
			return k, nil
		}
	}
	return Kind{}, fmt.Errorf("the databases are nb and sb, not %q", name)
}

// Files are the PEM files of a TLS connection.
type Files struct{ Certificate, PrivateKey, CACert string }

func (f Files) args() []string {
	return []string{"--private-key=" + f.PrivateKey, "--certificate=" + f.Certificate, "--ca-cert=" + f.CACert}
}

// Database is a member of the raft of one of OVN's databases, on this node.
type Database struct {
	Kind
	Node    string // this node
	Dir     string // of the database, on the node's disk
	RunDir  string // of sockets
	Schema  string // the path of the schema's file
	TLS     Files
	Members string // the mounted folder of the list of members
	// ElectionTimer is how long a member hears nothing of the leader before it asks for an election (ovsdb(7)). It must
	// be longer than a busy leader takes to answer.
	ElectionTimer time.Duration
	Log           *slog.Logger

	silent   map[string]time.Time // the servers that this leader does not hear, by their IDs, and since when
	unlisted map[string]time.Time // the servers whose nodes are no members, likewise
	trusted  trust
	joining  joining
}

// Socket is the path of the socket for programs of this pod.
func (d *Database) Socket() string { return filepath.Join(d.RunDir, d.Name+".sock") }

func (d *Database) control() string { return filepath.Join(d.RunDir, d.Name+".ctl") }

func (d *Database) file() string { return filepath.Join(d.Dir, d.Name+".db") }

// idFile has the ID of the membership that the file of the database is from.
func (d *Database) idFile() string { return filepath.Join(d.Dir, d.Name+".id") }

// prepare makes the file of the database, if this member has none. It creates an empty raft only as the first member,
// and only before the databases are formed: a member that lost its disk joins the others.
func (d *Database) prepare(ctx context.Context, list members.List, me members.Member) error {
	id, err := os.ReadFile(d.idFile())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	_, err = os.Stat(d.file())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	exists := err == nil
	if exists && string(id) == me.ID {
		return d.checkAddress(ctx, me)
	}
	if exists {
		d.Log.Warn("the database on the disk is from an earlier membership of this node; joining anew", "db", d.Name)
		if err := os.Remove(d.file()); err != nil {
			return err
		}
	}
	fresh := d.file() + ".new"
	if err := os.Remove(fresh); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := d.create(ctx, fresh, list, me); err != nil {
		return err
	}
	if err := os.WriteFile(d.idFile(), []byte(me.ID), 0o600); err != nil {
		return err
	}
	return os.Rename(fresh, d.file())
}

// create makes a file that begins a raft or joins one.
func (d *Database) create(ctx context.Context, file string, list members.List, me members.Member) error {
	own := members.Endpoint(me.IP, d.RaftPort)
	if !list.Formed && list.Members[0] == me {
		d.Log.Info("creating an empty database", "db", d.Name, "address", own)
		return tool(ctx, "ovsdb-tool", "create-cluster", file, d.Schema, own)
	}
	others := slices.DeleteFunc(list.Endpoints(d.RaftPort), func(e string) bool { return e == own })
	if len(others) == 0 {
		return fmt.Errorf("the database %s existed and is not on this node's disk, and no other member has it: restore "+
			"the disk, or delete the key %q of the ConfigMap to begin with an empty database", d.Database, members.FormedKey)
	}
	d.Log.Info("joining the database", "db", d.Name, "address", own, "members", others)
	return tool(ctx, "ovsdb-tool", append([]string{"join-cluster", file, d.Database, own}, others...)...)
}

// checkAddress refuses a database whose node had another address: the other members would not find it.
func (d *Database) checkAddress(ctx context.Context, me members.Member) error {
	out, err := output(ctx, "ovsdb-tool", "db-local-address", d.file())
	if err != nil {
		return err
	}
	if wanted, got := members.Endpoint(me.IP, d.RaftPort), strings.TrimSpace(out); got != wanted {
		return fmt.Errorf("the database on this node's disk has the address %s, and the node has %s: "+
			"give the node its address back, or restore a backup on a new database", got, wanted)
	}
	return nil
}

func (d *Database) args() []string {
	db := "db:" + d.Database + "," + d.Global + ",connections"
	return append([]string{
		"ovsdb-server", d.file(), "--no-chdir", "--remote=punix:" + d.Socket(), "--remote=" + db,
		"--unixctl=" + d.control(),
	}, d.TLS.args()...)
}

// Run keeps this node a member, until the end of ctx or of the database's process. A node that is not a member waits.
func (d *Database) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		list, me, err := d.awaitMembership(ctx)
		if err != nil {
			return err
		}
		if ctx.Err() != nil {
			return nil
		}
		if err := d.prepare(ctx, list, me); err != nil {
			return err
		}
		if err := d.serve(ctx, me); err != nil {
			return err
		}
	}
	return nil
}

// awaitMembership waits until this node is a member.
func (d *Database) awaitMembership(ctx context.Context) (list members.List, me members.Member, err error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	members.Follow(ctx, d.Members, d.Log, func(l members.List) {
		var is bool
		if me, is = l.Of(d.Node); is {
			list = l
			stop()
			return
		}
		d.Log.Info("this node is not a member yet", "db", d.Name, "members", len(l.Members))
	})
	return list, me, nil
}

// Ready returns an error unless the member has joined the raft.
func (d *Database) Ready(ctx context.Context) error {
	s, err := d.status(ctx)
	if err == nil && !s.joined {
		err = errors.New("it has not joined the raft")
	}
	return err
}
