package agent

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/nad"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/node/journal"
	"github.com/ovn-multinet/ovn-multinet/source"
)

// changes finds running pods whose annotation names other networks than they have, and has the node's program
// ovn-multinet-attach run the plugin for them. What a pod has is in the journal, and what it should have is its
// annotation as it is now: an edit that was missed, or made while a change ran, is found when they are compared again.
type changes struct {
	*node
	wake  chan struct{} // a token: a pod is due earlier than before
	there chan struct{} // a token: ready has a pod

	mu     sync.Mutex
	pods   map[string]*podChange // by podID
	ready  []*podChange          // for the program
	asked  time.Time             // when the program asked last
	limits *changeLimits
	passes uint32 // reconcile passes since the agent's start
}

// podChange is what the agent knows of one pod. The fields after sandbox belong to changes.run alone.
type podChange struct {
	due    time.Time // when the pod is compared; zero: when something is new
	queued bool      // it is in ready
	handed time.Time // when the program got it; zero: the plugin does not run for it
	given  agentapi.Sandbox
	end    *agentapi.ChangeEnded

	pod      *netmodel.Pod
	sandbox  *agentapi.Sandbox // nil: the newest one of the pod
	had      []agentapi.Attachment
	failures int      // in a row
	told     string   // what the owner was told last
	status   bool     // the network-status is to be written
	unsaved  int      // how often that failed, in a row
	checked  bool     // this agent has compared the pod before
	lost     []string // interfaces whose host-side veths are gone
	inspect  bool     // it is the pod's turn to be inspected
	inspects bool     // the plugin's run is for that alone
}

func newChanges(n *node) *changes {
	return &changes{
		node: n, wake: make(chan struct{}, 1), there: make(chan struct{}, 1), pods: map[string]*podChange{},
		limits: newChangeLimits(),
	}
}

// newPodChange keeps of a pod only what identifies it: its annotations may be long.
func newPodChange(p *netmodel.Pod) *podChange {
	return &podChange{pod: &netmodel.Pod{Namespace: p.Namespace, Name: p.Name, UID: p.UID, Mirror: p.Mirror}}
}

func podID(p *netmodel.Pod) string { return p.Namespace + "/" + p.Name + "/" + p.UID }

// NetworksEdited compares a pod whose annotation was edited. It does not block.
func (a *Agent) NetworksEdited(pod *netmodel.Pod) {
	if pod.Node == "" || pod.Node == a.conf.NodeName {
		a.changes.compareSoon(pod, nil)
	}
}

// attached compares a pod when its ADD ends: the runtime may have read the annotation before an edit.
func (c *changes) attached(pod *netmodel.Pod, s *agentapi.Sandbox) {
	sandbox := *s
	c.compareSoon(pod, &sandbox)
}

// compareSoon has run compare a pod now.
func (c *changes) compareSoon(pod *netmodel.Pod, s *agentapi.Sandbox) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.pods[podID(pod)]
	if p == nil {
		p = newPodChange(pod)
		c.pods[podID(pod)] = p
	}
	if s != nil {
		p.sandbox = s
	}
	if p.handed.IsZero() { // when the plugin's run ends, the pod is compared anyway
		p.due = time.Now()
		signal(c.wake)
	}
}

// compareAll compares the pods of a reconcile pass, each pod once after the agent's start and then those that have
// other networks than their annotation says. It forgets the pods that are gone.
func (c *changes) compareAll(ctx context.Context, all []*sandboxState) {
	here := map[string]bool{}
	c.passes++
	for _, m := range all {
		if m.why != "" || m.older || len(m.entries) != 1 || m.entries[0].Plan == nil {
			continue
		}
		pod, err := c.source.Pod(ctx, m.Namespace, m.Pod, m.UID)
		if err != nil || !pod.Is(m.UID) {
			continue
		}
		here[podID(pod)] = true
		known, inspect := c.setLost(pod, m.lost, len(m.entries[0].Plan.Interfaces) > 0)
		change, err := c.changeOf(pod, m.entries[0])
		if known && err == nil && change.Nothing() && len(m.entries[0].Changing) == 0 && len(m.lost) == 0 && !inspect {
			continue
		}
		c.compareIfIdle(pod, &m.entries[0].Sandbox)
	}
	c.gone.keep(all)
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, p := range c.pods {
		if !here[id] && p.due.IsZero() && p.handed.IsZero() && !p.queued {
			delete(c.pods, id)
		}
	}
	c.limits.prune(time.Now())
}

