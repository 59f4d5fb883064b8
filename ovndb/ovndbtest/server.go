package ovndbtest

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The schemas in the packages of OVN and Open vSwitch.
const (
	nbSchema  = "/usr/share/ovn/ovn-nb.ovsschema"
	sbSchema  = "/usr/share/ovn/ovn-sb.ovsschema"
	ovsSchema = "/usr/share/openvswitch/vswitch.ovsschema"
)

// startTimeout limits every wait of this package: for a server's first answer or for a raft election.
const startTimeout = 30 * time.Second

// Server is a real ovsdb-server.
type Server struct {
	Socket string // a plain path

	t        testing.TB
	database string // the schema's name
	file     string
	control  string // the path of its unixctl socket
	pid      int
	args     []string                   // in addition to the arguments of every server
	tls      string                     // the endpoint over TLS of a raft's member; "": there is none
	in       func(f func() error) error // see Place
	ended    <-chan struct{}            // closed when the process has ended
}

// Pid is the id of the server's process.
func (s *Server) Pid() int { return s.pid }

// StartNB starts a standalone ovsdb-server with OVN's Northbound database. The server ends with the test.
func StartNB(t testing.TB) *Server {
	t.Helper()
	return startStandalone(t, "OVN_Northbound", nbSchema)
}

// StartOVS starts an ovsdb-server with Open vSwitch's database, which has its one row of the table Open_vSwitch.
func StartOVS(t testing.TB) *Server {
	t.Helper()
	s := startStandalone(t, "Open_vSwitch", ovsSchema)
	s.Transact(t, Op{"op": "insert", "table": "Open_vSwitch", "row": Op{}})
	return s
}

// StartNorthd starts ovn-northd for an NB, and a server with a Southbound database for it, which it returns.
func StartNorthd(t testing.TB, northbound *Server) (southbound *Server) {
	t.Helper()
	southbound = startStandalone(t, "OVN_Southbound", sbSchema)
	pid, ended := spawn(t, exec.Command(Need(t, "ovn-northd"), "--ovnnb-db="+northbound.Endpoint(),
		"--ovnsb-db="+southbound.Endpoint(), "--unixctl="+filepath.Join(TempDir(t), "northd.ctl"),
		"-vconsole:off", "-vsyslog:off", "-vfile:off"))
	t.Cleanup(func() { kill(ended, pid) })
	return southbound
}

func startStandalone(t testing.TB, database, schema string) *Server {
	t.Helper()
	tool := Need(t, "ovsdb-tool")
	NeedFile(t, schema)
	s := newServer(t, TempDir(t), "db", database)
	run(t, tool, "create", s.file, schema)
	s.start()
	return s
}

func newServer(t testing.TB, dir, name, database string) *Server {
	return &Server{
		Socket: filepath.Join(dir, name+".sock"), t: t, database: database,
		file: filepath.Join(dir, name+".db"), control: filepath.Join(dir, name+".ctl"),
	}
}

// Need returns the path of a program, or skips the test.
func Need(t testing.TB, program string) string {
	t.Helper()
	for _, look := range []string{program, "/usr/sbin/" + program, "/sbin/" + program} {
		if path, err := exec.LookPath(look); err == nil {
			return path
		}
	}
	t.Skipf("%s is not installed: run hack/setup.sh", program)
	return ""
}

// NeedFile skips the test if a file of a package does not exist.
func NeedFile(t testing.TB, path string) {
	t.Helper()
	if _, err := os.Stat(path); err != nil {
		t.Skipf("%s is not installed: run hack/setup.sh", path)
	}
}

// TempDir is t.TempDir with a path that is short enough for a unix socket (108 bytes).
func TempDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "ovn-multinet-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func run(t testing.TB, program string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s %s: %v: %s", filepath.Base(program), strings.Join(args, " "), err, stderr.String())
	}
	return stdout.String()
}

// start runs the server and waits until it answers.
func (s *Server) start() {
	s.t.Helper()
	args := []string{"--remote=punix:" + s.Socket, "--unixctl=" + s.control, "-vconsole:off", "-vsyslog:off", "-vfile:off"}
	pid, ended := spawnIn(s.t, s.in, exec.Command(Need(s.t, "ovsdb-server"), append(append(args, s.args...), s.file)...))
	if s.ended == nil {
		// Once: when a server is started again, the cleanup still kills it after its clients.
		s.t.Cleanup(s.Kill)
	}
	s.pid, s.ended = pid, ended
	s.until("answers", func() bool {
		var names []string
		return call(s.Socket, "list_dbs", []any{}, &names) == nil
	})
}

// spawn starts a process that ends with this process at the latest. ended is closed when the process has ended.
func spawn(t testing.TB, cmd *exec.Cmd) (pid int, ended <-chan struct{}) {
	t.Helper()
	return spawnIn(t, nil, cmd)
}

