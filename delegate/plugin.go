package delegate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/containernetworking/cni/pkg/skel"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/internal/failpoint"
	"github.com/ovn-multinet/ovn-multinet/journal"
)

// Plugin answers CNI calls. Its world is Stdout and what the arguments of a call name.
type Plugin struct {
	Stdout io.Writer
}

// How long a call waits for an agent that is not there, and for one that is but does not answer. kubelet repeats
// DEL, so it must be cheap; what it leaves is in release/.
const (
	addPatience    = 15 * time.Second
	delPatience    = time.Second
	releaseTimeout = time.Second
	otherTimeout   = 2 * time.Second // for what another container left
	undoTimeout    = 10 * time.Second
	delTimeout     = 30 * time.Second // for the lock, above all
	statusTimeout  = 2 * time.Second
)

// call is one CNI call.
type call struct {
	args    *skel.CmdArgs
	conf    *conf.Plugin
	sandbox agentapi.Sandbox
	journal journal.Dir
	devices string // the folder of device information
	// garbage is what stale sandboxes left, as the agent says.
	garbage []agentapi.Garbage
}

// newCall reads what a call is about. An ADD is strict with its configuration; what takes away must work with that
// of another version too.
func newCall(args *skel.CmdArgs, strict conf.Strictness) (*call, error) {
	c, err := conf.ParsePlugin(args.StdinData, strict)
	if err != nil {
		return nil, err
	}
	k8s := kubernetesArgs(args.Args)
	return &call{
		args: args, conf: c, journal: journal.Dir(c.StateDir), devices: deviceDir,
		sandbox: agentapi.Sandbox{
			ContainerID: args.ContainerID, Interface: args.IfName, Conflist: c.Name,
			Namespace: k8s["K8S_POD_NAMESPACE"], Pod: k8s["K8S_POD_NAME"], UID: k8s["K8S_POD_UID"],
		},
	}, nil
}

// kubernetesArgs splits CNI_ARGS, "K=V;K=V". What others put there is not ours to judge.
func kubernetesArgs(text string) map[string]string {
	args := map[string]string{}
	for pair := range strings.SplitSeq(text, ";") {
		key, value, _ := strings.Cut(pair, "=")
		args[key] = value
	}
	return args
}

// Add is CNI's ADD: the pod's further interfaces are made, and the result is the one that the chain has so far.
func (p *Plugin) Add(args *skel.CmdArgs) error {
	c, err := newCall(args, conf.Strict)
	if err != nil {
		return err
	}
	if err := checkNetns(args.Netns); err != nil {
		return err
	}
	prev := c.conf.RawResult
	if len(prev) == 0 {
		return conf.Errorf(conf.CodeInvalidConfig, "ovn-multinet is chained: put it last into the plugins of the node's conflist",
			"there is no prevResult, so no plugin ran before this one")
	}
	moved, err := c.add()
	if err != nil {
		c.finishOther() // what it holds may be what was missing
		return err
	}
	result, err := moveInResult(prev, moved)
	if err != nil {
		return conf.Errorf(conf.CodeDecoding, "the plugin before ovn-multinet in the conflist gave it", "prevResult: %w", err)
	}
	_, err = p.Stdout.Write(append([]byte(result), '\n'))
	return err
}

