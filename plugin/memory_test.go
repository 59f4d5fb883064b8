package plugin

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/internal/nettest"
)

// What delegates report is bounded for all of a pod together: journal, agent and network-status hold it. What was
// made until then is undone.
func TestBoundaryResultsTogether(t *testing.T) {
	n := newNode(t)
	n.write("result alpha", `{"cniVersion":"1.1.0","dns":{"domain":"`+strings.Repeat("x", 100<<10)+`"}}`)
	alpha := of(`{"type":"alpha"}`, "")
	n.plans(n.attachments("c1", alpha, alpha, alpha, alpha).Plan)
	args := n.argsOf("c1", `,"runtimeConfig":{"io.kubernetes.cri.pod-annotations":{"k8s.v1.cni.cncf.io/networks":"ext,ext,ext,ext"}},"prevResult":`+prevResult)
	var out bytes.Buffer
	wantError(t, (&Plugin{Stdout: &out}).Add(args), conf.CodeDelegateFailed,
		"interface net3: network shop/ext: the results of the pod's networks up to this one: 3", " bytes are more than 262144")
	n.wantCalled("ADD", "ADD alpha net1", "ADD alpha net2", "ADD alpha net3", "DEL alpha net3", "DEL alpha net2", "DEL alpha net1")
	for _, dir := range []string{"attached", "results/results"} {
		if left := files(t, n.state, dir); len(left) > 0 {
			t.Errorf("%s has %q", dir, left)
		}
	}
}

// The plugin says that it reads shared conflists, and its bind is without configurations: neither request grows
// with what tenants write into NADs. The journal has each conflist once.
func TestBoundaryRequestsOfThePlugin(t *testing.T) {
	if !nettest.InOwn(t) {
		return
	}
	const size = 200 << 10
	n := newNode(t)
	n.pod = nettest.Namespace(t)
	large := of(`{"type":"alpha","note":"`+strings.Repeat("x", size)+`"}`, "")
	l, err := net.Listen("unix", filepath.Join(n.state, "sock"))
	n.must(err)
	t.Cleanup(func() { _ = l.Close() })
	body, err := json.Marshal(n.attachments("c1", large, large, large).Plan)
	n.must(err)
	var mu sync.Mutex
	asked, journalled := map[string][]byte{}, 0
	go func() {
		for conn, err := l.Accept(); err == nil; conn, err = l.Accept() {
			requests := agentapi.NewReader(conn)
			for r := (agentapi.Request{}); requests.Read(&r) == nil; r = (agentapi.Request{}) {
				mu.Lock()
				asked[r.Op] = r.Body
				journalled = max(journalled, len(n.read("s/attached/c1@eth0")))
				mu.Unlock()
				_ = agentapi.Write(conn, agentapi.Response{Version: agentapi.Version, Body: body})
			}
			_ = conn.Close()
		}
	}()
	args := n.argsOf("c1", `,"runtimeConfig":{"io.kubernetes.cri.pod-annotations":{"k8s.v1.cni.cncf.io/networks":"ext,ext,ext"}},"prevResult":`+prevResult)
	var out bytes.Buffer
	n.must((&Plugin{Stdout: &out}).Add(args))
	mu.Lock()
	defer mu.Unlock()
	t.Attr("boundary.bytes-per-bind", fmt.Sprint(len(asked[agentapi.OpBind])))
	t.Attr("boundary.bytes-per-journal-entry", fmt.Sprint(journalled))
	if !bytes.Contains(asked[agentapi.OpPlan], []byte(`"sharing":true`)) {
		t.Errorf("the plan is asked for with %s", asked[agentapi.OpPlan])
	}
	var bind agentapi.BindRequest
	n.must(json.Unmarshal(asked[agentapi.OpBind], &bind))
	if len(asked[agentapi.OpBind]) > 8<<10 || len(bind.Plan.Delegates) != 3 || len(bind.Results) != 3 || bind.Plan.Delegates[2].Name != "net3" {
		t.Errorf("a bind of %d bytes with %d delegates and %d results", len(asked[agentapi.OpBind]), len(bind.Plan.Delegates), len(bind.Results))
	}
	if journalled < size || journalled > size+16<<10 {
		t.Errorf("the entry has %d bytes, for one conflist of %d", journalled, size)
	}
	n.called()
	n.must((&Plugin{}).Del(n.args))
	n.wantCalled("DEL", "DEL alpha net3", "DEL alpha net2", "DEL alpha net1")
}
