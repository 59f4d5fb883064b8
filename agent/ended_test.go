package agent

import (
	"encoding/json"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
)

// switchd stands in for the control socket of ovs-vswitchd.
type switchd struct {
	mu    sync.Mutex
	calls []string
	fails bool
}

func (r *rig) switchd() *switchd {
	r.t.Helper()
	l, err := net.Listen("unix", filepath.Join(filepath.Dir(r.conf.OVSSocket), "ovs-vswitchd.ctl"))
	r.must(err)
	r.t.Cleanup(func() { l.Close() })
	s := &switchd{}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			var request struct{ Params []string }
			_ = json.NewDecoder(c).Decode(&request)
			s.mu.Lock()
			s.calls = append(s.calls, strings.Join(request.Params, " "))
			answer := `{"id":0,"result":"","error":null}`
			if s.fails {
				answer = `{"id":0,"result":null,"error":"busy"}`
			}
			s.mu.Unlock()
			_, _ = c.Write([]byte(answer))
			c.Close()
		}
	}()
	return s
}

// taken returns the calls since it was last called, sorted.
func (s *switchd) taken() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	slices.Sort(s.calls)
	defer func() { s.calls = nil }()
	return strings.Join(s.calls, "\n")
}

func (s *switchd) fail(fails bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fails = fails
}

// ends adds entries to the list of this node.
func (k *keeper) ends(entries ...string) {
	k.t.Helper()
	ids := map[string]string{"ovn-multinet/kind": "ended-connections", "ovn-multinet/node": k.conf.NodeName}
	for _, e := range entries {
		ids["ovn-multinet/ended:"+e] = "once"
	}
	key := ovndb.EndedKey(k.conf.NodeName)
	k.nb.Transact(k.t, ovndbtest.Op{"op": "delete", "table": "Copp", "where": []any{[]any{"_uuid", "==", ovndbtest.UUID(key)}}})
	k.nb.Transact(k.t, ovndbtest.Op{"op": "insert", "table": "Copp", "uuid": key, "row": ovndbtest.Op{"name": "ended", "external_ids": ovndbtest.Map(ids)}})
}

// forgets has the agent read its list and forget what is due.
func (k *keeper) forgets() error {
	k.t.Helper()
	k.look()
	return k.agent.gateways.ended.pass(k.t.Context(), k.now)
}

// TestEndedConnections: the agent has ovs-vswitchd forget exactly what the node's list says, in the zones of that router
// alone, again while flows may still be the former ones, and deletes the entry after the last time. An error is no turn.
func TestEndedConnections(t *testing.T) {
	k := newKeeper(t)
	if wait := k.look(); wait != memberEvery {
		t.Errorf("a node without a list and without a gateway waits %v", wait)
	}
	k.ends()
	if wait := k.look(); wait != activeEvery {
		t.Errorf("a node with a list waits %v", wait)
	}
	s := k.switchd()
	k.ovs.VSCtl("set", "Bridge", "br-int", `external_ids:ct-zone-shop/r1\:gateway_dnat=6`, `external_ids:ct-zone-shop/r2\:gateway_dnat=7`)
	k.ends("shop/r1 192.0.2.17 10.1.0.7", "of a newer version")
	s.fail(true)
	if err := k.forgets(); err == nil || !strings.Contains(err.Error(), "busy") {
		t.Errorf("error %v", err)
	}
	s.taken()
	s.fail(false)
	const want = "zone=6 ct_nw_dst=192.0.2.17 ct_nw_src=10.1.0.7\nzone=6 ct_nw_src=10.1.0.7 ct_nw_dst=192.0.2.17"
	for range forgetTimes {
		k.must(k.forgets())
		if got := s.taken(); got != want {
			t.Errorf("calls\n%s, want\n%s", got, want)
		}
		k.must(k.agent.gateways.ended.pass(t.Context(), k.now))
		if got := s.taken(); got != "" {
			t.Errorf("calls\n%s before they are due", got)
		}
		k.now = k.now.Add(time.Hour)
	}
	k.must(k.forgets())
	if got := s.taken(); got != "" {
		t.Errorf("calls\n%s after the last turn", got)
	}
	row := fmt.Sprint(k.nb.Dump(t, "Copp"))
	if strings.Contains(row, "192.0.2.17") || !strings.Contains(row, "of a newer version") {
		t.Errorf("rows %s", row)
	}
}

// TestEndedConnectionsOfIPv6: ovs-vswitchd 3.1.0 aborts when it forgets a connection of ICMPv6 by an address.
func TestEndedConnectionsOfIPv6(t *testing.T) {
	k := newKeeper(t)
	s := k.switchd()
	k.ovs.VSCtl("set", "Bridge", "br-int", `external_ids:ct-zone-shop/r1\:gateway_dnat=6`)
	k.ends("shop/r1 2001:db8::5 fd01::7")
	k.must(k.forgets())
	for _, call := range strings.Split(s.taken(), "\n") {
		if !strings.Contains(call, "ct_nw_proto=") || strings.Contains(call, "ct_nw_proto=58") {
			t.Errorf("call %s", call)
		}
	}
}