// add returns the gateways of the default routes that were moved off the primary interface.
func (c *call) add() (moved []netip.Addr, err error) {
	wanted := c.conf.Annotations == nil || len(conf.NetworkAnnotations(c.conf.Annotations)) > 0
	if !wanted {
		return nil, nil
	}
	if c.sandbox.Namespace == "" || c.sandbox.Pod == "" {
		return nil, conf.Errorf(conf.CodeEnvironment, "the runtime must set them, as those of Kubernetes do",
			"CNI_ARGS has no K8S_POD_NAMESPACE or no K8S_POD_NAME")
	}
	if c.conf.Draining && strings.TrimSpace(c.conf.Annotations[conf.NetworksAnnotation]) != "" {
		return nil, agentapi.Draining()
	}
	ctx, cancel := context.WithTimeout(context.Background(), c.conf.Timeout)
	defer cancel()
	if err := c.journal.Prepare(); err != nil {
		return nil, err
	}
	held, err := c.journal.Lock(ctx, &c.sandbox)
	if err != nil {
		return nil, err
	}
	defer held.Unlock()
	// What an earlier call left: one that was killed half way, or one that the runtime repeats.
	if old, err := c.read(&c.sandbox); err != nil {
		return nil, err
	} else if old != nil {
		if err := c.undo(old); err != nil {
			return nil, fmt.Errorf("undo the earlier ADD of this container: %w", err)
		}
	}
	// Of what was there before, nothing counts on: a mark may be of an entry that went while it was made.
	if err := c.journal.Delete(&c.sandbox); err != nil {
		return nil, err
	}
	e := journal.NewEntry(c.sandbox, c.args.Netns, c.args.Args)
	if err := c.journal.Write(e); err != nil {
		return nil, err
	}
	failpoint.Hit("intent-written")
	moved, err = c.attach(ctx, e)
	if err == nil {
		return moved, nil
	}
	if e.Plan == nil && errors.Is(err, agentapi.ErrClean) {
		return nil, errors.Join(err, c.journal.Delete(&c.sandbox))
	}
	return nil, errors.Join(err, c.undo(e))
}

// attach carries out the steps of an ADD whose intent is in the journal. e gets the plan as soon as there is one.
func (c *call) attach(ctx context.Context, e *journal.Entry) (moved []netip.Addr, err error) {
	agent := &agentapi.Client{Socket: c.conf.AgentSocket, Patience: addPatience}
	defer agent.Close()
	request := agentapi.PlanRequest{Sandbox: c.sandbox, Sharing: true, Draining: c.conf.Draining,
		AllowedDelegates: append([]string{}, c.conf.AllowedDelegates...), AllowedIPAM: append([]string{}, c.conf.AllowedIPAM...)}
	if c.conf.Annotations != nil {
		request.Annotations = conf.NetworkAnnotations(c.conf.Annotations)
	}
	p := &agentapi.Plan{}
	err = agent.Call(ctx, agentapi.OpPlan, request, p)
	c.garbage = agent.Garbage
	if err != nil {
		return nil, err
	}
	failpoint.Hit("plan-received")
	if len(p.Interfaces) == 0 && len(p.Delegates) == 0 {
		return nil, c.journal.Delete(&c.sandbox)
	}
	e.Plan = p
	if err := errors.Join(p.Check(c.args.IfName), c.delegates().check(p)); err != nil {
		return nil, err
	}
	if err := c.journal.Write(e); err != nil {
		return nil, err
	}
	failpoint.Hit("plan-written")
	if moved, err = c.make(ctx, e); err != nil {
		return nil, err
	}
	bind := agentapi.BindRequest{Sandbox: c.sandbox, Plan: *p.Outline(), Primary: c.conf.RawResult, Results: e.Results, Devices: e.Devices}
	if p.Default != nil { // also where a delegate's own plugins chose the gateway
		routes := *p.Default
		routes.Gateways = moved
		bind.Plan.Default = &routes
	}
	if err := agent.Call(ctx, agentapi.OpBind, bind, nil); err != nil {
		return nil, err
	}
	failpoint.Hit("bound")
	return moved, nil
}

// make is the work in the pod's namespace: our own interfaces, all at once, then the delegates', then the routes that
// need both.
func (c *call) make(ctx context.Context, e *journal.Entry) (moved []netip.Addr, err error) {
	if len(e.Plan.Interfaces) > 0 {
		if err := wire(c.args.Netns, &c.sandbox, e.Plan); err != nil {
			return nil, err
		}
	}
	failpoint.Hit("wired")
	if err := c.delegates().add(ctx, e); err != nil {
		return nil, err
	}
	if e.Routes, err = saveRoutes(c.args.Netns, c.args.IfName, e.Plan); err != nil {
		return nil, err
	}
	if e.Routes != nil {
		if err := c.journal.Write(e); err != nil {
			return nil, err
		}
	}
	if moved, err = setRoutes(c.args.Netns, c.args.IfName, e.Plan); err != nil || len(e.Results) == 0 {
		return moved, err
	}
	if err := settleResults(e, moved); err != nil {
		return nil, err
	}
	return moved, c.journal.Write(e)
}

