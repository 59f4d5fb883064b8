package agent

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/time/rate"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/nad"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
)

const earlyOfWeb = "early-u-1" // the sandbox of the early ports of shop/web

// boundPod is the pod shop/web with these networks, as the source tells the agent of it.
func (r *rig) boundPod(networks string) *netmodel.Pod {
	r.source.mu.Lock()
	defer r.source.mu.Unlock()
	r.source.annotations = map[string]string{conf.NetworksAnnotation: networks}
	return &netmodel.Pod{Namespace: "shop", Name: "web", UID: "u-1", Node: "node1", Annotations: r.source.annotations}
}

// earlyDone waits until no early ports are being written, and returns the ports in NB with their sandboxes.
func (r *rig) earlyDone() map[string]string {
	r.t.Helper()
	e := r.agent.early
	e.mu.Lock()
	pods := slices.Collect(maps.Values(e.pods))
	e.mu.Unlock()
	for _, p := range pods {
		<-p.done
	}
	return r.ports()
}

// known returns how many pods have early ports, as far as the agent knows.
func (e *earlyPorts) known() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.pods)
}

func (r *rig) wantPorts(want map[string]string) {
	r.t.Helper()
	if got := r.ports(); !maps.Equal(got, want) {
		r.t.Errorf("ports in NB, with their sandboxes: %v, want %v", got, want)
	}
}

// wantRows compares a plan with the ports in NB.
func (r *rig) wantRows(p *agentapi.Plan) {
	r.t.Helper()
	rows := map[string]string{}
	for _, row := range r.nb.Dump(r.t, "Logical_Switch_Port") {
		rows[row["_uuid"].(string)] = fmt.Sprint(row["name"], " ", row["addresses"])
	}
	for _, i := range p.Interfaces {
		want := fmt.Sprint(i.Port.Name, " ", i.MAC, " ", i.Addresses[0].Addr())
		if got := rows[i.Port.UUID]; got != want {
			r.t.Errorf("interface %s: row %q, want %q", i.Name, got, want)
		}
	}
}

// keysOfRows returns the row keys of all ports.
func (r *rig) keysOfRows() (keys []string) {
	for _, row := range r.nb.Dump(r.t, "Logical_Switch_Port") {
		keys = append(keys, row["_uuid"].(string))
	}
	slices.Sort(keys)
	return keys
}

// The ports of a pod that is bound to the node are there before its ADD. The ADD takes them over in one transaction,
// without a read, and keeps their addresses.
func TestEarlyPorts(t *testing.T) {
	r := newRig(t)
	r.start()
	r.agent.PodBound(r.boundPod("blue,blue"))
	if got := r.earlyDone(); !maps.Equal(got, map[string]string{"shop/web/net1": earlyOfWeb, "shop/web/net2": earlyOfWeb}) {
		t.Fatalf("early ports: %v", got)
	}
	keys := r.keysOfRows()
	r.wantCounts(1, 0, 0)
	p, err := r.plan("c1")
	r.must(err)
	r.wantCounts(1, 0, 0)
	r.wantPorts(map[string]string{"shop/web/net1": "c1", "shop/web/net2": "c1"})
	if now := r.keysOfRows(); !slices.Equal(now, keys) {
		t.Errorf("rows %v, want %v", now, keys)
	}
	r.wantRows(p)
	if n := r.agent.early.known(); n != 0 {
		t.Errorf("the agent still has early ports of %d pods", n)
	}
	all, err := r.agent.ports.Read(t.Context())
	r.must(err)
	for _, port := range all {
		if port.Owner.Sandbox != "c1" {
			t.Errorf("the port list has %s of sandbox %s", port.Name, port.Owner.Sandbox)
		}
	}
}

// A pod that is deleted before its ADD gives its early ports back.
func TestEarlyPortsOfAGonePod(t *testing.T) {
	r := newRig(t)
	r.start()
	r.agent.PodBound(r.boundPod("blue,blue"))
	r.earlyDone()
	r.source.end()
	r.eventually("given back", func() bool { return len(r.ports()) == 0 })
	r.eventually("forgotten", func() bool { return r.agent.early.known() == 0 })

	pod := r.boundPod("blue")
	r.source.mu.Lock()
	r.source.ends = true // while the agent learns of it
	r.source.mu.Unlock()
	r.agent.PodBound(pod)
	r.eventually("forgotten", func() bool { return r.agent.early.known() == 0 })
	r.wantPorts(map[string]string{})
}

