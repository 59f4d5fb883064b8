package plugin

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/internal/nettest"
	"github.com/ovn-multinet/ovn-multinet/node/journal"
)

// stub is a plugin that answers without any further process. It fails as files beside it say.
const stub = `#!/bin/sh
[ -e "%[1]s/fail $CNI_COMMAND" ] && { echo '{"code":119,"msg":"cannot '$CNI_COMMAND'"}'; exit 1; }
[ "$CNI_COMMAND" = ADD ] && echo '{"cniVersion":"1.1.0"}'
exit 0
`

// retried is a pod that kubelet tries again and again, each time in another sandbox, on a node whose agent knows the
// journal as the real one does.
type retried struct {
	*node
	kind  string // the type of the plugin
	netns string // that of all sandboxes, each by a path of its own
	tries int
	kept  bool // the runtime keeps the network namespace of a sandbox whose DEL fails
}

func newRetried(t *testing.T, kind string, kept bool, fails ...string) *retried {
	n := &retried{node: newNode(t), kind: kind, netns: nettest.Namespace(t), kept: kept}
	list := `{"type":"` + kind + `"}`
	if kind == "vrf" { // which has a schema, and works on the interface of another plugin
		list = `{"type":"dummy","ipam":{"type":"static"}},{"type":"vrf","vrfname":"red"}`
	}
	for _, name := range []string{kind, "dummy", "static"} {
		n.must(os.WriteFile(filepath.Join(n.bin, name), fmt.Appendf(nil, stub, n.dir), 0o755))
	}
	for _, command := range fails {
		n.write("fail "+command, "")
	}
	attachment := n.attachments("", of(list, "")).Plan
	n.agent(func(r *agentapi.Request) (any, []agentapi.Garbage, error) {
		all, _, err := journal.Dir(n.state).Summaries()
		var dead []agentapi.Garbage // as the agent's reconcile pass has them: those that the plugin has not marked
		for i := range all {
			if all[i].FailedAttempts > 0 && len(dead) < 4 && !n.call.journal.HasFailedMark(&all[i].Sandbox) {
				dead = append(dead, agentapi.Garbage{Sandbox: all[i].Sandbox})
			}
		}
		if r.Op != agentapi.OpPlan || err != nil {
			return agentapi.Released{Done: true}, dead, err
		}
		s := sandbox(fmt.Sprintf("c%d", n.tries))
		s.UID = ""
		return attachment, dead, journal.CheckFailed(all, &s)
	})
	return n
}

// again is what a runtime does for one try: ADD, and DEL whatever came of the ADD, and the end of the network
// namespace.
func (n *retried) again() (added error) {
	n.t.Helper()
	n.tries++
	netns := filepath.Join(n.dir, fmt.Sprintf("ns%d", n.tries))
	n.must(os.Symlink(n.netns, netns))
	args := n.argsOf(fmt.Sprintf("c%d", n.tries), `,"prevResult":`+prevResult)
	args.StdinData = bytes.Replace(args.StdinData, []byte(`"missing"`), []byte(`"`+n.kind+`","dummy"`), 1)
	args.StdinData = bytes.Replace(args.StdinData, []byte(`"allowedIPAM":[`), []byte(`"allowedIPAM":["static",`), 1)
	args.Netns = netns
	added = (&Plugin{Stdout: io.Discard}).Add(args)
	deleted := (&Plugin{}).Del(args)
	if !n.kept || deleted == nil {
		n.must(os.Remove(netns))
	}
	return added
}

// stateFiles counts all files below the state folder.
func (n *node) stateFiles() (count int) {
	n.t.Helper()
	n.must(filepath.WalkDir(n.state, func(_ string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			count++
		}
		return err
	}))
	return count
}

