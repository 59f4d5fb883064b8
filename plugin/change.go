package plugin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/skel"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/internal/failpoint"
	"github.com/ovn-multinet/ovn-multinet/node/journal"
	"github.com/ovn-multinet/ovn-multinet/node/wiring"
)

// Change gives a running pod the networks that its annotation names now, and takes the others away. It is no command of
// the CNI specification: the program that attaches calls it for a sandbox that the journal has. An interface that is
// added or removed is in the journal before anything is made or deleted of it, so that a DEL, or the next Change,
// deletes what a killed call left.
func (p *Plugin) Change(args *skel.CmdArgs) error {
	c, err := newCall(args, conf.Strict)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), c.conf.Timeout)
	defer cancel()
	if !c.journal.HasEntry(&c.sandbox) && args.Netns == "" {
		return nil // a DEL has come
	}
	if err := c.journal.Prepare(); err != nil {
		return err
	}
	lock, err := c.journal.Lock(ctx, &c.sandbox)
	if err != nil {
		return err
	}
	defer lock.Unlock()
	e, err := c.journal.Read(&c.sandbox)
	if e == nil && err == nil && args.Netns != "" {
		e, err = c.begin()
	}
	if e == nil || err != nil {
		return err
	}
	if e.Damaged || e.Plan == nil || e.FailedAttempts > 0 {
		return conf.Errorf(conf.CodeTryAgain, "delete the pod, so that it is made again",
			"the node's journal says that the pod's networks were not made, or are being deleted")
	}
	c.sandbox, c.args.Netns, c.args.Args = e.Sandbox, e.NetNS, e.Args
	if err := wiring.CheckRunning(e.NetNS); err != nil {
		return err
	}
	return c.change(ctx, e)
}

// begin is the entry of a pod that runs without one: it named no networks when it started, or it started before us.
func (c *call) begin() (*journal.Entry, error) {
	if err := wiring.CheckRunning(c.args.Netns); err != nil {
		return nil, err
	}
	e := journal.NewEntry(c.sandbox, c.args.Netns, c.args.Args)
	e.Plan, e.Primary = &agentapi.Plan{}, c.conf.RawResult
	return e, c.journal.Write(e)
}

func (c *call) change(ctx context.Context, e *journal.Entry) error {
	lost, err := wiring.Lost(&e.Sandbox, e.Settled())
	if err != nil {
		return err
	}
	if again := append(lost, e.Changing...); len(again) > 0 { // of a killed call, or of one whose rollback failed
		if err := c.remove(ctx, e, again); err != nil {
			return err
		}
	}
	agent := &agentapi.Client{Socket: c.conf.AgentSocket, Patience: addPatience}
	defer agent.Close()
	change := &agentapi.Change{}
	request := agentapi.ChangeRequest{Sandbox: c.sandbox, Present: *e.Plan.Outline()}
	if err := agent.Call(ctx, agentapi.OpChange, request, change); err != nil {
		return err
	}
	failpoint.Hit("change-received")
	if moved := e.Plan.Arrange(change.Positions); moved || len(change.Remove)+len(change.Add) > 0 {
		e.Changed = true
		if err := c.removeAndAdd(ctx, agent, e, change); err != nil {
			return err
		}
	}
	return c.inspect(agent, e, change.Repair)
}

// removeAndAdd changes the entry and the pod's interfaces.
func (c *call) removeAndAdd(
	ctx context.Context, agent *agentapi.Client, e *journal.Entry, change *agentapi.Change,
) error {
	if len(change.Remove) > 0 {
		if err := c.remove(ctx, e, change.Remove); err != nil {
			return err
		}
	}
	if len(change.Add) == 0 {
		return c.journal.Write(e)
	}
	e.Changing = slices.Clone(change.Add)
	if err := c.journal.Write(e); err != nil {
		return err
	}
	failpoint.Hit("change-intended")
	err := c.addTo(ctx, agent, e)
	if err == nil {
		return nil
	}
	late, cancel := context.WithTimeout(context.Background(), undoTimeout)
	defer cancel()
	return errors.Join(err, c.remove(late, e, change.Add))
}

// addTo makes the interfaces that the entry is about to get.
func (c *call) addTo(ctx context.Context, agent *agentapi.Client, e *journal.Entry) error {
	more := &agentapi.Plan{}
	request := c.planRequest()
	request.Present = e.Plan.Outline()
	if err := agent.Call(ctx, agentapi.OpPlan, request, more); err != nil {
		return err
	}
	failpoint.Hit("plan-received")
	all := e.Plan.With(more)
	if err := errors.Join(all.Check(e.Sandbox.Interface), c.runner().CheckPlan(more)); err != nil {
		return err
	}
	for _, name := range more.Names() {
		if !slices.Contains(e.Changing, name) { // the annotation was edited since: the next call has this one
			return conf.Errorf(conf.CodeTryAgain, "", "the pod's annotation has changed meanwhile")
		}
	}
	had := len(e.Plan.Delegates)
	e.Plan = all
	if err := c.journal.Write(e); err != nil {
		return err
	}
	failpoint.Hit("plan-written")
	if len(more.Interfaces) > 0 {
		if err := wiring.Create(c.args.Netns, &c.sandbox, more); err != nil {
			return err
		}
	}
	failpoint.Hit("wired")
	if err := c.runner().Add(ctx, e); err != nil {
		return err
	}
	if _, err := wiring.SetRoutes(c.args.Netns, e.Sandbox.Interface, more); err != nil {
		return err
	}
	if err := wiring.CorrectResults(more, e.Results[had:], nil); err != nil {
		return err
	}
	if err := c.bindTo(ctx, agent, more); err != nil {
		return err
	}
	e.Changing = nil
	if err := c.journal.Write(e); err != nil {
		return err
	}
	failpoint.Hit("changed")
	return nil
}