// What was changed between the binding and the ADD counts: the ADD makes its plan anew, and no early port stays.
func TestEarlyPortsOfAChangedPod(t *testing.T) {
	const other = `{"type":"ovn-multinet","subnets":"10.9.0.0/24","mtu":1400}`
	for _, tt := range []struct {
		name   string
		change func(*rig)
		plan   string
		want   map[string]string
	}{
		{"fewer networks", func(*rig) {}, "blue", map[string]string{"shop/web/net1": "c1"}},
		{"another name", func(*rig) {}, "blue@new0", map[string]string{"shop/web/new0": "c1"}},
		{"another address", func(*rig) {}, `[{"name":"blue","ips":["10.1.0.77"]},{"name":"blue"}]`,
			map[string]string{"shop/web/net1": "c1", "shop/web/net2": "c1"}},
		{"no networks", func(*rig) {}, "", map[string]string{}},
		{"another network", func(r *rig) {
			r.source.mu.Lock()
			defer r.source.mu.Unlock()
			r.source.nads["blue"] = testNAD{Config: other}
			r.accept("blue", other)
		}, "blue,blue", map[string]string{"shop/web/net1": "c1", "shop/web/net2": "c1"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t)
			r.start()
			r.agent.PodBound(r.boundPod("blue,blue"))
			r.earlyDone()
			tt.change(r)
			p, err := r.planFor("c1", tt.plan)
			r.must(err)
			r.eventually("as it is now", func() bool { return maps.Equal(r.ports(), tt.want) })
			r.wantRows(p)
			if claims := len(r.nb.Dump(t, "Copp")); claims > 3 { // the port list, the chassis, the owner of NB
				t.Errorf("%d rows of Copp", claims)
			}
		})
	}
}

// An ADD that comes while the early ports are written waits for them, and takes them over.
func TestEarlyPortsBeingWritten(t *testing.T) {
	r := newRig(t)
	r.start()
	written, proceed := make(chan struct{}), make(chan struct{})
	r.proxy.Before(func(tx ovndbtest.Transact) {
		if insertsPort(tx) {
			close(written)
			<-proceed
			r.proxy.Before(nil)
		}
	})
	r.agent.PodBound(r.boundPod("blue"))
	<-written
	planned := make(chan error, 1)
	go func() {
		_, err := r.planFor("c1", "blue")
		planned <- err
	}()
	r.eventually("planning", func() bool { return r.agent.sandboxes.usersOf("c1") == 1 })
	close(proceed)
	r.must(<-planned)
	r.wantCounts(2, 0, 0)
	r.wantPorts(map[string]string{"shop/web/net1": "c1"})
}

// An ADD that comes before the pod's turn does not wait, and the pod gets no early ports any more.
func TestEarlyPortsTooLate(t *testing.T) {
	r := newRig(t)
	r.start()
	r.agent.early.limit, r.agent.early.jitter = rate.NewLimiter(rate.Inf, 0), 1000*time.Hour // no pod's turn comes
	r.agent.PodBound(r.boundPod("blue"))
	e := r.agent.early
	e.mu.Lock()
	p := e.pods["u-1"]
	e.mu.Unlock()
	_, err := r.planFor("c1", "blue")
	r.must(err)
	<-p.done
	r.wantCounts(1, 0, 0)
	r.wantPorts(map[string]string{"shop/web/net1": "c1"})
	if n := e.known(); n != 0 {
		t.Errorf("the agent still waits to write early ports of %d pods", n)
	}
}

// A pod that has its ports already keeps them: the agent was restarted, or learned of the pod after its ADD.
func TestEarlyPortsTakeNothingOver(t *testing.T) {
	r := newRig(t)
	r.start()
	_, err := r.planFor("c1", "blue")
	r.must(err)
	r.agent.PodBound(r.boundPod("blue"))
	r.earlyDone()
	r.wantPorts(map[string]string{"shop/web/net1": "c1"})

	r.agent.PodBound(r.boundPod("blue,blue")) // one of two is free: the pod gets both or none
	r.earlyDone()
	r.wantPorts(map[string]string{"shop/web/net1": "c1"})
}