// setLost notes which interfaces of a pod are gone. known reports whether the pod was compared before, inspect whether
// it is the pod's turn to be inspected: all pods of a node have their turns in inspectPasses passes.
func (c *changes) setLost(pod *netmodel.Pod, lost []string, onOVN bool) (known, inspect bool) {
	turn := fnv.New32a()
	turn.Write([]byte(podID(pod)))
	inspect = c.conf.Attach && onOVN && (turn.Sum32()%inspectPasses+c.passes)%inspectPasses == 0
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.pods[podID(pod)]
	if known = p != nil; !known {
		p = newPodChange(pod)
		c.pods[podID(pod)] = p
	}
	if p.handed.IsZero() && !p.queued {
		p.lost, p.inspect = lost, p.inspect || inspect
	}
	return known, inspect
}

// compareIfIdle is compareSoon, except for a pod that is compared later anyway.
func (c *changes) compareIfIdle(pod *netmodel.Pod, s *agentapi.Sandbox) {
	c.mu.Lock()
	p := c.pods[podID(pod)]
	idle := p == nil || p.due.IsZero() && !p.queued
	c.mu.Unlock()
	if idle {
		c.compareSoon(pod, s)
	}
}

// run compares the pods that are due, until the end of ctx.
func (c *changes) run(ctx context.Context) {
	for {
		due, next := c.takeDue(time.Now())
		for _, p := range due {
			if err := c.compareNow(ctx, p); err != nil {
				c.log.Warn("compare the networks of a running pod with its annotation",
					"pod", p.pod.Namespace+"/"+p.pod.Name, "err", err)
				c.later(p, firstPause)
			}
		}
		if len(due) > 0 {
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-c.wake:
		case <-time.After(next):
		}
	}
}

// takeDue takes the pods that are due, and says when the next one is.
func (c *changes) takeDue(now time.Time) (due []*podChange, next time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	next = longestPause
	for _, p := range c.pods {
		switch {
		case p.due.IsZero():
		case p.due.After(now):
			next = min(next, p.due.Sub(now))
		case !p.handed.IsZero() && p.given.ContainerID != "" && c.busy(p.given.ContainerID):
			p.due = now.Add(answered)
			next = min(next, answered)
		default:
			p.due, p.handed = time.Time{}, time.Time{}
			due = append(due, p)
		}
	}
	slices.SortFunc(due, func(a, b *podChange) int { return strings.Compare(podID(a.pod), podID(b.pod)) })
	return due, next
}

// later has the pod compared again after a pause.
func (c *changes) later(p *podChange, pause time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at := time.Now().Add(pause); p.due.IsZero() || p.due.After(at) {
		p.due = at
	}
}

// compareNow compares what a pod has with its annotation, writes its network-status if that is older, and puts the pod
// into the queue if it is to be changed.
func (c *changes) compareNow(ctx context.Context, p *podChange) (err error) {
	defer c.catch(&err)
	ctx, cancel := context.WithTimeout(ctx, releaseTimeout)
	defer cancel()
	pod, err := c.source.Pod(ctx, p.pod.Namespace, p.pod.Name, p.pod.UID)
	if errors.Is(err, source.ErrNotFound) || err == nil && !pod.Is(p.pod.UID) {
		c.forget(p)
		return nil
	}
	if err != nil {
		return err
	}
	e, err := c.entryOf(p)
	if err != nil {
		return err
	}
	if e == nil {
		return c.compareUnknown(p, pod)
	}
	if e.Plan == nil || e.FailedAttempts > 0 {
		return nil // its ADD has not ended, or its DEL has begun
	}
	if c.busy(e.Sandbox.ContainerID) {
		c.later(p, comparePause)
		return nil
	}
	c.mu.Lock()
	p.sandbox = &e.Sandbox
	end := p.end
	p.end = nil
	c.mu.Unlock()
	failed := end != nil && c.tellEnd(p, pod, e, end)
	if p.status || e.Changed && !p.checked {
		c.writeStatus(ctx, p, pod)
	}
	p.checked = true
	if failed {
		c.later(p, pauseAfter(p.failures))
		return nil
	}
	return c.decide(p, pod, e)
}

