package main

import (
	"encoding/json"
	"net"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/conf"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"ovn-multinetd": main})
}

// TestScripts runs the scripts in testdata against what answers in the agent's place on agent.sock: what is left is
// seen by a dry run and taken away by one that is not. One on broken.sock has no answer but an error.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata",
		Setup: func(e *testscript.Env) error {
			for name, agent := range map[string]func(r *agentapi.Request) agentapi.Response{
				"agent.sock": answer, "empty.sock": empty, "broken.sock": refuse, "ready.sock": ready, "alive.sock": alive,
			} {
				l, err := net.Listen("unix", filepath.Join(e.WorkDir, name))
				if err != nil {
					return err
				}
				e.Defer(func() { _ = l.Close() })
				go serve(l, agent)
			}
			return nil
		},
	})
}

func serve(l net.Listener, agent func(*agentapi.Request) agentapi.Response) {
	for conn, err := l.Accept(); err == nil; conn, err = l.Accept() {
		r := &agentapi.Request{}
		if agentapi.NewReader(conn).Read(r) == nil {
			_ = agentapi.Write(conn, agent(r))
		}
		_ = conn.Close()
	}
}

func answer(r *agentapi.Request) agentapi.Response {
	var q agentapi.GCRequest
	if err := json.Unmarshal(r.Body, &q); err != nil || r.Op != agentapi.OpGC {
		return refuse(r)
	}
	web := agentapi.Sandbox{ContainerID: "0123456789abcdef0123456789abcdef", Interface: "eth0", Conflist: "cbr0", Namespace: "shop", Pod: "web", UID: "u-1"}
	return with(agentapi.StaleSandbox{Sandbox: web, Why: "pod shop/web is gone", Ports: []string{"shop/web/net1"}, HostVeths: []string{"mn0123456789ab"},
		Journal: true, Delegates: []string{"net2 on shop/ext"}, Collected: !q.DryRun})
}

// ready is an agent that would serve a pod.
func ready(r *agentapi.Request) agentapi.Response {
	if r.Op != agentapi.OpStatus {
		return refuse(r)
	}
	return agentapi.Response{Version: agentapi.Version, Body: json.RawMessage("{}")}
}

// alive is an agent that answers.
func alive(r *agentapi.Request) agentapi.Response {
	if r.Op != agentapi.OpAlive {
		return refuse(r)
	}
	return agentapi.Response{Version: agentapi.Version}
}

func empty(*agentapi.Request) agentapi.Response { return with() }

func with(all ...agentapi.StaleSandbox) agentapi.Response {
	body, _ := json.Marshal(agentapi.GCResult{Sandboxes: append([]agentapi.StaleSandbox{}, all...)})
	return agentapi.Response{Version: agentapi.Version, Body: body}
}

func refuse(*agentapi.Request) agentapi.Response {
	return agentapi.Response{Version: agentapi.Version, Error: agentapi.NewError(conf.Errorf(conf.CodeTryAgain, "what to do next", "this node's ports: NB is away"))}
}