// A pod whose networks fail leaves a limited number of files on its node, however often it is tried, and nothing at all
// if the plugin can hold nothing outside the network namespaces that are gone.
func TestBoundaryRetriesLeaveNoLitter(t *testing.T) {
	// Each sandbox that stays has its entry, its mark and the result in libcni's cache.
	const most = 3 * (journal.MaxFailedOfPod + 1)
	for _, tt := range []struct {
		name, kind string
		kept       bool
		fails      []string
		tries      int
		most, last int // files: at any time, in the end
		refused    bool
	}{
		{"ADD fails", "alpha", false, []string{"ADD"}, 1000, 0, 0, false},
		{"ADD and DEL fail, the namespace is kept", "alpha", true, []string{"ADD", "DEL"}, 1000, most, most, true},
		{"ADD and DEL fail, the namespace goes", "alpha", false, []string{"ADD", "DEL"}, 1000, most, most, true},
		{"DEL fails, the namespace is kept", "alpha", true, []string{"DEL"}, 100, most, most, true},
		{"DEL fails, the namespace goes", "alpha", false, []string{"DEL"}, 100, most, most, true},
		{"vrf, ADD and DEL fail, the namespace is kept", "vrf", true, []string{"ADD", "DEL"}, 100, most, most, true},
		{"vrf, ADD and DEL fail, the namespace goes", "vrf", false, []string{"ADD", "DEL"}, 1000, 2, 2, false},
		{"vrf, DEL fails, the namespace goes", "vrf", false, []string{"DEL"}, 100, most, most, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			// First: a process that begins while another test's call forks its plugin would end with that call.
			n := newRetried(t, tt.kind, tt.kept, tt.fails...)
			t.Parallel()
			highest, refused := 0, 0
			if os.Getenv("OVN_MULTINET_LONG") == "" {
				tt.tries = min(tt.tries, 100)
			}
			for range tt.tries {
				if conf.HasCode(n.again(), conf.CodeDelegateFailed) {
					refused++
				}
				highest = max(highest, n.stateFiles())
			}
			t.Attr(fmt.Sprintf("boundary.files-after-%d-retries", tt.tries), fmt.Sprint(n.stateFiles()))
			t.Attr("boundary.files-at-most", fmt.Sprint(highest))
			if highest > tt.most {
				t.Errorf("%d files at a time, want no more than %d", highest, tt.most)
			}
			if got := n.stateFiles(); got > tt.last {
				t.Errorf("%d files in the end, want no more than %d: %q", got, tt.last, n.journalFiles())
			}
			if tt.refused != (refused > 0) {
				t.Errorf("%d of the ADDs were refused for the failed DELs, want some: %t", refused, tt.refused)
			}
		})
	}
}

// What a limit refused, an operator's word allows again, and all that was given up goes with one call.
func TestBoundaryForgetLiftsTheLimit(t *testing.T) {
	n := newRetried(t, "alpha", false, "DEL")
	for range 3 * journal.MaxFailedOfPod {
		_ = n.again()
	}
	wantError(t, n.again(), conf.CodeDelegateFailed, "pod shop/web has 4 earlier sandboxes")
	all, _, err := journal.Dir(n.state).Summaries()
	n.must(err)
	for i := range all {
		n.must(os.WriteFile(journal.Dir(n.state).ForgetMark(&all[i].Sandbox), nil, 0o600))
	}
	n.must(os.Remove(filepath.Join(n.dir, "fail DEL")))
	n.must(n.again())
	n.wantState("after it")
}