// compareUnknown puts a pod into the queue that runs, and that the journal does not have: it named no networks when it
// started, or it started before us. A pod whose network-status names further interfaces has lost its journal.
func (c *changes) compareUnknown(p *podChange, pod *netmodel.Pod) error {
	c.mu.Lock()
	end := p.end
	p.end = nil
	c.mu.Unlock()
	if !pod.Running || !requestsNetworks(pod) || nad.HasAttachments(pod.Annotations[nad.StatusAnnotation]) {
		return nil
	}
	if end != nil && end.Error != nil {
		p.failures++
		c.metrics.changes.WithLabelValues("failed").Inc()
		c.tell(p, pod, "FailedAddingInterface", end.Error.Err(false))
		c.later(p, pauseAfter(p.failures))
		return nil
	}
	if _, err := nad.ParseRequests(conf.NetworkAnnotations(pod.Annotations), pod.Namespace, ""); err != nil {
		c.tell(p, pod, "InterfaceChangeRefused", err)
		return nil
	}
	if !c.conf.Attach {
		return nil // see unattached
	}
	c.queue(p, pod, nil)
	return nil
}

// decide puts the pod into the queue if its annotation names other networks than it has.
func (c *changes) decide(p *podChange, pod *netmodel.Pod, e *journal.Summary) error {
	change, err := c.changeOf(pod, e)
	if err != nil {
		c.tell(p, pod, "InterfaceChangeRefused", err)
		return nil
	}
	repair, err := conf.Repair(pod.Annotations)
	if err != nil {
		return err // changeOf refuses it before
	}
	c.mu.Lock()
	lost, inspect := strings.Join(p.lost, ", "), p.inspect
	p.inspect = false
	c.mu.Unlock()
	asked := repair != "" && repair != conf.RepairAlways && repair != e.Repaired
	p.inspects = change.Nothing() && len(e.Changing) == 0 && lost == ""
	if p.inspects && !asked && !inspect {
		p.failures, p.told = 0, ""
		return nil
	}
	if !c.conf.Attach && lost != "" {
		c.tell(p, pod, "InterfaceLost", conf.Errorf(conf.CodeNotAsMade, "delete the pod, so that it is made again; with the "+
			"chart's value attach.enabled the interface would be made again", "interface %s: its host-side veth is gone", lost))
		return nil
	}
	if !c.conf.Attach && p.inspects {
		c.tell(p, pod, "NetworksNotChanged", conf.Errorf(conf.CodeNotAllowed, "delete the pod, so that it is made again; or "+
			"ask the operator for the chart's value attach.enabled", "annotation %s: this node does not change the interfaces "+
			"of running pods", conf.RepairAnnotation))
		return nil
	}
	if !c.conf.Attach {
		c.tell(p, pod, "NetworksNotChanged", conf.Errorf(conf.CodeNotAllowed, "delete the pod, so that it is made again; or "+
			"ask the operator for the chart's value attach.enabled", "the annotation %s was edited while the pod ran, and "+
			"this node gives networks to a pod only when it starts", conf.NetworksAnnotation))
		return nil
	}
	c.queue(p, pod, e.Settled().List())
	return nil
}

func (c *changes) forget(p *podChange) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.pods, podID(p.pod))
	c.ready = slices.DeleteFunc(c.ready, func(other *podChange) bool { return other == p })
}

// entryOf reads the journal's entry of a pod; nil: it has none. Of several sandboxes the newest one counts.
func (c *changes) entryOf(p *podChange) (*journal.Summary, error) {
	c.mu.Lock()
	known := p.sandbox
	c.mu.Unlock()
	if known != nil {
		if e, err := c.journal.Summary(known); err == nil {
			return e, nil
		}
	}
	all, _, err := c.journal.Summaries()
	var newest *journal.Summary
	for i := range all {
		e := &all[i]
		if e.Sandbox.Namespace == p.pod.Namespace && e.Sandbox.Pod == p.pod.Name && p.pod.Is(e.Sandbox.UID) &&
			(newest == nil || e.Began.After(newest.Began)) {
			newest = e
		}
	}
	return newest, err
}

// changeOf compares an entry with the pod's annotation.
func (c *changes) changeOf(pod *netmodel.Pod, e *journal.Summary) (*nad.Change, error) {
	has := presentIn(e.Settled())
	requests, err := nad.ParseRequestsOf(conf.NetworkAnnotations(pod.Annotations), pod.Namespace, e.Sandbox.Interface, has)
	if err != nil {
		return nil, err
	}
	return nad.Compare(requests, has)
}

