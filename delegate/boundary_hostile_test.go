package delegate

import (
	"encoding/json"
	"slices"
	"strconv"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/delegate/delegateconf"
	"github.com/ovn-multinet/ovn-multinet/internal/hostile"
)

// The plugin does not trust the agent: of 10,000 hostile configurations that reach it unchecked, none has a plugin
// run that the node does not list. What would be given to a plugin is read here as a plugin written in Go reads it.
func TestBoundaryHostileConflists(t *testing.T) {
	delegates, ipam := delegateconf.Shipped()
	allowed := &delegateconf.Allowed{Delegates: delegates, IPAM: ipam}
	run := 0
	for seed := range uint64(10_000) {
		list, err := readConflist(&agentapi.Delegate{Name: "net1", Network: "shop/a", Conflist: []byte(asList(hostile.New(seed).NAD()))})
		if err != nil {
			continue
		}
		e := &executor{allowed: allowed, list: list}
		for _, stub := range list.stubs.Plugins {
			stdin, err := list.request(stub.Bytes, nil)
			if err != nil || e.checkRequest(stub.Network.Type, stdin) != nil {
				continue
			}
			run++
			var p struct {
				Type string `json:"type"`
				IPAM struct {
					Type string `json:"type"`
				} `json:"ipam"`
			}
			if err := json.Unmarshal(stdin, &p); err != nil || !slices.Contains(delegates, p.Type) ||
				p.IPAM.Type != "" && !slices.Contains(ipam, p.IPAM.Type) {
				t.Errorf("seed %d: a plugin would read %+v (%v) from %s", seed, p, err, stdin)
			}
		}
	}
	t.Attr("boundary.hostile-plugins-run", strconv.Itoa(run))
	if run < 100 {
		t.Errorf("%d plugins would run: the tenant does not try hard", run)
	}
}

// asList makes a list of a configuration for one plugin, as the agent does, without a look into it.
func asList(text string) string {
	var list struct{ Plugins json.RawMessage }
	if json.Unmarshal([]byte(text), &list) == nil && list.Plugins != nil {
		return text
	}
	return `{"cniVersion":"1.0.0","name":"a","plugins":[` + text + `]}`
}
