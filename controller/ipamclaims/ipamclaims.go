// Package ipamclaims owns the kind of IPAMClaims: it writes their status, and frees their addresses when they are
// deleted.
package ipamclaims

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"

	"github.com/ovn-multinet/ovn-multinet/controller/engine"
	"github.com/ovn-multinet/ovn-multinet/controller/pods"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovnnet"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/ipamclaims"
)

// Source is the controller's source of IPAMClaims. Each method waits until the source has everything, and fails at the
// end of ctx.
type Source interface {
	pods.Source
	// IPAMClaims returns all IPAMClaims.
	IPAMClaims(ctx context.Context) ([]*netmodel.IPAMClaim, error)
	// KnownIPAMClaim returns one IPAMClaim; nil if it does not exist.
	KnownIPAMClaim(ctx context.Context, namespace, name string) (*netmodel.IPAMClaim, error)
	// SetIPAMClaimStatus writes the status of an IPAMClaim. If it is gone, the error is netmodel.ErrNotFound.
	SetIPAMClaimStatus(ctx context.Context, c *netmodel.IPAMClaim, is netmodel.IPAMClaimStatus) error
}

// Config has what the kind needs.
type Config struct {
	Engine *engine.Engine
	Source Source
	Rows   *ipamclaims.Claims
	// Network returns what NB stores about a network.
	Network func(ctx context.Context, id string) (*ovnnet.Stored, error)
	Log     *slog.Logger
}

// Kind keeps the rows and the statuses of IPAMClaims in sync. Only the worker uses it.
type Kind struct {
	Config
	// written has the IPAMClaims that NB may have rows of, and known those that exist, by namespace.
	written, known engine.Index[string]
	listed         engine.Listed // written and limited have what NB had when this controller began to lead
	// networks has the network of each of the IPAMClaims in written, and limited the networks on which those of a
	// namespace get no new addresses (see limits.go).
	networks map[string]string
	limited  engine.Index[string]
	// named has the IPAMClaims that a pod names, or has the port of, by pod "<namespace>/<name>".
	named engine.Index[string]
	// gone has the pod that had the port of an IPAMClaim and is gone. Its port goes soon.
	gone   map[string]string
	states engine.Verdicts[netmodel.IPAMClaimStatus]
}

const kindClaim = "ipamclaim"

// Item returns the item of an IPAMClaim.
func Item(id string) engine.Item { return engine.Of(kindClaim, id) }

// New makes the kind, and registers its pass.
func New(c Config) *Kind {
	k := &Kind{
		Config: c, written: engine.Index[string]{}, known: engine.Index[string]{}, named: engine.Index[string]{},
		networks: map[string]string{}, limited: engine.Index[string]{}, gone: map[string]string{},
		states: engine.NewVerdicts[netmodel.IPAMClaimStatus](kindClaim, c.Log),
	}
	k.states.Write = k.writeStatus
	c.Engine.Register(kindClaim, k.reconcile)
	c.Engine.Register(kindLimits, k.reconcileLimits)
	return k
}

// Run writes the statuses of IPAMClaims until the end of ctx.
func (k *Kind) Run(ctx context.Context) { k.states.Run(ctx) }

// list finds out, once, which rows NB has.
func (k *Kind) list(ctx context.Context) error {
	return k.listed.Once(func() error {
		all, limits, err := k.Rows.List(ctx)
		for id, has := range all {
			k.count(id, has)
		}
		for namespace, networks := range limits {
			for _, network := range networks {
				k.limited.Add(namespace, network)
			}
		}
		return err
	})
}

// QueueAll queues all IPAMClaims, and those that NB has rows of.
func (k *Kind) QueueAll(ctx context.Context, _ map[string]*ovnnet.Listed) error {
	if err := k.list(ctx); err != nil {
		return err
	}
	for namespace, ids := range k.written {
		for id := range ids {
			k.Engine.Add(Item(id))
		}
		k.Engine.Add(engine.OfNamespace(kindLimits, namespace))
	}
	for namespace := range k.limited {
		k.Engine.Add(engine.OfNamespace(kindLimits, namespace))
	}
	all, err := k.Source.IPAMClaims(ctx)
	for _, c := range all {
		k.Engine.Add(Item(c.ID()))
	}
	return err
}

