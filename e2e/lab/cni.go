package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"
	"github.com/dsnet/try"
)

// annotationsCapability has containerd (1.6 and up) and CRI-O pass the pod's annotations.
const annotationsCapability = "io.kubernetes.cri.pod-annotations"

// A CallOption changes one CNI call.
type CallOption func(*call)

type call struct {
	env           []string
	noAnnotations bool
	noCache       bool
	onlyOurs      bool
	prevResult    types.Result
	strace        []string // arguments of strace; none: the plugin runs without it
	netns         *string
	conflist      []byte
	plugins       []string
}

func newCall(opts []CallOption) *call {
	c := &call{}
	for _, opt := range opts {
		opt(c)
	}
	return c
}

// WithEnv adds K=V to the environment of our plugin's process, not of the others'.
func WithEnv(env ...string) CallOption { return func(c *call) { c.env = append(c.env, env...) } }

// WithoutAnnotations is a runtime that does not know the capability.
func WithoutAnnotations() CallOption { return func(c *call) { c.noAnnotations = true } }

// WithoutCache is a runtime that has lost libcni's cache: no prevResult on Del and Check.
func WithoutCache() CallOption { return func(c *call) { c.noCache = true } }

// OnlyOurs leaves the other plugins of the chain out; ours is given this result of theirs, nil for none.
func OnlyOurs(prevResult types.Result) CallOption {
	return func(c *call) { c.onlyOurs, c.prevResult = true, prevResult }
}

// WithStrace runs our plugin under strace -f, which writes to file.
func WithStrace(file string) CallOption {
	return func(c *call) { c.strace = []string{"-tt", "-s", "256", "-o", file} }
}

// WithKill kills a process of our plugin, or of one that it runs, when one of its threads makes the n-th system call of
// that name.
func WithKill(systemCall string, n int) CallOption {
	return func(c *call) {
		c.strace = []string{"-qq", "-o", "/dev/null", "-e", "trace=" + systemCall,
			"-e", fmt.Sprintf("inject=%s:signal=KILL:when=%d", systemCall, n)}
	}
}

// WithConfList runs another conflist than the node's, with plugins of these folders too.
func WithConfList(conflist []byte, folders ...string) CallOption {
	return func(c *call) { c.conflist, c.plugins = conflist, folders }
}

// WithNetNS passes another path than the pod's, such as "" or one that is gone.
func WithNetNS(path string) CallOption { return func(c *call) { c.netns = &path } }

// A Run is one run of a plugin's binary.
type Run struct {
	Plugin      string // its type
	Command     string // ADD, DEL, ...
	ContainerID string
	Start       time.Time
	Took        time.Duration
	CPU         time.Duration // user and system, with children
	Stderr      string
	Err         error
}

// Runs returns what ran on the node so far, in the order of their ends.
func (n *Node) Runs() []Run {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.runs)
}

// ForgetRuns empties Runs.
func (n *Node) ForgetRuns() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.runs = nil
}

// runtime is libcni as a runtime on the node uses it, for one call.
func (n *Node) runtime(c *call) (_ *libcni.CNIConfig, _ *libcni.NetworkConfigList, err error) {
	defer try.Handle(&err)
	b := try.E1(n.ConfList())
	if c.onlyOurs {
		b = try.E1(n.onlyOurs(c.prevResult))
	}
	if c.conflist != nil {
		b = c.conflist
	}
	list := try.E1(libcni.NetworkConfFromBytes(b))
	cache := n.cacheDir()
	if c.noCache {
		cache = n.emptyCacheDir()
	}
	path := append([]string{n.lab.bins.CNI}, c.plugins...)
	if n.lab.bins.Ours != "" {
		path = append(path, n.lab.bins.Ours)
	}
	return libcni.NewCNIConfigWithCacheDir(path, cache, &pluginExec{node: n, call: c}), list, nil
}

func (n *Node) onlyOurs(prevResult types.Result) ([]byte, error) {
	entry := n.ourPlugin()
	if prevResult != nil {
		r, err := prevResult.GetAsVersion(n.CNIVersion)
		if err != nil {
			return nil, err
		}
		entry["prevResult"] = r
	}
	return json.Marshal(n.conflist([]map[string]any{entry}))
}

// Status asks the chain for its readiness; CNI 1.1.0 and up.
func (n *Node) Status(ctx context.Context, opts ...CallOption) error {
	cni, list, err := n.runtime(newCall(opts))
	if err != nil {
		return err
	}
	return cni.GetStatusNetworkList(ctx, list)
}

// GC tells the chain that only these pods are attached still; CNI 1.1.0 and up. What libcni's cache knows
// beside them is deleted first.
func (n *Node) GC(ctx context.Context, valid []*Pod, opts ...CallOption) error {
	cni, list, err := n.runtime(newCall(opts))
	if err != nil {
		return err
	}
	args := &libcni.GCArgs{ValidAttachments: []types.GCAttachment{}}
	for _, p := range valid {
		args.ValidAttachments = append(args.ValidAttachments, types.GCAttachment{ContainerID: p.Sandbox, IfName: primaryIfName})
	}
	return cni.GCNetworkList(ctx, list, args)
}

// pluginExec runs plugins in the node's network namespace, as a runtime on the node would.
type pluginExec struct {
	version.PluginDecoder
	node *Node
	call *call
}

func (e *pluginExec) FindInPath(plugin string, paths []string) (string, error) {
	return invoke.FindInPath(plugin, paths)
}

// ExecPlugin kills only its direct child when ctx ends, as libcni's own does.
func (e *pluginExec) ExecPlugin(ctx context.Context, path string, stdin []byte, env []string) ([]byte, error) {
	plugin := filepath.Base(path)
	args := []string{path}
	if plugin == PluginType {
		env = append(env, e.call.env...)
		if e.call.strace != nil {
			args = slices.Concat([]string{"strace", "-f"}, e.call.strace, args)
		}
	}
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = env, bytes.NewReader(stdin), &stdout, &stderr
	// A grandchild that outlives a killed plugin holds its pipes: don't wait for it for ever.
	cmd.WaitDelay = 10 * time.Second

	run := Run{Plugin: plugin, Start: time.Now()}
	for _, kv := range env {
		if v, ok := strings.CutPrefix(kv, "CNI_COMMAND="); ok {
			run.Command = v
		} else if v, ok := strings.CutPrefix(kv, "CNI_CONTAINERID="); ok {
			run.ContainerID = v
		}
	}
	err := startIn(e.node.NetNS, cmd)
	if err == nil {
		err = cmd.Wait()
		run.CPU = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	}
	run.Took, run.Stderr = time.Since(run.Start), stderr.String()
	if err != nil {
		run.Err = pluginError(plugin, err, stdout.Bytes(), run.Stderr)
	}
	e.node.mu.Lock()
	e.node.runs = append(e.node.runs, run)
	e.node.mu.Unlock()
	return stdout.Bytes(), run.Err
}

// pluginError is the error that the plugin printed, or one that says how it ended without.
func pluginError(plugin string, err error, stdout []byte, stderr string) error {
	printed := &types.Error{}
	if json.Unmarshal(stdout, printed) == nil && (printed.Code != 0 || printed.Msg != "") {
		return printed
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) || errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("%s printed no error: %w: stdout %q, stderr %q", plugin, err, stdout, stderr)
	}
	return fmt.Errorf("run %s: %w", plugin, err)
}