// spawnIn is spawn in the namespace that Place.In names, whose owner then ends the process.
func spawnIn(t testing.TB, in func(f func() error) error, cmd *exec.Cmd) (pid int, ended <-chan struct{}) {
	t.Helper()
	start := cmd.Start
	if in != nil {
		start = func() error { return in(cmd.Start) } // on another thread, which may end before the process
	} else {
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	}
	started, over := make(chan error), make(chan struct{})
	go func() {
		// The kernel sends Pdeathsig when the thread ends that started the process.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // ignore the error: most often a signal ends the process
			close(over)
		}
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	return cmd.Process.Pid, over
}

// until polls for a state that the server does not announce.
func (s *Server) until(what string, done func() bool) {
	s.t.Helper()
	for deadline := time.Now().Add(startTimeout); !done(); time.Sleep(2 * time.Millisecond) {
		select {
		case <-s.ended:
			s.t.Fatalf("ovsdb-server ended before it %s", what)
		default:
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("ovsdb-server did not say within %v that it %s", startTimeout, what)
		}
	}
}

// kill kills a process that still runs, and waits for its end.
func kill(ended <-chan struct{}, pid int) {
	select {
	case <-ended:
		return // the pid may belong to another process by now
	default:
	}
	_ = syscall.Kill(pid, syscall.SIGKILL) // kills a paused process too
	<-ended
}

// Kill ends the server like a power cut.
func (s *Server) Kill() { kill(s.ended, s.pid) }

// Restart kills the server if it runs and starts it again on the same files.
func (s *Server) Restart() {
	s.t.Helper()
	s.Kill()
	_ = os.Remove(s.Socket)
	_ = os.Remove(s.control)
	s.start()
}

// Backup copies the database's file. restore starts the server with the copy.
func (s *Server) Backup() (restore func()) {
	s.t.Helper()
	copied, err := os.ReadFile(s.file)
	if err != nil {
		s.t.Fatal(err)
	}
	return func() {
		s.t.Helper()
		s.Kill()
		if err := os.WriteFile(s.file, copied, 0o600); err != nil {
			s.t.Fatal(err)
		}
		s.Restart()
	}
}

// Pause stops the process: the kernel still accepts connections, but the server answers nothing.
func (s *Server) Pause() { s.signal(syscall.SIGSTOP) }

// Resume continues a paused server.
func (s *Server) Resume() { s.signal(syscall.SIGCONT) }

func (s *Server) signal(sig syscall.Signal) {
	s.t.Helper()
	if err := syscall.Kill(s.pid, sig); err != nil {
		s.t.Fatal(err)
	}
}

// Endpoint is the server's address in the form of OVN's tools and ours.
func (s *Server) Endpoint() string { return "unix:" + s.Socket }

// NBCtl runs ovn-nbctl on the server and returns what it prints.
func (s *Server) NBCtl(args ...string) string {
	s.t.Helper()
	options := []string{"--no-leader-only", "--timeout=20", "--db=" + s.Endpoint()}
	return run(s.t, Need(s.t, "ovn-nbctl"), append(options, args...)...)
}

// VSCtl runs ovs-vsctl on the server, without waiting for an ovs-vswitchd, and returns what it prints.
func (s *Server) VSCtl(args ...string) string {
	s.t.Helper()
	options := []string{"--no-wait", "--timeout=20", "--db=" + s.Endpoint()}
	return run(s.t, Need(s.t, "ovs-vsctl"), append(options, args...)...)
}

// Transact runs operations over its own connection. A refused operation ends the test.
func (s *Server) Transact(t testing.TB, ops ...Op) []Result {
	t.Helper()
	results, err := transact(s.Socket, s.database, ops)
	if err != nil {
		t.Fatalf("transact: %v", err)
	}
	return results
}

// Dump reads all rows of a table over its own connection. Sets are []any, except sets with one member, which are only
// the member. Maps are map[string]string, and row keys are strings.
func (s *Server) Dump(t testing.TB, table string) []map[string]any {
	t.Helper()
	return s.DumpTables(t, table)[table]
}

// DumpTables reads several tables in one transaction.
func (s *Server) DumpTables(t testing.TB, tables ...string) map[string][]map[string]any {
	t.Helper()
	ops := make([]Op, len(tables))
	for i, table := range tables {
		ops[i] = Op{"op": "select", "table": table, "where": []any{}}
	}
	out := map[string][]map[string]any{}
	for i, result := range s.Transact(t, ops...) {
		for _, row := range result.Rows {
			for column, v := range row {
				row[column] = plain(v)
			}
		}
		out[tables[i]] = result.Rows
	}
	return out
}
