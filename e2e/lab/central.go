package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dsnet/try"
)

const (
	ovnSchemas = "/usr/share/ovn"
	ovsSchema  = "/usr/share/openvswitch/vswitch.ovsschema"
)

// NBEndpoint is where agents and the controller find NB, from every node's namespace.
func (l *Lab) NBEndpoint() string { return strings.Join(l.nb.Endpoints, ",") }

// SBEndpoint is where ovn-controllers find SB.
func (l *Lab) SBEndpoint() string { return "tcp:" + centralIP + ":" + sbPort }

// NBSocket is the path of the unix socket of the lab's own NB.
func (l *Lab) NBSocket() string { return filepath.Join(l.Dir, "central", "nb.sock") }

// NBFile is the path of the lab's own NB.
func (l *Lab) NBFile() string { return filepath.Join(l.Dir, "central", "nb.db") }

// SBSocket is the path of SB's unix socket.
func (l *Lab) SBSocket() string { return filepath.Join(l.Dir, "central", "sb.sock") }

// NBCtl runs ovn-nbctl on NB.
func (l *Lab) NBCtl(ctx context.Context, args ...string) (string, error) {
	return tool(ctx, "ovn-nbctl", append([]string{"--db=" + l.nb.remote()}, args...)...)
}

// Announced waits until each node's agent has told NB which chassis the node is: an agent does so some time after its
// start.
func (l *Lab) Announced(ctx context.Context) error {
	return Eventually(ctx, func() error {
		out, err := l.NBCtl(ctx, "--bare", "--columns=name", "find", "Copp", "external_ids:ovn-multinet/kind=node")
		if got := strings.Count(out, "ovn-multinet node "); err == nil && got != len(l.Nodes) {
			err = fmt.Errorf("NB knows %d of %d nodes", got, len(l.Nodes))
		}
		return err
	})
}

// SBCtl runs ovn-sbctl on SB.
func (l *Lab) SBCtl(ctx context.Context, args ...string) (string, error) {
	return tool(ctx, "ovn-sbctl", append([]string{"--db=unix:" + l.SBSocket()}, args...)...)
}

func (l *Lab) startCentral(ctx context.Context) (err error) {
	defer try.Handle(&err)
	dir := filepath.Join(l.Dir, "central")
	try.E(os.Mkdir(dir, 0o755))
	if l.nb.Sockets[0] == l.NBSocket() {
		l.NB = try.E1(l.startDB(ctx, "nb", l.NBSocket(), nbPort))
	}
	l.SB = try.E1(l.startDB(ctx, "sb", l.SBSocket(), sbPort))
	l.Northd, err = l.run(ctx, &Process{
		Name: "ovn-northd", netns: l.central, env: daemonEnv(dir), log: filepath.Join(dir, "ovn-northd.log"),
		args: slices.Concat([]string{"ovn-northd", "--ovnsb-db=unix:" + l.SBSocket(),
			"--unixctl=" + filepath.Join(dir, "ovn-northd.ctl")}, l.nb.ofNorthd(), logToConsole),
		ready: func(ctx context.Context) error {
			_, err := l.SBCtl(ctx, "get", "SB_Global", ".", "nb_cfg")
			return err
		},
	})
	return err
}

// NewNBFile makes an empty file for NB, which its server takes up at its next start.
func (l *Lab) NewNBFile(ctx context.Context) error { return createDB(ctx, "nb", l.NBFile()) }

func createDB(ctx context.Context, name, file string) error {
	_, err := tool(ctx, "ovsdb-tool", "create", file, filepath.Join(ovnSchemas, "ovn-"+name+".ovsschema"))
	return err
}

func (l *Lab) startDB(ctx context.Context, name, socket, port string) (*Process, error) {
	dir := filepath.Dir(socket)
	file := filepath.Join(dir, name+".db")
	if err := createDB(ctx, name, file); err != nil {
		return nil, err
	}
	args := []string{"ovsdb-server", file, "--no-chdir", "--remote=punix:" + socket,
		"--remote=ptcp:" + port + ":" + centralIP, "--unixctl=" + filepath.Join(dir, name+".ctl")}
	if name == "nb" {
		// What ServeNBOverTLS writes; without rows these are nothing.
		const db = "db:OVN_Northbound,"
		args = append(args, "--remote="+db+"NB_Global,connections", "--private-key="+db+"SSL,private_key",
			"--certificate="+db+"SSL,certificate", "--ca-cert="+db+"SSL,ca_cert")
	}
	return l.run(ctx, &Process{
		Name: name, netns: l.central, env: daemonEnv(dir), log: filepath.Join(dir, name+".log"),
		args: append(args, logToConsole...), ready: accepts(socket),
	})
}

