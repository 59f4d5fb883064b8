package plugin

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"

	"github.com/ovn-multinet/ovn-multinet/conf"
)

// stdin is our entry of a conflist as the runtime hands it.
func stdin(stateDir, annotations, prevResult string) []byte {
	text := fmt.Sprintf(`{"cniVersion":"1.0.0","name":"cbr0","type":"ovn-multinet","stateDir":%q,"agentSocket":%q,"timeout":"1s","logFile":%q`,
		stateDir, filepath.Join(stateDir, "none.sock"), filepath.Join(stateDir, "log"))
	if annotations != "" {
		text += `,"runtimeConfig":{"io.kubernetes.cri.pod-annotations":` + annotations + `}`
	}
	if prevResult != "" {
		text += `,"prevResult":` + prevResult
	}
	return []byte(text + "}")
}

const prevResult = `{"cniVersion":"1.0.0","ips":[{"address":"10.244.1.2/24"}],  "dns":{}, "x-unknown":[1,2]}`

func callArgs(text []byte) *skel.CmdArgs {
	return &skel.CmdArgs{ContainerID: "c1", IfName: "eth0", StdinData: text, Args: "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web"}
}

// TestPlainPod: without an annotation of ours the result goes through byte for byte, and nothing is touched.
// Conformance: N-128 C-30 C-62 C-63 C-138 C-140
func TestPlainPod(t *testing.T) {
	state := filepath.Join(t.TempDir(), "state")
	for name, annotations := range map[string]string{"none": `{}`, "others'": `{"kubernetes.io/config.source":"api"}`} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			if err := (&Plugin{Stdout: &out}).Add(callArgs(stdin(state, annotations, prevResult))); err != nil {
				t.Fatal(err)
			}
			if got := strings.TrimSuffix(out.String(), "\n"); got != prevResult {
				t.Errorf("printed %s, want %s", got, prevResult)
			}
			if exists(state) {
				t.Error("it made its state folder for a plain pod")
			}
		})
	}
}

// TestEdge: whatever goes wrong inside is a CNI error with a code, of one line, without the configuration in it.
// Conformance: N-127 N-134 C-27 C-146 C-147 F-20 F-21
func TestEdge(t *testing.T) {
	state := t.TempDir()
	secret := `{"cniVersion":"1.0.0","name":"cbr0","type":"ovn-multinet","agentSockett":"/x","token":"s3cret"}`
	for _, c := range []struct {
		name string
		run  func(*skel.CmdArgs) error
		text []byte
		code uint
		word string
	}{
		{"panic", func(*skel.CmdArgs) error { panic("index\nout of range") }, stdin(state, "", prevResult), conf.CodeInternal, "panic: index out of range"},
		{"plain error", func(*skel.CmdArgs) error { return errors.New("two\nlines") }, stdin(state, "", prevResult), conf.CodeInternal, "two lines"},
		{"wrapped", func(*skel.CmdArgs) error { return fmt.Errorf("interface net1: %w", conf.Errorf(103, "d", "held")) }, stdin(state, "", ""), 103, "interface net1: held"},
		{"unknown key", (&Plugin{}).Add, []byte(secret), conf.CodeDecoding, `"agentSockett"`},
		{"no prevResult", (&Plugin{}).Add, stdin(state, "{}", ""), conf.CodeInvalidConfig, "prevResult"},
		{"not ready", (&Plugin{}).Status, stdin(state, "", ""), conf.CodeNotAvailable, "not ready"},
		{"no pod named", func(a *skel.CmdArgs) error { a.Args = ""; return (&Plugin{}).Add(a) },
			stdin(state, `{"k8s.v1.cni.cncf.io/networks":"blue"}`, prevResult), conf.CodeEnvironment, "K8S_POD_NAME"},
		{"no agent", (&Plugin{}).Add, stdin(state, `{"k8s.v1.cni.cncf.io/networks":"blue"}`, prevResult), conf.CodeTryAgain, "none.sock"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := edge("ADD", c.run)(callArgs(c.text))
			var e *types.Error
			if !errors.As(err, &e) {
				t.Fatalf("got %v, want a CNI error", err)
			}
			if e.Code != c.code || !strings.Contains(e.Msg, c.word) || strings.Contains(e.Msg, "\n") {
				t.Errorf("got code %d, %q; want %d and %q in one line", e.Code, e.Msg, c.code, c.word)
			}
			if all := e.Msg + e.Details; strings.Contains(all, "s3cret") {
				t.Errorf("the configuration's text is in the error: %s", all)
			}
		})
	}
	log, err := os.ReadFile(filepath.Join(state, "log"))
	if err != nil || !strings.Contains(string(log), "pod=shop/web") || !strings.Contains(string(log), "cmd=ADD") {
		t.Errorf("the log has no line of the call: %q, %v", log, err)
	}
}

// TestAddWithoutAgentLeavesNothing: nobody heard the request, so there is nothing to release.
func TestAddWithoutAgentLeavesNothing(t *testing.T) {
	state := t.TempDir()
	err := (&Plugin{}).Add(callArgs(stdin(state, `{"k8s.v1.cni.cncf.io/networks":"blue"}`, prevResult)))
	if !conf.HasCode(err, conf.CodeTryAgain) {
		t.Fatalf("got %v", err)
	}
	for _, dir := range []string{"attached", "release"} {
		if got := files(t, state, dir); len(got) != 0 {
			t.Errorf("%s/ has %q", dir, got)
		}
	}
}

// TestAddWithAgentThatVanishes: it heard the request and may have written ports. Its successor finds the release.
func TestAddWithAgentThatVanishes(t *testing.T) {
	state := t.TempDir()
	l, err := net.Listen("unix", filepath.Join(state, "none.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Read(make([]byte, 1))
			_ = conn.Close()
		}
	}()
	err = (&Plugin{}).Add(callArgs(stdin(state, `{"k8s.v1.cni.cncf.io/networks":"blue"}`, prevResult)))
	if !conf.HasCode(err, conf.CodeTryAgain) {
		t.Fatalf("got %v", err)
	}
	if got := files(t, state, "attached"); len(got) != 0 {
		t.Errorf("attached/ has %q", got)
	}
	if got := files(t, state, "release"); len(got) != 1 || got[0] != "c1@eth0" {
		t.Errorf("release/ has %q, want c1@eth0", got)
	}
}

// TestDelOfTheUnknown is what a plain pod's DEL is: success, and nothing made.
// Conformance: C-42
func TestDelOfTheUnknown(t *testing.T) {
	state := filepath.Join(t.TempDir(), "state")
	for range 2 {
		if err := (&Plugin{}).Del(callArgs(stdin(state, "", ""))); err != nil {
			t.Fatal(err)
		}
	}
	if exists(state) {
		t.Error("it made its state folder for a plain pod")
	}
}
