package plugin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"time"

	"github.com/containernetworking/cni/pkg/skel"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/delegate"
	"github.com/ovn-multinet/ovn-multinet/internal/failpoint"
	"github.com/ovn-multinet/ovn-multinet/node/journal"
	"github.com/ovn-multinet/ovn-multinet/node/wiring"
	"github.com/ovn-multinet/ovn-multinet/sriov/deviceinfo"
)

// Plugin answers CNI calls. It writes to Stdout, and to the files that the arguments and the configuration of a call
// name.
type Plugin struct {
	Stdout io.Writer
}

// The patience limits the wait for an agent that does not run. The timeouts limit whole operations. kubelet repeats a
// failed DEL, so a DEL must be cheap. Ports that the agent does not release in time stay in a pending release.
const (
	addPatience    = 15 * time.Second
	delPatience    = time.Second
	releaseTimeout = time.Second
	otherTimeout   = 2 * time.Second // to delete what another sandbox left
	undoTimeout    = 10 * time.Second
	delTimeout     = 30 * time.Second // most of it to wait for the lock
	statusTimeout  = 2 * time.Second
)

// call is one CNI call.
type call struct {
	args      *skel.CmdArgs
	conf      *conf.Plugin
	sandbox   agentapi.Sandbox
	journal   journal.Dir
	deviceDir string // the folder with the device information of CNI plugins
	// garbage are the stale sandboxes that the agent reported.
	garbage []agentapi.Garbage
}

// newCall reads the input of a call. ADD is strict with its configuration; DEL and GC must also work with the
// configuration of another version.
func newCall(args *skel.CmdArgs, strict conf.Strictness) (*call, error) {
	c, err := conf.ParsePlugin(args.StdinData, strict)
	if err != nil {
		return nil, err
	}
	k8s := kubernetesArgs(args.Args)
	return &call{
		args: args, conf: c, journal: journal.Dir(c.StateDir), deviceDir: deviceinfo.CNIDir,
		sandbox: agentapi.Sandbox{
			ContainerID: args.ContainerID, Interface: args.IfName, Conflist: c.Name,
			Namespace: k8s["K8S_POD_NAMESPACE"], Pod: k8s["K8S_POD_NAME"], UID: k8s["K8S_POD_UID"],
		},
	}, nil
}

// runner runs the delegates of the call.
func (c *call) runner() *delegate.Runner {
	return delegate.NewRunner(c.conf, &c.sandbox, c.args.Path, c.deviceDir, c.note)
}

// kubernetesArgs splits CNI_ARGS, "K=V;K=V". It accepts keys that we do not use.
func kubernetesArgs(text string) map[string]string {
	args := map[string]string{}
	for pair := range strings.SplitSeq(text, ";") {
		key, value, _ := strings.Cut(pair, "=")
		args[key] = value
	}
	return args
}

// Add is CNI's ADD: it makes the pod's further interfaces and prints the primary result.
func (p *Plugin) Add(args *skel.CmdArgs) error {
	c, err := newCall(args, conf.Strict)
	if err != nil {
		return err
	}
	if err := wiring.CheckNetns(args.Netns); err != nil {
		return err
	}
	prev := c.conf.RawResult
	if len(prev) == 0 {
		return conf.Errorf(conf.CodeInvalidConfig,
			"ovn-multinet is chained: put it last into the plugins of the node's conflist",
			"there is no prevResult, so no plugin ran before this one")
	}
	moved, err := c.add()
	if err != nil {
		c.collectGarbage() // the garbage may have an address or a device that this ADD needs
		return err
	}
	result, err := wiring.CorrectPrimaryResult(prev, moved)
	if err != nil {
		return conf.Errorf(conf.CodeDecoding, "the plugin before ovn-multinet in the conflist gave it", "prevResult: %w", err)
	}
	_, err = p.Stdout.Write(append([]byte(result), '\n'))
	return err
}

// add makes the interfaces. It returns the gateways of the default routes that it moved off the primary interface.
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
	lock, err := c.journal.Lock(ctx, &c.sandbox)
	if err != nil {
		return nil, err
	}
	defer lock.Unlock()
	// An existing entry was left by a killed call or belongs to a repeated ADD. Roll it back first.
	if old, err := c.read(&c.sandbox); err != nil {
		return nil, err
	} else if old != nil {
		if err := c.undo(old); err != nil {
			return nil, fmt.Errorf("undo the earlier ADD of this container: %w", err)
		}
	}
	// Delete leftovers: a forget mark may refer to an entry that was deleted meanwhile.
	if err := c.journal.Delete(&c.sandbox); err != nil {
		return nil, err
	}
	failpoint.Hit("leftovers-deleted")
	e := journal.NewEntry(c.sandbox, c.args.Netns, c.args.Args)
	e.Primary = c.conf.RawResult
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

