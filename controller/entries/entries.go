// Package entries owns which of the operator's objects count in the controller: it joins them with the file of
// --config, refuses those that do not fit, says who needs each object, and writes their statuses. What the entries mean
// is in package netmodel.
package entries

import (
	"bytes"
	"context"
	"log/slog"
	"maps"
	"net/netip"
	"time"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/controller/configfile"
	"github.com/ovn-multinet/ovn-multinet/controller/engine"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/netmodel/entry"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/outside"
)

// Source is where the objects are.
type Source interface {
	// Entries returns all objects, or an error, never a part of them.
	Entries(ctx context.Context) ([]*entry.Object, error)
	// SetEntryFinalizer gives an object our finalizer, or removes the finalizer.
	SetEntryFinalizer(ctx context.Context, o *entry.Object, with bool) error
	// SetEntryStatus writes the status of an object. If the object is gone, the error is netmodel.ErrNotFound.
	SetEntryStatus(ctx context.Context, o *entry.Object, status entry.Status) error
	// EntryEvent records an Event for an object. It does not wait.
	EntryEvent(o *entry.Object, warning bool, reason, message string)
}

// Config has what the kind needs.
type Config struct {
	Engine *engine.Engine
	Source Source // nil: there are no objects
	File   configfile.Config
	Rows   *outside.Outside
	// HasBridge reports whether some node has a bridge for a physical network, if that is known.
	HasBridge func(physical string) (has, known bool)
	// Uplinks says how far nodes have the uplinks to a physical network, and what is missing, if that is known.
	Uplinks func(physical string) (nodes *entry.Nodes, problem string, known bool)
	Log     *slog.Logger
}

// Kind are the operator's objects. Only the worker uses it.
type Kind struct {
	Config
	counts  specs
	now     *settled // nil: the objects have not been read yet
	objects []*entry.Object
	edited  bool // the file has changed since the last Operator

	listed   bool                         // the following two are whole
	networks map[string]*netmodel.Network // what matters of the accepted configurations, by network
	// addresses are the outside addresses of pods and Services.
	addresses map[outside.Key][]netip.Addr
	problems  map[string]string // by router: what its gateway lacks

	refused *engine.Refusals
	states  *states
}

const kindStatus = "operator-objects"

// StatusItem is the item of the pass over the statuses of all objects.
var StatusItem = engine.Item{Kind: kindStatus, Tenant: engine.Operators}

// usersAfter is the time for which changes of networks are collected before the users of objects are counted again.
const usersAfter = time.Second

// New makes the kind and registers it.
func New(c Config) *Kind {
	k := &Kind{
		Config: c, counts: specs{}, networks: map[string]*netmodel.Network{}, problems: map[string]string{},
		addresses: map[outside.Key][]netip.Addr{},
		refused:   c.Engine.Refusals("operator"), states: newStates(c),
	}
	c.Rows.Told = k.HasAddresses
	c.Engine.Register(kindStatus, k.reconcileStatus)
	return k
}

// Run writes the statuses of objects until the end of ctx.
func (k *Kind) Run(ctx context.Context) {
	if k.Source != nil {
		k.states.Run(ctx)
	}
}

// Replace replaces the file's content.
func (k *Kind) Replace(file configfile.Config) { k.File, k.edited = file, true }

// Operator returns what the file and the objects say together, and whether that is new.
func (k *Kind) Operator(ctx context.Context) (now configfile.Config, changed bool, err error) {
	var objects []*entry.Object
	if k.Source != nil {
		if objects, err = k.Source.Entries(ctx); err != nil {
			return now, false, err
		}
	}
	before := k.now
	k.objects, k.now = objects, settle(k.File, objects, k.counts)
	k.counts = k.now.specs()
	changed = before == nil || k.edited || !bytes.Equal(before.config.Document, k.now.config.Document)
	k.edited = false
	maps.DeleteFunc(k.problems, func(name, _ string) bool {
		router := k.now.config.Routers[name]
		return router == nil || !router.HasGateway()
	})
	present := map[string]bool{}
	for _, o := range objects {
		present[o.ID()] = true
		k.refused.Set(o.ID(), k.now.why[o.ID()] != "")
	}
	for _, kind := range entry.Kinds {
		k.refused.Keep(kind.Name, present)
	}
	k.tell()
	return k.now.config, changed, nil
}

// Gateway notes what the gateway of a router lacks; "": nothing.
func (k *Kind) Gateway(router, problem string) {
	if was, known := k.problems[router]; !known || was != problem {
		k.problems[router] = problem
		k.tell()
	}
}

// tell queues the statuses that are new.
func (k *Kind) tell() {
	if k.now == nil {
		return
	}
	users := k.users()
	for _, o := range k.objects {
		status := k.statusOf(o, users[o.ID()])
		if !same(o.Status, status) || o.HasFinalizer() != needsFinalizer(o, status) {
			k.states.Put(o.ID(), &verdict{o, status})
		}
	}
}

// needsFinalizer reports whether an object has to have our finalizer: as long as somebody needs it. The API server
// refuses a new finalizer on an object that is being deleted.
func needsFinalizer(o *entry.Object, s entry.Status) bool {
	return s.Users > 0 && (o.HasFinalizer() || !o.Deleting)
}

// problemOf says what the entry of an object lacks; "": nothing.
func (k *Kind) problemOf(o *entry.Object) (problem string, known bool) {
	name := o.Entry()
	switch o.Kind.Name {
	case "Router":
		if router := k.now.config.Routers[name]; router != nil && router.HasGateway() {
			problem, known = k.problems[name]
			return problem, known
		}
	case "PhysicalNetwork":
		if len(k.now.config.Uplinks[name]) > 0 {
			_, problem, known := k.Uplinks(name)
			return problem, known
		}
		has, known := k.HasBridge(name)
		if !has {
			problem = "no node has a bridge for it: write uplinks, like [{interface: eth1}]"
		}
		return problem, known
	}
	return "", true
}

// inUse is the problem of an object that is being deleted.
const inUse = "the object is being deleted, and goes when nobody needs it"

func (k *Kind) statusOf(o *entry.Object, users []string) entry.Status {
	s := entry.Status{Observed: o.Generation, Reason: conf.OneLine(k.now.why[o.ID()], conf.MaxReason)}
	taken := k.now.taken[o.ID()]
	if taken == nil {
		return s
	}
	s.Accepted = taken.Spec
	problem, known := k.problemOf(taken)
	if s.Problem = problem; !known && o.Status.Problem != inUse { // this controller has not looked at it yet
		if s.Problem = o.Status.Problem; o.Status.Observed != o.Generation {
			s.Problem = entry.NotYet
		}
	}
	if o.Kind.Name == "PhysicalNetwork" && len(k.now.config.Uplinks[taken.Entry()]) > 0 {
		if s.Nodes, _, known = k.Uplinks(taken.Entry()); !known { // nor at its nodes
			s.Nodes = o.Status.Nodes
		}
	}
	s.Users, s.UsedBy = len(users), users[:min(len(users), entry.MaxUsedBy)]
	if !k.listed { // nor at the networks
		s.Users, s.UsedBy = o.Status.Users, o.Status.UsedBy
	}
	if o.Deleting && s.Users > 0 {
		s.Problem = inUse
	}
	if s.Reason != "" { // first things first: the conditions have one of the two
		s.Problem = ""
	}
	return s
}
