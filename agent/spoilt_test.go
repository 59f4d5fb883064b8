package agent

import (
	"errors"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
)

// A NAD that was spoilt, or changed in a way that the controller refuses, keeps no pod from the network as it is.
func TestSpoiltNADsDoNotStopTheirNetworks(t *testing.T) {
	tests := []struct{ name, nad, networks, address string }{
		{"it does not parse as a network", `{"type":"ovn-multinet","subnet":"10.2.0.0/24"}`, "blue", ""},
		{"it is empty", "", "blue", ""},
		{"it is no JSON", `{"type":`, "blue", ""},
		{"a fixed address is only of what is in force", `{"type":"ovn-multinet","subnets":"10.2.0.0/24"}`, `[{"name":"blue","ips":["10.1.0.7"]}]`, "10.1.0.7/24"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t)
			r.source.nads["blue"] = testNAD{Config: tt.nad}
			r.start()
			p, err := r.planFor("c1", tt.networks)
			if err != nil {
				t.Fatal(err)
			}
			if got := p.Interfaces[0].Addresses[0].String(); tt.address != "" && got != tt.address {
				t.Errorf("address %s, want %s", got, tt.address)
			}
			if len(r.ports()) != 1 {
				t.Errorf("ports %v, want one", r.ports())
			}
		})
	}
}

// What is wrong with both, the NAD and what is in force, is said of the NAD.
func TestWrongByBoth(t *testing.T) {
	r := newRig(t)
	r.source.nads["blue"] = testNAD{Config: `{"type":"ovn-multinet","subnets":"10.2.0.0/24"}`}
	r.start()
	_, err := r.planFor("c1", `[{"name":"blue","ips":["192.0.2.1"]}]`)
	if !conf.HasCode(err, conf.CodeInvalidConfig) || len(r.ports()) != 0 {
		t.Errorf("%v, ports %v", err, r.ports())
	}
}

// An ADD whose first answer was lost may have made its ports: whatever comes then, it does not say that nothing was.
func TestLostAnswersAreRemembered(t *testing.T) {
	for name, meanwhile := range map[string]func(*rig){
		"the NAD is withdrawn": func(r *rig) { r.withdraw("blue", blue) },
		"the network changes, and its NAD is being deleted": func(r *rig) {
			r.accept("blue", `{"type":"ovn-multinet","subnets":"10.1.0.0/24","mtu":1300}`)
			r.source.nads["blue"] = testNAD{Config: blue, Deleting: true}
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.start()
			writes := 0
			r.proxy.DropNextReply()
			r.proxy.Before(func(tx ovndbtest.Transact) {
				if tx.Writes {
					if writes++; writes == 2 {
						meanwhile(r)
					}
				}
			})
			_, err := r.planFor("c1", "blue")
			r.proxy.Before(nil)
			if err == nil || len(r.ports()) != 1 {
				t.Fatalf("%v, ports %v: want a failure that leaves the port", err, r.ports())
			}
			if errors.Is(err, agentapi.ErrClean) {
				t.Errorf("%v: it says that nothing is left", err)
			}
		})
	}
}