// tell tells the pod's owner why its networks are not changed, once.
func (c *changes) tell(p *podChange, pod *netmodel.Pod, reason string, err error) {
	_, message, details := conf.Describe(err)
	if details != "" {
		message += "; " + details
	}
	if p.told == message {
		return
	}
	p.told = message
	c.log.Warn("the networks of a running pod are not changed", "pod", pod.Namespace+"/"+pod.Name, "err", conf.Brief(err))
	c.source.Event(pod, source.Warning, reason, message)
}

// writeStatus writes the network-status by what the journal says. An error of it is no reason to undo anything: it is
// written later.
func (c *changes) writeStatus(ctx context.Context, p *podChange, pod *netmodel.Pod) {
	text, err := c.statusNow(p.sandbox)
	if err == nil && text != nil {
		err = c.source.SetStatus(ctx, pod, text)
	}
	p.status = err != nil && !errors.Is(err, source.ErrNotFound)
	if !p.status {
		p.unsaved = 0
		return
	}
	p.unsaved++
	c.log.Warn("write the network-status of a running pod", "pod", pod.Namespace+"/"+pod.Name, "err", err)
	c.later(p, pauseAfter(p.unsaved))
}

// statusNow is the network-status of what a sandbox has; nil: the entry is gone.
func (c *changes) statusNow(s *agentapi.Sandbox) ([]byte, error) {
	e, err := c.journal.Read(s)
	if e == nil || err != nil || e.Damaged || e.Plan == nil {
		return nil, err
	}
	names := e.Settled().Names()
	part := e.Part(names)
	positions := map[string]int{}
	for i, name := range names { // the pod may lack some networks of its annotation
		positions[name] = i
	}
	part.Plan.Arrange(positions)
	return statusOf(&agentapi.BindRequest{
		Sandbox: e.Sandbox, Plan: *part.Plan, Primary: e.Primary, Results: part.Results, Devices: part.Devices,
	})
}

// tellEnd tells the pod's owner what came and what went, and why the rest did not.
func (c *changes) tellEnd(
	p *podChange, pod *netmodel.Pod, e *journal.Summary, end *agentapi.ChangeEnded,
) (failed bool) {
	has, whole := e.Settled().List(), e.Plan.List() // what a failed removal left is not gone yet
	without := func(all []agentapi.Attachment, name string) bool {
		return !slices.ContainsFunc(all, func(a agentapi.Attachment) bool { return a.Interface == name })
	}
	for _, at := range p.had {
		if without(whole, at.Interface) {
			p.status = true
			c.source.Event(pod, source.Normal, "RemovedInterface",
				fmt.Sprintf("removed %s from %s", at.Interface, at.Network))
		}
	}
	for _, at := range has {
		if without(p.had, at.Interface) {
			p.status = true
			c.source.Event(pod, source.Normal, "AddedInterface", "added "+attachedMessage(only(e.Plan, at.Interface)))
		}
	}
	if end.Error == nil {
		c.mu.Lock()
		lost := strings.Join(p.lost, ", ")
		p.lost = nil
		c.mu.Unlock()
		if lost != "" {
			c.source.Event(pod, source.Normal, "InterfaceRestored",
				"interface "+lost+": its host-side veth was gone, and it was made again")
		}
	}
	p.had = append(has, slices.DeleteFunc(p.had, func(at agentapi.Attachment) bool {
		return without(whole, at.Interface) || !without(has, at.Interface)
	})...)
	err := end.Error.Err(false)
	if conf.HasCode(err, conf.CodePodGone) { // a reconcile pass deletes what the sandbox has
		c.gone.add(e.Sandbox.ContainerID)
		p.failures++
		return true
	}
	if p.inspects {
		c.metrics.changes.WithLabelValues("inspected").Inc()
		return false // an inspection that fails has the next turn
	}
	if err == nil {
		p.failures = 0
		c.metrics.changes.WithLabelValues("done").Inc()
		return false
	}
	p.failures++
	c.metrics.changes.WithLabelValues("failed").Inc()
	reason := "FailedAddingInterface"
	if change, differs := c.changeOf(pod, e); differs == nil && len(change.Remove)+len(e.Changing) > 0 {
		reason = "FailedRemovingInterface"
	}
	c.tell(p, pod, reason, err)
	return true
}

// only is a plan with one interface, at the first position.
func only(p *agentapi.Plan, name string) *agentapi.Plan {
	_, part := p.Split([]string{name})
	part.Arrange(map[string]int{name: 0})
	return part
}