// Early ports that an agent wrote before its restart are taken over like those of an older sandbox.
func TestEarlyPortsOfAnotherAgent(t *testing.T) {
	r := newRig(t)
	r.start()
	r.agent.PodBound(r.boundPod("blue"))
	r.earlyDone()
	keys := r.keysOfRows()
	r.restart()
	_, err := r.planFor("c1", "blue")
	r.must(err)
	r.wantPorts(map[string]string{"shop/web/net1": "c1"})
	if now := r.keysOfRows(); !slices.Equal(now, keys) {
		t.Errorf("rows %v, want %v", now, keys)
	}
}

// Early ports whose ADD does not come are stale after a period, and so are those of a pod that is gone.
func TestEarlyPortsWithoutAnADD(t *testing.T) {
	r := newLooked(t)
	r.lease(owner(earlyOfWeb, "web", "u-1"), "net1", "net2")
	r.lease(owner("early-u-9", "gone", "u-9"), "net1")
	want := []string{"early-u-1: no ADD has taken its early ports over", "early-u-9: pod shop/gone is gone"}
	r.wantSaid("at first", r.look(false), want...)
	r.later()
	r.wantSaid("a period later", r.look(false), "!"+want[0], "!"+want[1])
	r.wantPorts(map[string]string{})
	if log := r.log.String(); strings.Contains(log, "must be deleted by hand") {
		t.Errorf("the log asks for work by hand: %s", log)
	}
}

// Only the ports of OVN networks are written early. Other pods get none.
func TestEarlyPortsOfWhichPods(t *testing.T) {
	attached := map[string]string{
		conf.NetworksAnnotation: "blue", nad.StatusAnnotation: `[{"name":"cbr0","default":true},{"name":"shop/blue","interface":"net1"}]`,
	}
	for _, tt := range []struct {
		name        string
		annotations map[string]string
		uid         string
		want        map[string]string
	}{
		{"beside a delegate", map[string]string{conf.NetworksAnnotation: "ext,blue,ext"}, "u-1", map[string]string{"shop/web/net2": earlyOfWeb}},
		{"a delegate alone", map[string]string{conf.NetworksAnnotation: "ext"}, "u-1", nil},
		{"plain", map[string]string{"other": "blue"}, "u-1", nil},
		{"attached", attached, "u-1", nil},
		{"without a UID", map[string]string{conf.NetworksAnnotation: "blue"}, "", nil},
		{"a network that is not there", map[string]string{conf.NetworksAnnotation: "blue,none"}, "u-1", nil},
		{"a broken annotation", map[string]string{conf.NetworksAnnotation: "[{"}, "u-1", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t)
			r.source.nads["ext"] = testNAD{Config: `{"cniVersion":"1.0.0","type":"macvlan"}`}
			r.start()
			pod := r.boundPod("")
			r.source.mu.Lock()
			r.source.annotations = tt.annotations
			r.source.mu.Unlock()
			pod.Annotations, pod.UID = tt.annotations, tt.uid
			r.agent.PodBound(pod)
			if got := r.earlyDone(); !maps.Equal(got, tt.want) {
				t.Errorf("early ports %v, want %v", got, tt.want)
			}
			if len(tt.want) == 0 {
				r.wantCounts(0, 0, 0)
				if n := r.agent.early.known(); n != 0 {
					t.Errorf("the agent has early ports of %d pods", n)
				}
			}
		})
	}
}

// The number of pods with early ports is bounded, and an agent that stops has none in its hands.
func TestEarlyPortsAreBounded(t *testing.T) {
	r := newRig(t)
	r.start()
	r.agent.early.limit, r.agent.early.jitter = rate.NewLimiter(rate.Inf, 0), 1000*time.Hour // no pod's turn comes
	pod := r.boundPod("blue")
	r.source.mu.Lock()
	r.source.anyUID = true // no pod is gone
	r.source.mu.Unlock()
	for i := range 2 * maxEarlyPods {
		other := *pod
		other.UID = strings.Repeat("u", i+1)
		r.agent.PodBound(&other)
	}
	if n := r.agent.early.known(); n != maxEarlyPods {
		t.Errorf("%d pods, want %d", n, maxEarlyPods)
	}
	r.must(r.stop())
	r.agent.PodBound(pod)
	if n := r.agent.early.known(); n != 0 {
		t.Errorf("%d pods after the agent's end", n)
	}
}