// An entry is dropped if its network namespace is gone and none of its plugins can hold anything outside: the
// operator's log says so, and the agent's. Else it stays.
func TestBoundaryDroppedIsWhatHoldsNothing(t *testing.T) {
	for _, tt := range []struct {
		name, plugins string
		netns         string // gone, the pod's or the node's
		dropped       bool
	}{
		{"vrf", `{"type":"vrf"}`, "gone", true},
		{"dummy with static", `{"type":"dummy","ipam":{"type":"static"}},{"type":"sbr"}`, "gone", true},
		{"dummy with an empty ipam", `{"type":"dummy","ipam":{}}`, "gone", true},
		{"vrf, its namespace is there", `{"type":"vrf"}`, "pod's", false},
		{"vrf, its namespace's process is the node's by now", `{"type":"vrf"}`, "node's", true},
		{"another plugin", `{"type":"alpha"}`, "gone", false},
		{"another one in the chain", `{"type":"dummy"},{"type":"alpha"}`, "gone", false},
		{"another one for addresses", `{"type":"dummy","ipam":{"type":"alpha"}}`, "gone", false},
		{"addresses by a key in another case", `{"type":"dummy","IPAM":{"type":"alpha"}}`, "gone", false},
		{"a type by a key in another case", `{"type":"dummy","Type":"alpha"}`, "gone", false},
		{"the addresses' type by a key in another case", `{"type":"dummy","ipam":{"type":"static","TYPE":"alpha"}}`, "gone", false},
		{"an ipam that is none", `{"type":"dummy","ipam":7}`, "gone", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := newNode(t)
			released := n.agent(func(*agentapi.Request) (any, []agentapi.Garbage, error) {
				return agentapi.Released{Done: true}, nil, nil
			})
			n.fails("DEL", "alpha")
			log := filepath.Join(n.dir, "plugin.log")
			args := n.argsOf("c1", `,"logFile":"`+log+`"`)
			e := n.attachments("c1", of(tt.plugins, ""))
			e.Begun, e.NetNS = 1, filepath.Join(n.dir, "ns")
			switch tt.netns {
			case "pod's":
				n.must(os.Symlink(nettest.Namespace(t), e.NetNS))
			case "node's":
				n.must(os.Symlink("/proc/self/ns/net", e.NetNS))
			}
			n.must(n.call.journal.Write(e))
			err := (&Plugin{}).Del(args) // none of the shipped types is allowed here, so each DEL fails
			if !tt.dropped {
				if err == nil || !slices.Equal(n.journalFiles(), []string{"attached/c1@eth0"}) || len(released.asked()) > 0 {
					t.Errorf("%v, files %q, the agent heard %+v", err, n.journalFiles(), released.asked())
				}
				return
			}
			n.must(err)
			n.wantState("DEL")
			if asked := released.asked(); len(asked) != 1 || len(asked[0].Abandoned) != 1 || !strings.Contains(asked[0].Abandoned[0], "interface net1: network shop/ext") ||
				!asked[0].Planned || len(asked[0].Ports) > 0 {
				t.Errorf("the agent heard %+v", asked)
			}
			if text, _ := os.ReadFile(log); !strings.Contains(string(text), "abandoned a delegate") || !strings.Contains(string(text), "containerID=c1") {
				t.Errorf("the log has %s", text)
			}
		})
	}
}

// The agent cannot tell which device the container of a damaged entry has, and may give it to another one. Then the
// DEL of the first, from libcni's cache, does not take it away from the second.
func TestBoundaryDamagedEntryTakesNoDeviceAway(t *testing.T) {
	for _, tt := range []struct {
		name, other string // the device that another container has
		called      []string
		dropped     int
	}{
		{"another container has the device", "0000:18:02.5", nil, 1},
		{"another container has another device", "0000:18:02.6", []string{"DEL alpha net1"}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := newNode(t)
			heard := n.agent(func(*agentapi.Request) (any, []agentapi.Garbage, error) {
				return agentapi.Released{Done: true}, nil, nil
			})
			list := of(`{"type":"alpha","deviceID":"0000:18:02.5"}`, "")
			n.attached("c1", list)
			n.must(os.WriteFile(n.entry("c1"), []byte("{"), 0o600))
			other := n.attachments("c2", list)
			other.Plan.Delegates[0].Device = &agentapi.Device{Resource: "a.example/vf", ID: tt.other}
			n.must(n.call.journal.Write(other))
			n.called()
			n.must((&Plugin{}).Del(n.argsOf("c1", "")))
			n.wantCalled("DEL", tt.called...)
			n.wantState("DEL", "attached/c2@eth0")
			asked := heard.asked()
			if len(asked) != 1 || asked[0].Planned || len(asked[0].Abandoned) != tt.dropped {
				t.Errorf("the agent heard %+v", asked)
			}
		})
	}
}

// A file of the journal that cannot be read keeps GC from no other container, and its own DEL says what to do.
func TestBoundaryUnreadableEntryAtGC(t *testing.T) {
	n := newNode(t)
	n.attached("c1", of(`{"type":"alpha"}`, ""))
	n.must(os.MkdirAll(n.entry("c0"), 0o700)) // reading it fails
	n.must((&Plugin{}).GC(n.argsOf("", `,"cni.dev/valid-attachments":[]`)))
	n.wantCalled("GC", "DEL alpha net1", "GC alpha")
	if got := n.journalFiles(); !slices.Equal(got, []string{"attached/c0@eth0"}) {
		t.Errorf("files %q", got)
	}
	err := (&Plugin{}).Del(n.argsOf("c0", ""))
	wantError(t, err, conf.CodeTryAgain, "attached/c0@eth0: is a directory")
	if _, _, details := conf.Describe(err); !strings.Contains(details, "delete the file") {
		t.Errorf("details %q", details)
	}
}