// attach carries out the steps of an ADD whose intent is in the journal. It puts the plan into e when the agent has
// sent the plan.
func (c *call) attach(ctx context.Context, e *journal.Entry) (moved []netip.Addr, err error) {
	agent := &agentapi.Client{Socket: c.conf.AgentSocket, Patience: addPatience}
	defer agent.Close()
	request := c.planRequest()
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
	if err := errors.Join(p.Check(c.args.IfName), c.runner().CheckPlan(p)); err != nil {
		return nil, err
	}
	if err := c.journal.Write(e); err != nil {
		return nil, err
	}
	failpoint.Hit("plan-written")
	if moved, err = c.make(ctx, e); err != nil {
		return nil, err
	}
	bind := agentapi.BindRequest{
		Sandbox: c.sandbox, Plan: *p.Outline(), Primary: c.conf.RawResult, Results: e.Results, Devices: e.Devices,
	}
	if p.Default != nil { // the delegate's own plugins may have chosen the gateway
		routes := *p.Default
		routes.Gateways = moved
		bind.Plan.Default = &routes
	}
	var closeSockets func()
	if agent.Sockets, closeSockets, err = wiring.OpenProbes(c.args.Netns, p); err != nil { // the agent knows who needs it
		c.note(&c.sandbox, "no search for other hosts with the pod's addresses", "err", err)
	}
	defer closeSockets()
	if err := agent.Call(ctx, agentapi.OpBind, bind, nil); err != nil {
		return nil, err
	}
	failpoint.Hit("bound")
	if err := wiring.Announce(c.args.Netns, p); err != nil { // the pod can do without
		c.note(&c.sandbox, "cannot announce the addresses to the neighbours", "err", err)
	}
	return moved, nil
}

func (c *call) planRequest() agentapi.PlanRequest {
	return agentapi.PlanRequest{
		Sandbox: c.sandbox, Sharing: true, Probing: true, Chaining: true, Draining: c.conf.Draining,
		AllowedDelegates: append([]string{}, c.conf.AllowedDelegates...),
		AllowedIPAM:      append([]string{}, c.conf.AllowedIPAM...),
	}
}

// make does the work in the pod's namespace: the interfaces on OVN networks, then the delegates, then the routes
// that need both.
func (c *call) make(ctx context.Context, e *journal.Entry) (moved []netip.Addr, err error) {
	if len(e.Plan.Interfaces) > 0 {
		if err := wiring.Create(c.args.Netns, &c.sandbox, e.Plan); err != nil {
			return nil, err
		}
	}
	failpoint.Hit("wired")
	if err := c.runner().Add(ctx, e); err != nil {
		return nil, err
	}
	if e.Routes, err = wiring.SaveRoutes(c.args.Netns, c.args.IfName, e.Plan); err != nil {
		return nil, err
	}
	if e.Routes != nil {
		if err := c.journal.Write(e); err != nil {
			return nil, err
		}
		failpoint.Hit("routes-saved")
	}
	if moved, err = wiring.SetRoutes(c.args.Netns, c.args.IfName, e.Plan); err != nil {
		return nil, err
	}
	failpoint.Hit("routes-set")
	if len(e.Results) == 0 {
		return moved, nil
	}
	if err := wiring.CorrectResults(e.Plan, e.Results, moved); err != nil {
		return nil, err
	}
	return moved, c.journal.Write(e)
}

// undo rolls back an entry in reverse order, and lets the agent release its ports. undo has its own timeout, because
// the time of the ADD may be over.
func (c *call) undo(e *journal.Entry) error {
	// A DEL does not restore routes: the plugins before us delete the primary interface, and the path may by now lead to
	// the network namespace of another pod.
	if e.Routes != nil && e.NetNS == c.args.Netns {
		if err := wiring.RestoreRoutes(e.NetNS, e.Sandbox.Interface, e.Plan, e.Routes); err != nil {
			c.note(&e.Sandbox, "cannot restore the routes of the primary interface", "err", err)
		}
		e.Routes = nil
	}
	if e.Plan != nil && e.NetNS == c.args.Netns {
		if err := wiring.DeleteRules(e.NetNS, e.Plan); err != nil {
			c.note(&e.Sandbox, "cannot delete the rules of the pod's addresses", "err", err)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), undoTimeout)
	defer cancel()
	return c.detach(ctx, e)
}

