package main

import (
	"encoding/json"
	"net"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/plan"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"ovn-multinetd": main})
}

// TestScripts runs the scripts in testdata against what answers in the agent's place on agent.sock: what is left is seen by a
// dry run and taken away by one that is not. One on broken.sock has no answer but an error.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata",
		Setup: func(e *testscript.Env) error {
			for name, agent := range map[string]func(r *plan.Request) plan.Response{"agent.sock": answer, "empty.sock": empty, "broken.sock": refuse} {
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

func serve(l net.Listener, agent func(*plan.Request) plan.Response) {
	for conn, err := l.Accept(); err == nil; conn, err = l.Accept() {
		r := &plan.Request{}
		if plan.NewReader(conn).Read(r) == nil {
			_ = plan.Write(conn, agent(r))
		}
		_ = conn.Close()
	}
}

func answer(r *plan.Request) plan.Response {
	var q plan.GCRequest
	if err := json.Unmarshal(r.Body, &q); err != nil || r.Op != plan.OpGC {
		return refuse(r)
	}
	web := plan.Sandbox{ContainerID: "0123456789abcdef0123456789abcdef", Interface: "eth0", Conflist: "cbr0", Namespace: "shop", Pod: "web", UID: "u-1"}
	return with(plan.Remainder{Sandbox: web, Why: "pod shop/web is gone", Ports: []string{"shop/web/net1"}, HostEnds: []string{"mn0123456789ab"},
		Journal: true, Delegates: []string{"net2 on shop/ext"}, Taken: !q.DryRun})
}

func empty(*plan.Request) plan.Response { return with() }

func with(all ...plan.Remainder) plan.Response {
	body, _ := json.Marshal(plan.Remains{Containers: append([]plan.Remainder{}, all...)})
	return plan.Response{Version: plan.Version, Body: body}
}

func refuse(*plan.Request) plan.Response {
	return plan.Response{Version: plan.Version, Error: plan.NewError(conf.Errorf(conf.CodeTryAgain, "what to do next", "this node's ports: NB is away"))}
}
