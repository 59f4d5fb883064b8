package lab

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
)

// standIn plays the project's own binaries, by the name under which the test binary is run: it shows what the
// lab hands to them.
func standIn() {
	flag := func(name string) string {
		return os.Args[slices.Index(os.Args, name)+1]
	}
	var err error
	var held any // what nobody refers to is closed by the garbage collector
	switch filepath.Base(os.Args[0]) {
	case "ovn-multinet":
		os.Exit(standInPlugin())
	case "ovn-multinetd":
		if os.Getenv("STAND_IN_FAILS") != "" {
			fmt.Println("no keys")
			os.Exit(7)
		}
		held, err = net.Listen("unix", flag("--socket"))
	case "ovn-multinet-controller":
		held, err = net.Dial("tcp", strings.TrimPrefix(flag("--nb-endpoints"), "tcp:"))
	default:
		return
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	// Only now: the program proper has to die of SIGTERM.
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	<-stop
	runtime.KeepAlive(held)
	os.Exit(0)
}

// seen is what the plugin was called with; its stand-in writes it to the conf's logFile.
type seen struct {
	Env           []string
	PrevResult    json.RawMessage `json:"prevResult"`
	LogFile       string          `json:"logFile"`
	RuntimeConfig map[string]map[string]string
}

func standInPlugin() int {
	var s seen
	in, _ := io.ReadAll(os.Stdin)
	_ = json.Unmarshal(in, &s)
	s.Env = os.Environ()
	out, _ := json.Marshal(s)
	_ = os.WriteFile(s.LogFile, out, 0o644)
	if os.Getenv("STAND_IN_FAILS") != "" {
		fmt.Print(`{"cniVersion":"1.0.0","code":104,"msg":"no address left"}`)
		return 1
	}
	if os.Getenv("CNI_COMMAND") == "ADD" {
		fmt.Print(string(s.PrevResult))
	}
	return 0
}

// withStandIns starts a lab whose own binaries are stand-ins.
func withStandIns(t *testing.T) (*Lab, *Node) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	l := Start(t, Options{})
	l.bins.Ours = t.TempDir()
	for _, name := range []string{"ovn-multinet", "ovn-multinetd", "ovn-multinet-controller"} {
		if err := os.Symlink(self, filepath.Join(l.bins.Ours, name)); err != nil {
			t.Fatal(err)
		}
	}
	return l, l.Nodes[0]
}

func (n *Node) seen(t *testing.T) (s seen) {
	t.Helper()
	b, err := os.ReadFile(n.PluginLog)
	if err == nil {
		err = json.Unmarshal(b, &s)
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestOurPluginIsCalledAsByContainerd(t *testing.T) {
	_, n := withStandIns(t)
	ctx := t.Context()
	p, err := n.NewPod(ctx, "shop", "web", map[string]string{"colour": "blue"})
	if err != nil {
		t.Fatal(err)
	}
	result, err := p.Add(ctx, WithEnv("OF_OURS=yes"))
	if err != nil {
		t.Fatal(err)
	}
	if len(result.IPs) != 1 {
		t.Errorf("the result that came through has addresses %v, want Flannel's", result.IPs)
	}
	s := n.seen(t)
	args := "CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web;K8S_POD_INFRA_CONTAINER_ID=" +
		p.Sandbox + ";K8S_POD_UID=" + p.UID
	for _, want := range []string{args, "OF_OURS=yes", "CNI_IFNAME=eth0", "CNI_NETNS=" + p.NetNS, "CNI_COMMAND=ADD"} {
		if !slices.Contains(s.Env, want) {
			t.Errorf("the environment lacks %s", want)
		}
	}
	annotations := s.RuntimeConfig["io.kubernetes.cri.pod-annotations"]
	if annotations["colour"] != "blue" || annotations["kubernetes.io/config.source"] != "api" {
		t.Errorf("annotations: %v", annotations)
	}

	if err := p.RemoveNetNS(); err != nil {
		t.Fatal(err)
	}
	if err := p.Del(ctx, OnlyOurs(result), WithoutAnnotations(), WithoutCache()); err != nil {
		t.Fatal(err)
	}
	s = n.seen(t)
	if s.RuntimeConfig != nil || !slices.Contains(s.Env, "CNI_NETNS=") || len(s.PrevResult) == 0 {
		t.Errorf("DEL alone, after the netns: runtimeConfig %v, prevResult %s", s.RuntimeConfig, s.PrevResult)
	}
}

func TestOurPluginsErrorKeepsItsCode(t *testing.T) {
	_, n := withStandIns(t)
	p := newPod(t, n, "p")
	trace := filepath.Join(t.TempDir(), "trace")
	_, err := p.Add(t.Context(), WithEnv("STAND_IN_FAILS=yes"), WithStrace(trace))
	var cniErr *types.Error
	if !errors.As(err, &cniErr) || cniErr.Code != 104 {
		t.Errorf("got %v, want code 104", err)
	}
	if b, err := os.ReadFile(trace); err != nil || !strings.Contains(string(b), "execve(") {
		t.Errorf("strace's file: %v", err)
	}
	if runs := n.Runs(); runs[len(runs)-1].Plugin != PluginType || runs[len(runs)-1].Took <= 0 {
		t.Errorf("runs: %+v", runs)
	}
}

func TestAgentAndController(t *testing.T) {
	l, n := withStandIns(t)
	ctx := t.Context()
	if err := errors.Join(l.StartAgents(ctx), l.StartController(ctx)); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(n.KillAgent(), l.StopController(ctx)); err != nil {
		t.Fatal(err)
	}
	if n.Agent.Running() || l.Controller.Running() {
		t.Error("agent or controller still runs")
	}
	if err := os.Remove(n.AgentSocket); err != nil {
		t.Fatal(err)
	}
	err := n.StartAgent(ctx, "STAND_IN_FAILS=yes")
	if err == nil || !strings.Contains(err.Error(), "exit status 7") || !strings.Contains(err.Error(), "no keys") {
		t.Errorf("start of an agent that ends: %v", err)
	}
}
