//go:build chaos

package chaos

import (
	"context"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
	"github.com/ovn-multinet/ovn-multinet/e2e/labtest"
	"github.com/ovn-multinet/ovn-multinet/internal/failpoint"
)

// site is a lab of one node whose pods have OVN networks and a bridge.
type site struct {
	*labtest.World
	leases string // the folder of the bridge's IPAM plugin
	names  int
}

// The networks of a pod, by the number of OVN networks. One of four has the pod's default route.
var requests = map[int]string{
	1: "net-0,bridged",
	4: `[{"name":"net-0","default-route":["10.90.0.1"]},{"name":"net-1"},{"name":"net-2"},{"name":"net-3"},{"name":"bridged"}]`,
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{World: &labtest.World{Test: labtest.New(t, 12*time.Hour), Lab: lab.Start(t, lab.Options{})}}
	node := s.Nodes[0]
	node.PluginConf = func(entry map[string]any) {
		entry["allowedDelegates"], entry["allowedIPAM"] = []string{"bridge"}, []string{"host-local"}
	}
	node.AgentArgs = append(node.AgentArgs, "--reconcile-period=1s", "--metrics-address="+agentMetrics)
	s.leases = filepath.Join(node.Dir, "delegate-leases")
	s.Exec(node, "ip", "link", "add", "chaosbr0", "address", "02:00:00:00:90:01", "type", "bridge")
	s.Start()
	for i := range 4 {
		s.NAD(fmt.Sprint("net-", i), fmt.Sprintf(`{"type":"ovn-multinet","subnets":"10.9%d.0.0/24,fd9%d::/64"}`, i, i))
	}
	s.NAD("bridged", fmt.Sprintf(`{"cniVersion":"1.0.0","name":"bridged","type":"bridge","bridge":"chaosbr0","ipam":`+
		`{"type":"host-local","dataDir":"%s","ranges":[[{"subnet":"10.95.0.0/24"}]]}}`, s.leases))
	first := s.pod(4)
	s.AddInTheEnd(first) // the networks are there
	ended(s.World, first)
	return s
}

// ended ends the first pods. From then on, the state of the world is that before any pod.
func ended(w *labtest.World, first ...*lab.Pod) {
	w.End(first...)
	w.Eventually(func() error { // what the DEL left to the agent is done
		w.Base = w.Snapshot()
		for _, p := range first {
			if i := slices.IndexFunc(w.Base, func(line string) bool {
				return strings.Contains(line, p.Name) || strings.Contains(line, p.Sandbox)
			}); i >= 0 {
				return fmt.Errorf("the first pod is not gone: %s", w.Base[i])
			}
		}
		return nil
	})
}

// pod makes a pod with so many OVN networks and a bridge.
func (s *site) pod(k int) *lab.Pod {
	s.names++
	return s.Pod(0, fmt.Sprint("web-", s.names), requests[k])
}

// residue waits until the site is as it was before any pod, and counts what is left.
func (s *site) residue(what string) (n int) {
	n = residue(s.World, what)
	for _, file := range s.Glob(filepath.Join(s.leases, "*", "*.*.*.*")) {
		if !strings.HasPrefix(filepath.Base(file), "last_reserved_ip") {
			s.T.Errorf("%s: the lease %s is left", what, file)
			n++
		}
	}
	return n
}

// residue waits until the world is as it was before any pod, and counts the lines that differ.
func residue(w *labtest.World, what string) (n int) {
	var diff string
	ctx, cancel := context.WithTimeout(w.Ctx, patience) // the test's own limit is hours
	defer cancel()
	err := lab.Eventually(ctx, func() error {
		if diff = w.Base.Diff(w.Snapshot()); diff != "" {
			return fmt.Errorf("the world is not as before:\n%s", diff)
		}
		return nil
	})
	if err != nil {
		w.T.Errorf("%s: %v", what, err)
		n = strings.Count(diff, "\n")
	}
	return n
}

// A command is one call of the runtime that is killed on its way.
type command struct {
	name string
	k    int
	// run makes a pod and the call. It returns the pod's sandboxes, which the runtime then deletes, and the call's error.
	run func(s *site, k int, opts ...lab.CallOption) ([]*lab.Pod, error)
}

func add(s *site, k int, opts ...lab.CallOption) ([]*lab.Pod, error) {
	p := s.pod(k)
	err := s.TryAdd(p, opts...)
	retry := s.NewSandbox(p)
	if e := s.TryAdd(retry); e != nil {
		s.T.Errorf("the ADD after: %v", e)
	}
	return []*lab.Pod{p, retry}, err
}

func del(s *site, k int, opts ...lab.CallOption) ([]*lab.Pod, error) {
	p := s.pod(k)
	s.Add(p)
	return []*lab.Pod{p}, p.Del(s.Ctx, opts...)
}

// delAlone is a DEL while the agent is away.
func delAlone(s *site, k int, opts ...lab.CallOption) ([]*lab.Pod, error) {
	p := s.pod(k)
	s.Add(p)
	s.Must(s.Nodes[0].StopAgent(s.Ctx))
	err := p.Del(s.Ctx, opts...)
	s.Del(p)
	s.Must(s.Nodes[0].StartAgent(s.Ctx))
	return []*lab.Pod{p}, err
}