// Follows reports whether pods of a namespace may name IPAMClaims that exist, or that NB has rows of.
func (k *Kind) Follows(namespace string) bool {
	return len(k.known[namespace])+len(k.written[namespace]) > 0
}

// PodsChanged queues the IPAMClaims that pods name which have changed, or named before. now has the pods that exist.
func (k *Kind) PodsChanged(namespace string, names []string, now map[string]*netmodel.Pod) {
	for _, name := range names {
		id, pod := namespace+"/"+name, now[name]
		for claim := range k.named[id] {
			k.Engine.Add(Item(claim))
			if pod == nil {
				k.gone[claim] = name
			}
		}
		delete(k.named, id)
		if pod == nil {
			continue
		}
		for _, claim := range pod.IPAMClaims {
			if k.gone[namespace+"/"+claim] == name { // there is a pod of this name again
				delete(k.gone, namespace+"/"+claim)
			}
			k.named.Add(id, namespace+"/"+claim)
			k.Engine.Add(Item(namespace + "/" + claim))
		}
	}
}

// reconcile writes the status of an IPAMClaim. If the IPAMClaim is gone, it frees the addresses, as soon as no pod
// has them any more.
func (k *Kind) reconcile(ctx context.Context, i engine.Item) error {
	if err := k.list(ctx); err != nil {
		return err
	}
	if _, counted := k.networks[i.Key]; !counted { // waits for no budget: the namespace's next IPAMClaim must not pass
		if has, err := k.Rows.Read(ctx, i.Key); err != nil {
			return err
		} else if has != nil {
			k.count(i.Key, has)
		}
	}
	return k.Engine.Paced(i, func() error {
		namespace, name, _ := strings.Cut(i.Key, "/")
		claim, err := k.Source.KnownIPAMClaim(ctx, namespace, name)
		if err != nil {
			return err
		}
		if claim == nil {
			return k.release(ctx, i)
		}
		k.known.Add(namespace, i.Key)
		has, err := k.Rows.Read(ctx, i.Key)
		if err != nil {
			return err
		}
		if has == nil {
			if k.written[namespace][i.Key] { // its rows were deleted by hand, or NB was restored
				k.uncount(i.Key)
			}
			return nil
		}
		k.count(i.Key, has)
		if has.Pod != "" && has.Pod == k.gone[i.Key] {
			k.Engine.TryLater(i, engine.Obstacle{First: engine.NotReadyEvery})
			return nil
		}
		delete(k.gone, i.Key)
		k.Engine.Tried(i)
		if has.Pod != "" {
			k.named.Add(namespace+"/"+has.Pod, i.Key)
		}
		k.states.Put(i.Key, &netmodel.IPAMClaimStatus{
			IPs: has.IPs, Pod: has.Pod, Allocated: true, Reason: netmodel.SuccessfulAllocation, Message: "MAC " + has.MAC,
		})
		return nil
	})
}

func (k *Kind) release(ctx context.Context, i engine.Item) error {
	k.known.Remove(i.Tenant, i.Key)
	deleted, err := k.Rows.Delete(ctx, i.Key)
	if errors.Is(err, ipamclaims.ErrInUse) {
		k.written.Add(i.Tenant, i.Key)
		k.Engine.TryLater(i, engine.Obstacle{First: engine.NotReadyEvery})
		return nil
	}
	if err != nil {
		return err
	}
	k.uncount(i.Key)
	delete(k.gone, i.Key)
	k.Engine.Tried(i)
	if deleted {
		k.Log.Info("the addresses of an IPAMClaim are free", "ipamclaim", i.Key)
	}
	return nil
}

func same(a, b netmodel.IPAMClaimStatus) bool {
	return slices.Equal(a.IPs, b.IPs) && a.Pod == b.Pod && a.Allocated == b.Allocated && a.Reason == b.Reason &&
		a.Message == b.Message
}

// writeStatus writes a status, unless the IPAMClaim has it by now.
func (k *Kind) writeStatus(ctx context.Context, id string, is *netmodel.IPAMClaimStatus) error {
	if err := k.Engine.Leading(); err != nil {
		return err
	}
	namespace, name, _ := strings.Cut(id, "/")
	claim, err := k.Source.KnownIPAMClaim(ctx, namespace, name)
	if err != nil || claim == nil || same(claim.Status, *is) {
		return err
	}
	return k.Source.SetIPAMClaimStatus(ctx, claim, *is)
}