// bindTo has the agent add the OVS ports of new interfaces and wait for their flows, and announces their addresses.
func (c *call) bindTo(ctx context.Context, agent *agentapi.Client, more *agentapi.Plan) (err error) {
	bind := agentapi.BindRequest{Sandbox: c.sandbox, Plan: *more.Outline(), Running: true}
	var closeSockets func()
	if agent.Sockets, closeSockets, err = wiring.OpenProbes(c.args.Netns, more); err != nil {
		c.note(&c.sandbox, "no search for other hosts with the pod's addresses", "err", err)
	}
	defer closeSockets()
	if err := agent.Call(ctx, agentapi.OpBind, bind, nil); err != nil {
		return err
	}
	failpoint.Hit("bound")
	if err := wiring.Announce(c.args.Netns, more); err != nil { // the pod can do without
		c.note(&c.sandbox, "cannot announce the addresses to the neighbours", "err", err)
	}
	return nil
}

// remove deletes interfaces of a pod that keeps the others. What cannot be deleted stays in the entry, as changing.
func (c *call) remove(ctx context.Context, e *journal.Entry, names []string) error {
	e.Changing = slices.Clone(names)
	if err := c.journal.Write(e); err != nil {
		return err
	}
	failpoint.Hit("removal-intended")
	part := e.Part(names)
	failed, abandoned, failure := c.runner().Del(ctx, part)
	for _, i := range failed {
		name := part.Plan.Delegates[i].Name
		names = slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n == name })
	}
	part = e.Part(names)
	if part.Plan.Default != nil && e.Routes != nil {
		if err := wiring.RestoreRoutes(e.NetNS, e.Sandbox.Interface, part.Plan, e.Routes); err != nil {
			return errors.Join(failure, fmt.Errorf("the default route of the primary interface: %w", err))
		}
		e.Routes = nil
	}
	if err := wiring.DeleteRules(e.NetNS, part.Plan); err != nil {
		c.note(&e.Sandbox, "cannot delete the rules of the pod's addresses", "err", err)
	}
	if err := wiring.Delete(&e.Sandbox, part.Plan, func() {}); err != nil {
		return errors.Join(failure, err)
	}
	failpoint.Hit("unwired")
	if err := c.releasePart(ctx, part, abandoned); err != nil {
		return errors.Join(failure, err)
	}
	e.Remove(names)
	if heirs := e.Plan.Inherit(part.Plan); len(heirs) > 0 {
		if err := wiring.KeepRoutes(e.NetNS, &e.Sandbox, e.Plan, heirs); err != nil { // the next inspection tells the owner
			c.note(&e.Sandbox, "cannot keep the routes of the interfaces that stay", "err", err)
		}
	}
	if err := c.journal.Write(e); err != nil {
		return errors.Join(failure, err)
	}
	failpoint.Hit("removed")
	return errors.Join(failure)
}

// releasePart has the agent release the ports of interfaces. Until it has, they are in the entry.
func (c *call) releasePart(ctx context.Context, part *journal.Entry, abandoned []string) error {
	release := part.Release()
	if release == nil {
		if len(abandoned) == 0 {
			return nil
		}
		release = &agentapi.Release{Version: agentapi.Version, Sandbox: part.Sandbox, Planned: true} // for the agent's log
	}
	release.Interfaces, release.Abandoned = part.Changing, abandoned
	agent := &agentapi.Client{Socket: c.conf.AgentSocket, Patience: delPatience}
	defer agent.Close()
	answer := agentapi.Released{}
	err := agent.Call(ctx, agentapi.OpRelease, release, &answer)
	failpoint.Hit("release-answered")
	if err == nil && !answer.Done {
		err = conf.Errorf(conf.CodeTryAgain, "do OVN's Northbound database and Open vSwitch answer?",
			"interface %s: its port is not released yet", strings.Join(release.Interfaces, ", "))
	}
	return err
}

// inspect tells the pod's owner what the pod has broken inside of its interfaces, or makes it again if the pod asks for
// that. It is never an error of the change, and a request that fails has been served too: it would be repeated as fast
// as the pod's limit allows.
func (c *call) inspect(agent *agentapi.Client, e *journal.Entry, repair string) error {
	asked := repair != "" && (repair == conf.RepairAlways || repair != e.Repaired)
	found, err := wiring.Inspect(e.NetNS, &e.Sandbox, e.Plan, asked)
	request := agentapi.CheckRequest{Sandbox: e.Sandbox}
	switch {
	case err != nil:
		const fix = "delete the pod, so that it is made again"
		request.Fault = agentapi.Fault(conf.Errorf(conf.CodeNotAsMade, fix, "%w", err))
	case len(found) > 0 && asked:
		request.Repaired = "made again: " + strings.Join(found, "; ")
	case asked && repair != conf.RepairAlways:
		request.Repaired = "nothing to make again: the pod's interfaces are as they were made"
	case len(found) > 0:
		const fix = "the pod has changed that itself; to have it made again, annotate the pod with " +
			conf.RepairAnnotation
		request.Fault = agentapi.Fault(conf.Errorf(conf.CodeNotAsMade, fix, "%s", strings.Join(found, "; ")))
	}
	ctx, cancel := context.WithTimeout(context.Background(), statusTimeout)
	defer cancel()
	if err := agent.Call(ctx, agentapi.OpCheck, request, nil); err != nil {
		c.note(&e.Sandbox, "the pod's owner is not told what its interfaces lack", "err", err)
	}
	if !asked || repair == e.Repaired {
		return nil
	}
	e.Repaired = repair
	return c.journal.Write(e)
}
