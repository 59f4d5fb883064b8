package plugin

import (
	"errors"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/internal/nettest"
)

// hasLink reports whether the kernel has a link.
func (n *node) hasLink(name string) bool {
	_, err := netlink.LinkByName(name)
	_, absent := errors.AsType[netlink.LinkNotFoundError](err)
	if err != nil && !absent {
		n.t.Error(err)
	}
	return err == nil
}

// The agent is asked when the pod cannot send any more and while the entry is still in the journal. A pending release is
// left only if the agent has not released everything.
func TestReleaseOfADel(t *testing.T) {
	if !nettest.InOwn(t) {
		return
	}
	veth := agentapi.HostVeth("c1", "net1")
	for _, tt := range []struct {
		name   string
		answer func() (any, []agentapi.Garbage, error) // nil: there is no agent
		fails  bool                                    // the DEL of the delegate
		want   []string
	}{
		{"done", func() (any, []agentapi.Garbage, error) { return agentapi.Released{Done: true}, nil, nil }, false, nil},
		{"not done yet", func() (any, []agentapi.Garbage, error) { return agentapi.Released{}, nil, nil }, false,
			[]string{"release/c1@eth0"}},
		{"refused", func() (any, []agentapi.Garbage, error) { return nil, nil, errors.New("the databases are away") }, false,
			[]string{"release/c1@eth0"}},
		{"no agent", nil, false, []string{"release/c1@eth0"}},
		{"done, the delegate is not", func() (any, []agentapi.Garbage, error) { return agentapi.Released{Done: true}, nil, nil },
			true, []string{"attached/c1@eth0"}},
		{"nothing is done", func() (any, []agentapi.Garbage, error) { return agentapi.Released{}, nil, nil }, true,
			[]string{"attached/c1@eth0", "release/c1@eth0"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := newNode(t)
			n.withPort(n.attached("c1", of(`{"type":"alpha"}`, "")))
			attrs := netlink.NewLinkAttrs()
			attrs.Name = veth
			pair := netlink.NewVeth(attrs)
			pair.PeerName = "net1"
			n.must(netlink.LinkAdd(pair))
			a := &agentOf{}
			if tt.answer != nil {
				a = n.agent(func(*agentapi.Request) (any, []agentapi.Garbage, error) {
					if n.hasLink(veth) {
						t.Error("the agent is asked while the pod can send")
					}
					n.readAttached("c1")
					return tt.answer()
				})
			}
			if tt.fails {
				n.fails("DEL", "alpha")
			}
			if err := (&Plugin{}).Del(n.argsOf("c1", "")); (err != nil) != tt.fails {
				t.Error(err)
			}
			if n.hasLink(veth) {
				t.Error("the link is left")
			}
			n.wantFiles(tt.want...)
			if got := len(a.asked()); tt.answer != nil && got != 1 {
				t.Errorf("the agent was asked %d times", got)
			}
		})
	}
}

// A link that cannot be deleted keeps its addresses: the agent is not asked, and the entry stays for the next DEL.
func TestLinkThatStays(t *testing.T) {
	if !nettest.InOwn(t) {
		return
	}
	n := newNode(t)
	a := n.agent(func(*agentapi.Request) (any, []agentapi.Garbage, error) {
		return agentapi.Released{Done: true}, nil, nil
	})
	n.withPort(n.attachments("c1"))
	lo, err := netlink.LinkByName("lo") // nobody can delete it
	n.must(err)
	n.must(netlink.LinkSetName(lo, agentapi.HostVeth("c1", "net1")))
	if err := (&Plugin{}).Del(n.argsOf("c1", "")); err == nil || !strings.Contains(err.Error(), "delete link") {
		t.Error(err)
	}
	n.wantFiles("attached/c1@eth0")
	n.must(netlink.LinkSetName(lo, "lo"))
	if asked := a.asked(); len(asked) > 0 {
		t.Errorf("the agent was asked for %+v", asked)
	}
	n.must((&Plugin{}).Del(n.argsOf("c1", "")))
	n.wantFiles()
	if asked := a.asked(); len(asked) != 1 || !asked[0].Planned || asked[0].Ports[0].UUID != "p-1" {
		t.Errorf("the agent was asked for %+v", asked)
	}
}