// ServeNBOverTLS has NB also serve mutual TLS with these PEM files, and returns the endpoint.
func (l *Lab) ServeNBOverTLS(ctx context.Context, privateKey, certificate, caCert string) (endpoint string, err error) {
	if _, err := l.NBCtl(ctx, "set-ssl", privateKey, certificate, caCert); err != nil {
		return "", err
	}
	_, err = l.NBCtl(ctx, "set-connection", "pssl:"+nbTLSPort+":"+centralIP)
	return "ssl:" + centralIP + ":" + nbTLSPort, err
}

// UseNBOverTLS has NB also serve mutual TLS. Agents and controllers that start from now on use it. It takes cert.pem,
// key.pem and ca.pem of the server's folder and of the client's.
func (l *Lab) UseNBOverTLS(ctx context.Context, server, client string) error {
	in := filepath.Join
	endpoint, err := l.ServeNBOverTLS(ctx, in(server, "key.pem"), in(server, "cert.pem"), in(server, "ca.pem"))
	l.nb = NB{Endpoints: []string{endpoint}, Sockets: l.nb.Sockets, PrivateKey: in(client, "key.pem"),
		Certificate: in(client, "cert.pem"), CACert: in(client, "ca.pem")}
	return err
}

// NBFlags are the flags with which agents and controllers find NB, from every node's namespace.
func (l *Lab) NBFlags() []string { return l.nb.ofOurs("") }

// logToConsole has a daemon log to its standard error, which is its log file.
var logToConsole = []string{"-vconsole:info", "-vsyslog:off", "-vfile:off"}

// daemonEnv keeps a daemon, and the clients that it starts, within dir.
func daemonEnv(dir string) []string {
	var env []string
	for _, name := range []string{"OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR", "OVS_SYSCONFDIR",
		"OVN_RUNDIR", "OVN_LOGDIR", "OVN_DBDIR", "OVN_SYSCONFDIR"} {
		env = append(env, name+"="+dir)
	}
	return env
}

// binary is the path of one of the project's own programs.
func (l *Lab) binary(name string) (string, error) {
	path := filepath.Join(l.bins.Ours, name)
	if l.bins.Ours == "" {
		return "", fmt.Errorf("%s was not built", name)
	}
	if _, err := os.Stat(path); err != nil {
		return "", err
	}
	return path, nil
}

// StartController runs ovn-multinet-controller in the central namespace and waits until it is connected to
// NB.
func (l *Lab) StartController(ctx context.Context) (err error) {
	if l.Controller != nil {
		return l.Controller.start(ctx)
	}
	l.Controller, err = l.RunController(ctx, "controller")
	return err
}

// RunController runs one more ovn-multinet-controller, with a log of that name, on the same manifests and the same NB.
func (l *Lab) RunController(ctx context.Context, name string) (*Process, error) {
	path, err := l.binary("ovn-multinet-controller")
	if err != nil {
		return nil, err
	}
	p := &Process{Name: "ovn-multinet-" + name, netns: l.central, log: filepath.Join(l.Dir, "central", name+".log")}
	args := []string{path, "--manifests", l.Manifests, "--log-level", "debug"}
	p.args = slices.Concat(args, l.nb.ofOurs(""), l.ControllerArgs)
	p.ready = l.nb.connected(p)
	return l.run(ctx, p)
}

// StopController ends the controller with SIGTERM.
func (l *Lab) StopController(ctx context.Context) error {
	if l.Controller == nil {
		return nil
	}
	return l.Controller.Stop(ctx)
}

// KillController ends the controller with SIGKILL.
func (l *Lab) KillController() error {
	if l.Controller == nil {
		return nil
	}
	return l.Controller.Kill()
}

// timeoutArg bounds a client's wait by the context's deadline: a killed client says nothing of why it waited.
func timeoutArg(ctx context.Context) string {
	left := defaultPatience
	if deadline, ok := ctx.Deadline(); ok {
		left = time.Until(deadline)
	}
	return fmt.Sprintf("--timeout=%d", max(1, int(left.Seconds())))
}

var errNotConnected = errors.New("it has no connection to NB")

// Recomputes counts how often northd has computed everything anew that it keeps of NB, and all logical flows.
type Recomputes struct{ Northd, LFlow int }

// Recomputes reads northd's counters.
func (l *Lab) Recomputes(ctx context.Context) (r Recomputes, err error) {
	out, err := tool(ctx, "ovn-appctl", "-t", filepath.Join(l.Dir, "central", "ovn-northd.ctl"), "inc-engine/show-stats")
	if err != nil {
		return r, err
	}
	counters := map[string]*int{"northd": &r.Northd, "lflow": &r.LFlow}
	node := ""
	for line := range strings.Lines(out) {
		line = strings.TrimSpace(line)
		if name, ok := strings.CutPrefix(line, "Node: "); ok {
			node = name
		}
		if count, ok := strings.CutPrefix(line, "- recompute:"); ok && counters[node] != nil {
			if *counters[node], err = strconv.Atoi(strings.TrimSpace(count)); err != nil {
				return r, err
			}
			delete(counters, node)
		}
	}
	if len(counters) > 0 {
		return r, fmt.Errorf("northd's counters are not in %q", out)
	}
	return r, nil
}
