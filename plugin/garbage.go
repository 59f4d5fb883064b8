package plugin

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/node/journal"
	"github.com/ovn-multinet/ovn-multinet/node/wiring"
)

// GC is CNI's GC: it deletes every attachment of this conflist that the runtime does not list as valid.
func (p *Plugin) GC(args *skel.CmdArgs) error {
	c, err := newCall(args, conf.Lenient)
	if err != nil {
		return err
	}
	known := map[string]bool{}
	for _, a := range c.conf.ValidAttachments {
		s := agentapi.Sandbox{ContainerID: a.ContainerID, Interface: a.IfName}
		known[s.ID()] = true
	}
	gone := func(e *journal.Entry) bool { return e.Sandbox.Conflist == c.conf.Name && !known[e.Sandbox.ID()] }
	entries, err := c.journal.Entries()
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		if gone(e) {
			errs = append(errs, c.del(e.Sandbox, delTimeout))
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), c.conf.Timeout)
	defer cancel()
	return errors.Join(append(errs, c.runner().GC(ctx, entries, gone))...)
}

// collectGarbage deletes what one other sandbox left: a stale sandbox that the agent reported, or a sandbox whose DEL
// is marked as failed. If this fails, a later call tries it again.
func (c *call) collectGarbage() {
	for i := range c.garbage {
		d := &c.garbage[i]
		_, isFile := journal.ParseID(d.ID())
		switch {
		case !isFile || strings.ContainsRune(d.ID(), '/') || d.ContainerID == c.sandbox.ContainerID:
			continue
		case c.journal.HasEntry(&d.Sandbox):
			_ = c.del(d.Sandbox, otherTimeout)
		case len(d.HostVeths) == 0:
			continue
		default:
			_ = wiring.DeleteVeths(d.HostVeths)
		}
		return
	}
	// To forget a sandbox runs no delegate, so all sandboxes with a forget mark are deleted. Of the other sandboxes,
	// only one is tried.
	forgot := false
	for end := time.Now().Add(otherTimeout); time.Now().Before(end); {
		other, forgotten := c.journal.NextFailed(&c.sandbox)
		if other == nil || !forgotten && forgot {
			return
		}
		if err := c.del(*other, otherTimeout); !forgotten || err != nil {
			return
		}
		forgot = true
	}
}