var commands = []command{
	{"ADD", 1, add}, {"ADD", 4, add}, {"DEL", 1, del}, {"DEL", 4, del}, {"DEL without the agent", 4, delAlone},
}

func (c command) String() string { return fmt.Sprintf("%s with %d networks", c.name, c.k) }

// try makes the call and what a kubelet does after it. killed reports whether the call failed.
func (c command) try(s *site, row *Row, what string, opts ...lab.CallOption) (killed bool) {
	begin := time.Now()
	sandboxes, err := c.run(s, c.k, opts...)
	for range 2 {
		for _, p := range sandboxes {
			s.Del(p)
		}
	}
	s.End(sandboxes...)
	row.Tries++
	row.Residue += s.residue(fmt.Sprintf("%s, %s", c, what))
	row.Stall = max(row.Stall, time.Since(begin))
	return err != nil
}

// failpoints lists the failpoints in the module's code. The packages agent and ovnport run in the agent alone. No command of
// CNI reaches those of a change of a running pod: the scenario TestAttachKilled has them.
func failpoints(t *testing.T) (plugin, agent []string) {
	t.Helper()
	root, err := lab.ModuleRoot()
	must(t, err)
	must(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") ||
			strings.HasSuffix(path, "plugin/change.go") {
			return err
		}
		tree, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(tree, func(n ast.Node) bool {
			name, ok := hit(n)
			switch {
			case !ok:
			case slices.Contains([]string{"agent", "ovnport"}, filepath.Base(filepath.Dir(path))):
				agent = append(agent, name)
			default:
				plugin = append(plugin, name)
			}
			return true
		})
		return nil
	}))
	return plugin, agent
}

// hit returns the name in a call of failpoint.Hit.
func hit(n ast.Node) (name string, ok bool) {
	call, ok := n.(*ast.CallExpr)
	if !ok || len(call.Args) != 1 {
		return "", false
	}
	f, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || f.Sel.Name != "Hit" {
		return "", false
	}
	literal, ok := call.Args[0].(*ast.BasicLit)
	if !ok {
		return "", false
	}
	name, err := strconv.Unquote(literal.Value)
	return name, err == nil
}

// TestPluginKilledAtFailpoints kills the plugin at each of its failpoints, in each command.
func TestPluginKilledAtFailpoints(t *testing.T) {
	s := newSite(t)
	points, _ := failpoints(t)
	row := Row{Fault: fmt.Sprintf("plugin killed at %d failpoints", len(points))}
	for _, point := range points {
		killed := 0
		for _, c := range commands {
			if c.try(s, &row, point, lab.WithEnv(failpoint.Env+"="+point)) {
				killed++
			}
		}
		if killed == 0 {
			t.Errorf("no command reached failpoint %s", point)
		}
	}
	report(t, row)
}

// TestAgentKilledAtFailpoints kills the agent at each of its failpoints. It is started again, as its DaemonSet does.
func TestAgentKilledAtFailpoints(t *testing.T) {
	s := newSite(t)
	_, points := failpoints(t)
	row := Row{Fault: fmt.Sprintf("agent killed at %d failpoints", len(points))}
	for _, point := range points {
		for _, k := range []int{1, 4} {
			begin := time.Now()
			p := s.pod(k)
			ended, err := s.Nodes[0].AcrossKill(s.Ctx, point, func() error {
				if err := s.TryAdd(p); err != nil {
					return err
				}
				return p.Del(s.Ctx)
			})
			if ended == nil || !strings.Contains(ended.Error(), "killed") {
				t.Errorf("the agent was not killed at failpoint %s: %v", point, ended)
			}
			if err != nil {
				t.Errorf("a pod with %d networks while the agent was killed at %s: %v", k, point, err)
				row.Failed++
			}
			s.End(p)
			row.Tries++
			row.Residue += s.residue(fmt.Sprintf("agent killed at %s with %d networks", point, k))
			row.Stall = max(row.Stall, time.Since(begin))
		}
	}
	report(t, row)
}

// systemCalls are those by which the plugin, and the plugins that it runs, change something or ask somebody.
var systemCalls = []string{"sendto", "write", "openat", "renameat", "unlinkat", "mkdirat", "connect", "setns", "execve", "flock"}

// TestPluginKilledAtSystemCalls kills the plugin at its n-th system call of a kind, for every n until a command ends
// unharmed; in the short form for every n that is the sum of a random number and a multiple of -stride.
func TestPluginKilledAtSystemCalls(t *testing.T) {
	s := newSite(t)
	row := Row{Fault: "plugin killed at system calls"}
	for _, c := range commands {
		for _, name := range systemCalls {
			for n := 1 + int(time.Now().UnixNano())%*stride; ; n += *stride {
				if !c.try(s, &row, fmt.Sprintf("%s #%d", name, n), lab.WithKill(name, n)) || t.Failed() {
					break
				}
			}
		}
	}
	report(t, row)
}