// laterError is the error of failed DELs that later calls of the plugin try again.
type laterError struct{ error }

func (e *laterError) Unwrap() error { return e.error }

// detach deletes the delegates and the veths of an entry, and makes the agent release its ports. It asks the agent when
// the pod cannot send any more, and does not wait for the end of the deletion, most of which is a grace period of the
// kernel. If detach returns an error, the entry is still in the journal.
func (c *call) detach(ctx context.Context, e *journal.Entry) error {
	var failed []int
	var abandoned []string
	var failure error
	if c.journal.Forgotten(e) {
		c.runner().Forget(e)
	} else {
		failed, abandoned, failure = c.runner().Del(ctx, e)
	}
	if failure != nil {
		e.LastError = conf.OneLine(strings.ReplaceAll(failure.Error(), "\n", "; "), 512)
	}
	released := make(chan bool, 1)
	ask := func() {
		go func() {
			done := false
			err := withoutPanic(func(*skel.CmdArgs) error {
				done = c.askRelease(ctx, e, abandoned)
				return nil
			}, c.args)
			if err != nil {
				c.note(&e.Sandbox, "cannot ask the agent to release", "err", err)
			}
			released <- done
		}()
	}
	if err := wiring.Delete(&e.Sandbox, e.Plan, ask); err != nil {
		return errors.Join(failure, err) // the entry stays, and a retry begins from the start
	}
	failpoint.Hit("unwired")
	if err := c.journal.HandOver(e, failed, <-released); err != nil {
		return errors.Join(failure, err)
	}
	failpoint.Hit("handed-over")
	if len(failed) > 0 && e.FailedAttempts >= journal.MaxAttempts {
		return &laterError{failure}
	}
	return failure
}

// askRelease asks the agent to release the ports of an entry. It ignores errors: what an agent that does not answer has
// to release goes into release/. done reports whether nothing is left to release.
func (c *call) askRelease(ctx context.Context, e *journal.Entry, abandoned []string) (done bool) {
	release := c.journal.Release(e)
	if release == nil {
		if len(abandoned) == 0 {
			return true
		}
		release = &agentapi.Release{Version: agentapi.Version, Sandbox: e.Sandbox, Planned: true} // for the agent's log
	}
	release.Abandoned = abandoned
	ctx, cancel := context.WithTimeout(ctx, delPatience+releaseTimeout)
	defer cancel()
	agent := &agentapi.Client{Socket: c.conf.AgentSocket, Patience: delPatience}
	defer agent.Close()
	answer := agentapi.Released{}
	err := agent.Call(ctx, agentapi.OpRelease, release, &answer)
	c.garbage = agent.Garbage
	failpoint.Hit("release-answered")
	return err == nil && answer.Done
}

// Del is CNI's DEL. It uses only the journal. Without an entry there is nothing to delete, which is success. Our
// error stops the DEL of the plugins before us in the chain, so Del returns only errors that a retry of the runtime
// can resolve.
func (p *Plugin) Del(args *skel.CmdArgs) error {
	c, err := newCall(args, conf.Lenient)
	if err != nil {
		return err
	}
	if c.journal.HasEntry(&c.sandbox) {
		defer c.collectGarbage()
	}
	err = c.del(c.sandbox, delTimeout)
	if _, ok := errors.AsType[*laterError](err); ok {
		return nil
	}
	return err
}

func (c *call) del(s agentapi.Sandbox, within time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	// For a plain pod, DEL ends here, without a lock. A running ADD takes its lock before it does anything else.
	if !c.journal.HasEntry(&s) && !c.journal.HasLock(&s) {
		return nil
	}
	lock, err := c.journal.LockForDelete(ctx, &s)
	if err != nil {
		return err
	}
	defer lock.Unlock()
	e, err := c.read(&s)
	if err != nil {
		return err
	}
	if e == nil {
		return c.journal.Delete(&s) // marks and temporary files of a killed call
	}
	return c.detach(ctx, e)
}

// read returns the entry of a sandbox; nil: there is none. If the entry is damaged, the agent finds the ports by
// their owner, and read finds the delegates in libcni's cache.
func (c *call) read(s *agentapi.Sandbox) (*journal.Entry, error) {
	e, err := c.journal.Read(s)
	if e != nil && e.Damaged {
		err = c.runner().Recall(e)
	}
	return e, err
}
