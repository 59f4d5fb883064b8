package ovnport

import (
	"context"
	"errors"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/internal/failpoint"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
)

// maxAttempts bounds the transactions of one Ensure. After a refused one at least one port is settled, and only a race
// with other pods (in a nearly full subnet, for example) makes the database refuse again.
const maxAttempts = 64

// Supersedes reports whether the calling sandbox may take a port over from an older owner of the same name; nil means
// yes. The caller reads the live pod for that.
type Supersedes func(ctx context.Context, older Owner) error

// Ensure gives a pod its ports: all of them in one transaction, or none. A second call for the same sandbox finds them
// and writes nothing. A fixed address that is in use is an error with code 103; a dynamic one is replaced by the next.
func (n *NB) Ensure(ctx context.Context, o Owner, requests []Request, supersedes Supersedes) ([]Port, error) {
	has, err := n.readContents(ctx, requests)
	if err != nil {
		return nil, explain(err)
	}
	drafts := make([]*draft, 0, len(requests))
	for _, request := range requests {
		d, err := newDraft(&o, request, has[request.IPAMClaim])
		if err != nil {
			return nil, err
		}
		d.adoptOlder(request.Older, o.UID)
		drafts = append(drafts, d)
	}
	e := n.newEnsureCall(o, drafts, supersedes)
	if err := e.separateReservations(); err != nil {
		return nil, err
	}
	if err := e.run(ctx); err != nil {
		return nil, explain(err)
	}
	ports := make([]Port, 0, len(drafts))
	for _, d := range drafts {
		ports = append(ports, d.port())
	}
	return ports, nil
}

func (d *draft) port() Port {
	p := Port{
		UUID: d.key(), Name: d.name, Network: d.request.Network.ID(), Interface: d.request.Interface, MAC: d.mac(),
		Switch: ovndb.SwitchKey(d.request.Network.SwitchName()), Claims: d.claimKeys(),
	}
	for _, profile := range d.request.Profiles {
		p.Groups = append(p.Groups, profile.Group)
	}
	for _, r := range d.reservations {
		if r.addr.IsValid() {
			p.Addresses = append(p.Addresses, r.addr)
		}
	}
	return p
}

// ensureCall is one call of Ensure.
type ensureCall struct {
	*NB
	owner      Owner
	supersedes Supersedes
	drafts     []*draft
	network    networkWait
	epoch      string // of the node
}

func (n *NB) newEnsureCall(o Owner, drafts []*draft, supersedes Supersedes) *ensureCall {
	return &ensureCall{NB: n, owner: o, supersedes: supersedes, drafts: drafts, network: networkWait{nb: n}}
}

// separateReservations gives a dynamic reservation its next candidate as long as another reservation of the pod has
// the same key. Two fixed ones with the same key are an error: the database would refuse each attempt.
func (e *ensureCall) separateReservations() error {
	for _, d := range e.drafts {
		for i := range d.reservations {
			for d.reservations[i].search != nil && e.reservedTwice(&d.reservations[i]) {
				if d.reservations[i].search.exhausted() {
					return noAddressLeft(d)
				}
				d.reservations[i].set(d.reservations[i].search.next())
			}
		}
	}
	for _, d := range e.drafts {
		for i := range d.reservations {
			if r := &d.reservations[i]; e.reservedTwice(r) {
				return conf.Errorf(conf.CodeInvalidConfig, "give each interface of the pod an address and a MAC of its own",
					"interface %s: %s of network %s is requested twice by this pod", d.request.Interface, r, d.request.Network.ID())
			}
		}
	}
	return nil
}

func (e *ensureCall) reservedTwice(r *reservation) bool {
	for _, d := range e.drafts {
		for i := range d.reservations {
			if other := &d.reservations[i]; other != r && other.key == r.key {
				return true
			}
		}
	}
	return false
}

// uncertain is an error after which the ports may exist: the answer to an earlier attempt was lost.
type uncertain struct{ error }

func (u uncertain) Unwrap() []error { return []error{u.error, ovndb.ErrUnknownOutcome} }

// run writes first, and reads only what a refusal makes necessary: without a conflict the ports cost one round trip.
func (e *ensureCall) run(ctx context.Context) (err error) {
	if err := e.db.WaitConnected(ctx); err != nil {
		return err
	}
	lost := false
	defer func() {
		if err != nil && lost {
			err = uncertain{err}
		}
	}()
	for attempt := 0; attempt < maxAttempts; {
		if e.epoch, err = e.epochOf(ctx, e.owner.Node); err == nil {
			t, buildErr := e.build()
			if buildErr != nil {
				return buildErr
			}
			err = e.group.commit(ctx, t.ops, e.keys())
			failpoint.Hit("nb-committed")
			lost = lost || errors.Is(err, ovndb.ErrUnknownOutcome)
			if err == nil {
				return nil
			}
			if refused, ok := errors.AsType[*ovndb.Refused](err); ok {
				attempt++
				err = e.settle(ctx, refused, t)
			}
		}
		if err != nil && !errors.Is(err, ovndb.ErrUnknownOutcome) {
			return err
		}
		// After an unknown outcome, try the same keys again: if the transaction was committed, they are ours.
		if err != nil && !pause(ctx) {
			return unreachable(err)
		}
	}
	return conf.Errorf(conf.CodeTryAgain,
		"many pods request addresses of one small subnet at once; a retry finds the addresses that are free by then",
		"no free address in %d attempts", maxAttempts)
}