// undo takes away what an attachment made, in reverse, and hands the rest to the agent. It has its own time: that
// of the ADD may be over.
func (c *call) undo(e *journal.Entry) error {
	// A DEL restores nothing: the plugins before us delete their interface, and the path may be of another pod's
	// namespace by now.
	if e.Routes != nil && e.NetNS == c.args.Netns {
		if err := restoreRoutes(e.NetNS, e.Sandbox.Interface, e.Plan, e.Routes); err != nil {
			c.note(&e.Sandbox, "cannot restore the routes of the primary interface", "err", err)
		}
		e.Routes = nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), undoTimeout)
	defer cancel()
	return c.detach(ctx, e)
}

// leftBehind is the error of delegates that are left to later calls.
type leftBehind struct{ error }

func (e *leftBehind) Unwrap() error { return e.error }

// detach undoes an attachment. An error means that there is something left of it in the journal.
func (c *call) detach(ctx context.Context, e *journal.Entry) error {
	var left []int
	var abandoned []string
	var complaint error
	if c.journal.Forgotten(e) {
		c.delegates().giveUp(e)
	} else {
		left, abandoned, complaint = c.delegates().del(ctx, e)
	}
	if complaint != nil {
		e.LastError = oneLine(strings.ReplaceAll(complaint.Error(), "\n", "; "))
	}
	if err := unwire(&e.Sandbox, e.Plan); err != nil {
		return errors.Join(complaint, err) // the journal stays: a retry begins here again
	}
	failpoint.Hit("unwired")
	release, err := c.journal.HandOver(e, left, func(r *agentapi.Release) bool { return c.askRelease(ctx, r) })
	if err != nil {
		return errors.Join(complaint, err)
	}
	failpoint.Hit("handed-over")
	if release == nil && len(abandoned) > 0 { // for the agent's log
		release = &agentapi.Release{Version: agentapi.Version, Sandbox: e.Sandbox, Planned: true}
	}
	if release != nil {
		release.Abandoned = abandoned
		c.askRelease(ctx, release)
	}
	if len(left) > 0 && e.FailedAttempts >= journal.MaxAttempts {
		return &leftBehind{complaint}
	}
	return complaint
}

// askRelease tells the agent. One that is missing or late finds the file: nothing is lost, so nothing is said. done tells
// that the agent has released everything already.
func (c *call) askRelease(ctx context.Context, release *agentapi.Release) (done bool) {
	ctx, cancel := context.WithTimeout(ctx, delPatience+releaseTimeout)
	defer cancel()
	agent := &agentapi.Client{Socket: c.conf.AgentSocket, Patience: delPatience}
	defer agent.Close()
	released := agentapi.Released{}
	err := agent.Call(ctx, agentapi.OpRelease, release, &released)
	c.garbage = agent.Garbage
	return err == nil && released.Done
}

// Del is CNI's DEL, from the journal alone. Without an entry there is nothing of ours, which is success. An error of ours
// keeps the plugins before us from their DEL, so it is worth only what a retry can heal: what is left behind is none.
func (p *Plugin) Del(args *skel.CmdArgs) error {
	c, err := newCall(args, conf.Lenient)
	if err != nil {
		return err
	}
	if c.journal.HasEntry(&c.sandbox) {
		defer c.finishOther()
	}
	err = c.del(c.sandbox, delTimeout)
	if _, ok := errors.AsType[*leftBehind](err); ok {
		return nil
	}
	return err
}

func (c *call) del(s agentapi.Sandbox, within time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	// A plain pod's DEL ends here, without a lock. An ADD that runs now wrote its intent before all else.
	if !c.journal.HasEntry(&s) && !c.journal.HasLock(&s) {
		return nil
	}
	held, err := c.journal.LockForDelete(ctx, &s)
	if err != nil {
		return err
	}
	defer held.Unlock()
	e, err := c.read(&s)
	if err != nil {
		return err
	}
	if e == nil {
		return c.journal.Delete(&s) // what a call that was killed left beside the entry
	}
	return c.detach(ctx, e)
}

// read returns what is to be undone, nil for nothing. The agent finds the ports of an entry that is damaged by their
// owner; its delegates are in libcni's cache too.
func (c *call) read(s *agentapi.Sandbox) (*journal.Entry, error) {
	e, err := c.journal.Read(s)
	if e != nil && e.Damaged {
		err = c.delegates().recall(e)
	}
	return e, err
}

// finishOther takes up one other container: one that no runtime asks for any more, as the agent says, or one whose delegates
// would not go when its runtime asked. What fails is tried again by a later call.
func (c *call) finishOther() {
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
			_ = unwireLost(d)
		}
		return
	}
	// Those that an operator gave up cost no call of a plugin, so all of them are taken up; of the others one is.
	givenUp := false
	for end := time.Now().Add(otherTimeout); time.Now().Before(end); {
		other, forgotten := c.journal.NextFailed(&c.sandbox)
		if other == nil || !forgotten && givenUp {
			return
		}
		if err := c.del(*other, otherTimeout); !forgotten || err != nil {
			return
		}
		givenUp = true
	}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// Check is CNI's CHECK: the kernel here, ports and plugs by the agent.
func (p *Plugin) Check(args *skel.CmdArgs) error {
	c, err := newCall(args, conf.Strict)
	if err != nil {
		return err
	}
	e, err := c.journal.Read(&c.sandbox)
	if e == nil || err != nil {
		return err
	}
	if e.Plan == nil {
		return conf.Errorf(conf.CodeTryAgain, "the runtime should DEL this container", "the ADD of container %.12s did not finish", c.sandbox.ContainerID)
	}
	if err := checkNetns(args.Netns); err != nil {
		return err
	}
	if err := inspect(args.Netns, &c.sandbox, e.Plan); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), c.conf.Timeout)
	defer cancel()
	if err := c.delegates().checkAll(ctx, e); err != nil {
		return err
	}
	if len(e.Plan.Interfaces) == 0 {
		return nil
	}
	agent := &agentapi.Client{Socket: c.conf.AgentSocket, Patience: delPatience}
	defer agent.Close()
	return agent.Call(ctx, agentapi.OpCheck, agentapi.CheckRequest{Sandbox: e.Sandbox, Plan: *e.Plan}, nil)
}

// GC is CNI's GC: every attachment of this conflist that the runtime does not list is undone.
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
	return errors.Join(append(errs, c.delegates().gc(ctx, entries, gone))...)
}

// Status is CNI's STATUS: not ready until the agent was ready once since boot. A later outage of the agent must
// not take the node out: pods without further networks start all the same. strictStatus has it so nevertheless.
func (p *Plugin) Status(args *skel.CmdArgs) error {
	c, err := newCall(args, conf.Strict)
	if err != nil {
		return err
	}
	if !exists(agentapi.ReadyMarker(c.conf.AgentSocket)) {
		return conf.Errorf(conf.CodeNotAvailable, "is the ovn-multinet agent running on this node, what does its log say?",
			"the agent at %s was not ready yet since boot", c.conf.AgentSocket)
	}
	if !c.conf.StrictStatus {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), statusTimeout)
	defer cancel()
	agent := &agentapi.Client{Socket: c.conf.AgentSocket}
	defer agent.Close()
	err = agent.Call(ctx, agentapi.OpStatus, agentapi.StatusRequest{Sandbox: c.sandbox}, nil)
	if err == nil || conf.HasCode(err, conf.CodeNotAvailable) || conf.HasCode(err, conf.CodeLimited) {
		return err
	}
	_, _, details := conf.Describe(err)
	return conf.Errorf(conf.CodeNotAvailable, details, "%w", err)
}
