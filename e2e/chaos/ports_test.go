//go:build chaos

package chaos

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/netmodel/service"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbrows"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/services"
	"github.com/ovn-multinet/ovn-multinet/ovnport"
)

// configurations are what the controller makes of the network. An address of one is an address of all.
var configurations = []string{
	`"subnets":"10.1.0.0/28,fd01::/64"`,
	`"subnets":"10.1.0.0/28,fd01::/64","excludeSubnets":"10.1.0.8/31"`,
	`"subnets":"10.1.0.0/28,fd01::/64","gateway":"10.1.0.9"`,
	`"subnets":"10.1.0.0/28,fd01::/64","excludeSubnets":"10.1.0.4/30,10.1.0.8/29"`, // two addresses are left
	`"subnets":"10.1.0.0/28,fd01::/64","router":"r1"`,
}

// fixed are the addresses that pods want for themselves; others get them as dynamic ones.
var fixed = []string{"10.1.0.2/28", "10.1.0.3/28", "fd01::2/64"}

const (
	podNames  = 3
	nodeNames = 2
	// crowd is how many goroutines of an actor share its connection, so that their transactions are committed in groups.
	crowd = 3
)

// sandbox is a sandbox as its node knows it.
type sandbox struct {
	owner    ovnport.Owner
	pod      int // the number of its pod's name
	number   int // among the sandboxes of the name
	requests []ovnport.Request
	ports    []ovnport.Port // as the ADD was answered; nil: it has not ended, or with an error
	had      []ovnport.Port // of before an ADD that was repeated
	hold     *Hold
	busy     bool // a call runs; the agent has a lock for each sandbox
	older    bool // a newer sandbox of the pod has begun
	ended    bool // the DEL has begun
	released bool // a release was acknowledged
}

// a podName is a name, of which there is one pod at a time.
type podName struct {
	uid       int
	adding    bool // a kubelet makes one sandbox of a pod at a time
	sandboxes []*sandbox
}

// race is one NB with the actors that use it. What they know is shared: it stands for the journals and the API server.
type race struct {
	*nbtest.World
	*turns
	t           *testing.T
	networks    []*netmodel.Network // by the configuration
	ports       []*ovnport.NB       // by the actor
	controllers []*nbtest.Client
	services    []*services.Services

	mu      sync.Mutex
	nad     int // the NAD's configuration
	pods    [podNames]*podName
	wanted  map[string]*service.Service // by name; nil: there is none
	history *History
	wrong   []string                     // what check has found
	cancels map[int][]context.CancelFunc // of the calls that were begun, by the actor
	log     []string
}

// The actors by their numbers: those of kubelets and crowds, and the others.
const (
	kubelets = 4 // the last one is a crowd
	cleaner  = kubelets
	repairer = kubelets + 1
	orphans  = kubelets + 2
	manager  = kubelets + 3
	servers  = kubelets + 4 // two controllers of Services that both believe to lead
	actors   = kubelets + 6
)

func newRace(t *testing.T) *race {
	r := &race{World: nbtest.NewWorld(t), turns: newTurns(), t: t}
	for _, keys := range configurations {
		r.networks = append(r.networks, nbtest.Network(t, "blue", keys))
	}
	for i := range actors {
		c := nbtest.Connect(t, r.connect(t, i, r.Server))
		r.controllers = append(r.controllers, c)
		r.ports = append(r.ports, ovnport.NewNB(c.DB))
		r.services = append(r.services, services.New(nbrows.NewStore(c.DB)))
	}
	r.turns.before = func() {
		if r.turns.wrote {
			r.check()
		}
	}
	return r
}

// begin empties NB and forgets all pods.
func (r *race) begin() {
	r.Clear(r.t)
	r.nad, r.history, r.cancels, r.log = 0, &History{}, map[int][]context.CancelFunc{}, nil
	r.wanted, r.wrong = map[string]*service.Service{}, nil
	for i := range r.pods {
		r.pods[i] = &podName{}
	}
	r.ensure(r.Networks)
}

// ensure makes the network as the NAD says, with its services.
func (r *race) ensure(c *nbtest.Client) {
	r.mu.Lock()
	n := r.networks[r.nad]
	r.mu.Unlock()
	ctx, cancel := limited()
	defer cancel()
	_, err := c.Ensure(ctx, n, []string{"shop/blue"})
	if err == nil {
		_, err = services.New(nbrows.NewStore(c.DB)).EnsureNetwork(ctx, "shop/blue")
	}
	if err != nil {
		r.say("controller: %v", err)
	}
}

// say adds a line to the log of the schedule.
func (r *race) say(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.log = append(r.log, fmt.Sprintf(format, args...))
}

// call returns the context of one call of an actor, which may be cancelled while the actor waits for its turn.
func (r *race) call(who int) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.Background(), nbtest.Limit)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cancels[who] = append(r.cancels[who], cancel)
	return ctx, cancel
}

// add begins a sandbox, of the same pod or of a new one with its name, and calls ADD.
func (r *race) add(who int, rnd *rand.Rand) {
	number := rnd.IntN(podNames)
	node, newPod := rnd.IntN(nodeNames), rnd.IntN(3) == 0
	requests := []ovnport.Request{{Interface: "net1"}}
	if rnd.IntN(2) == 0 {
		address := netip.MustParsePrefix(fixed[rnd.IntN(len(fixed))])
		requests[0].IPs = []netip.Prefix{address}
	}
	if rnd.IntN(3) == 0 {
		requests = append(requests, ovnport.Request{Interface: "net2"})
	}
	if rnd.IntN(4) == 0 {
		requests[0].MAC = net.HardwareAddr{2, 0, 0, 0, 0, byte(rnd.IntN(2))}
	}
	known := rnd.IntN(2) == 0 // the agent knows the ports of the sandbox that it takes over, such as early ones

	r.mu.Lock()
	p := r.pods[number]
	if p.adding && !newPod {
		r.mu.Unlock()
		return
	}
	if newPod {
		p = &podName{uid: p.uid + 1, sandboxes: p.sandboxes}
		r.pods[number] = p
	}
	for i := range requests {
		requests[i].Network = r.networks[r.nad]
	}
	s := &sandbox{pod: number, number: len(p.sandboxes), busy: true, requests: requests, owner: ovnport.Owner{Namespace: "shop", Pod: fmt.Sprint("web-", number),
		UID: fmt.Sprintf("web-%d-%d", number, p.uid), Sandbox: fmt.Sprintf("web-%d-%d-%d", number, p.uid, len(p.sandboxes)),
		Node: fmt.Sprint("node-", node), Chassis: fmt.Sprint("chassis-", node)}}
	for _, older := range p.sandboxes {
		older.older = true
		r.history.Releasing(older.hold)
		for i := range requests {
			if known && older.owner.UID == s.owner.UID && i < len(older.ports) {
				requests[i].Older = &ovnport.Older{Sandbox: older.owner.Sandbox, Port: older.ports[i]}
			}
		}
	}
	p.adding, p.sandboxes = true, append(p.sandboxes, s)
	r.pods[number] = p
	r.mu.Unlock()

	ctx, cancel := r.call(who)
	defer cancel()
	ports, err := r.ports[who].Ensure(ctx, s.owner, requests, r.mayTakeOver(s))
	r.say("%d: ADD %s: %d ports, %v", who, s.owner.Sandbox, len(ports), err)
	r.mu.Lock()
	defer r.mu.Unlock()
	p.adding, s.busy = false, false
	if err != nil {
		s.ended = true // the runtime calls DEL
		return
	}
	s.ports, s.hold = ports, r.history.Attached(s.owner.Sandbox, addressesOf(ports))
	if s.older {
		r.history.Releasing(s.hold)
	}
}

var errPodGone = errors.New("the pod is gone, or has a newer sandbox")

// mayTakeOver is the agent's rule: the live pod has its ports, by its newest sandbox that has not ended.
func (r *race) mayTakeOver(s *sandbox) ovnport.Supersedes {
	return func(_ context.Context, older ovnport.Owner) error {
		r.mu.Lock()
		defer r.mu.Unlock()
		newer := slices.ContainsFunc(r.pods[s.pod].sandboxes[s.number+1:], func(o *sandbox) bool {
			return o.owner.Sandbox == older.Sandbox && !o.ended
		})
		if older.UID == s.owner.UID && newer || older.UID != s.owner.UID && !r.isLive(s) {
			return errPodGone
		}
		return nil
	}
}

func (r *race) isLive(s *sandbox) bool {
	return s.owner.UID == fmt.Sprintf("web-%d-%d", s.pod, r.pods[s.pod].uid)
}

// take returns a sandbox for which want is true, with its lock; nil: there is none.
func (r *race) take(rnd *rand.Rand, want func(s *sandbox) bool) (s *sandbox, unlock func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []*sandbox
	for _, p := range r.pods {
		for _, s := range p.sandboxes {
			if !s.busy && want(s) {
				all = append(all, s)
			}
		}
	}
	if len(all) == 0 {
		return nil, nil
	}
	s = all[rnd.IntN(len(all))]
	s.busy = true
	return s, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		s.busy = false
	}
}

// del calls DEL for a sandbox that is there, or once more for one that is gone.
func (r *race) del(who int, rnd *rand.Rand) {
	s, unlock := r.take(rnd, func(s *sandbox) bool { return !s.released || rnd.IntN(4) == 0 })
	if s == nil {
		return
	}
	defer unlock()
	ctx, cancel := r.call(who)
	defer cancel()
	r.release(ctx, who, s, rnd.IntN(4) == 0)
}

func (r *race) release(ctx context.Context, who int, s *sandbox, forgotten bool) {
	r.mu.Lock()
	s.ended = true
	r.history.Releasing(s.hold)
	r.mu.Unlock()
	var err error
	if s.ports == nil || forgotten {
		err = r.ports[who].ReleaseSandbox(ctx, s.owner)
	} else {
		err = r.ports[who].Release(ctx, s.owner, keysOf(append(slices.Clone(s.had), s.ports...)))
	}
	r.say("%d: DEL %s: %v", who, s.owner.Sandbox, err)
	r.mu.Lock()
	defer r.mu.Unlock()
	s.released = s.released || err == nil
}

func keysOf(ports []ovnport.Port) []ovnport.Keys {
	keys := make([]ovnport.Keys, len(ports))
	for i, p := range ports {
		keys[i] = ovnport.Keys{UUID: p.UUID, Claims: p.Claims, Switch: p.Switch}
	}
	return keys
}

// again calls ADD once more for a sandbox that has its ports: an ADD that outlived its container runtime, for example.
func (r *race) again(who int, rnd *rand.Rand) {
	s, unlock := r.take(rnd, func(s *sandbox) bool { return s.ports != nil && !s.ended })
	if s == nil {
		return
	}
	defer unlock()
	ctx, cancel := r.call(who)
	defer cancel()
	ports, err := r.ports[who].Ensure(ctx, s.owner, s.requests, r.mayTakeOver(s))
	r.say("%d: ADD %s once more: %d ports, %v", who, s.owner.Sandbox, len(ports), err)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		return
	}
	if !s.older && fmt.Sprint(addressesOf(ports)) != fmt.Sprint(addressesOf(s.ports)) {
		r.t.Errorf("%s had %v and has %v", s.owner.Sandbox, s.ports, ports)
	}
	for _, p := range s.ports {
		if !slices.ContainsFunc(ports, func(now ovnport.Port) bool { return now.UUID == p.UUID }) {
			s.had = append(s.had, p)
		}
	}
	s.ports = ports
}

// kubelet starts and ends sandboxes.
func (r *race) kubelet(who int, rnd *rand.Rand) {
	for range 1 + rnd.IntN(4) {
		switch rnd.IntN(8) {
		case 0, 1, 2, 3:
			r.add(who, rnd)
		case 4:
			r.again(who, rnd)
		default:
			r.del(who, rnd)
		}
	}
}

// reconcile releases what the node's port list has of sandboxes that have ended, as an agent does that missed the DEL.
func (r *race) reconcile(rnd *rand.Rand) {
	node := fmt.Sprint("node-", rnd.IntN(nodeNames))
	ctx, cancel := r.call(cleaner)
	defer cancel()
	owned, err := r.ports[cleaner].PortsOn(node).Read(ctx)
	if err != nil {
		r.say("reconcile: %v", err)
		return
	}
	keys := map[string][]string{}
	for _, p := range owned {
		keys[p.Owner.Sandbox] = append(keys[p.Owner.Sandbox], p.UUID)
	}
	for _, name := range slices.Sorted(maps.Keys(keys)) {
		s, unlock := r.take(rnd, func(s *sandbox) bool { return s.owner.Sandbox == name && s.ended })
		if s == nil {
			continue
		}
		err := r.ports[cleaner].ReleaseListed(ctx, ovnport.Owner{Node: node, Sandbox: name}, keys[name])
		r.say("reconcile: release %s: %v", name, err)
		unlock()
	}
}

// repair restores what NB has lost of sandboxes that run. It has lost nothing, unless a sandbox took a port over.
func (r *race) repair(rnd *rand.Rand) {
	s, unlock := r.take(rnd, func(s *sandbox) bool { return s.ports != nil && !s.ended })
	if s == nil {
		return
	}
	defer unlock()
	ctx, cancel := r.call(repairer)
	defer cancel()
	r.mu.Lock()
	live := r.isLive(s)
	r.mu.Unlock()
	incomplete, err := r.ports[repairer].Incomplete(ctx, s.owner.Sandbox, s.ports)
	if err != nil || !live {
		return
	}
	for i, p := range s.ports {
		if !incomplete[p.Name] {
			continue
		}
		request := ovnport.Request{Interface: p.Interface, Network: s.requests[i].Network, IPs: p.Addresses, MAC: p.MAC}
		err := r.ports[repairer].Restore(ctx, s.owner, request, p, func(ctx context.Context, older ovnport.Owner) error {
			r.mu.Lock()
			newer := slices.ContainsFunc(r.pods[s.pod].sandboxes, func(o *sandbox) bool {
				return o.owner.Sandbox == older.Sandbox && !o.ended
			})
			r.mu.Unlock()
			if older.UID == s.owner.UID && (older.Node != s.owner.Node || newer) {
				return ovnport.ErrSuperseded
			}
			return r.mayTakeOver(s)(ctx, older)
		})
		r.say("repair %s: %v", p.Name, err)
	}
}

// NodeNames and Gone are the API server's answers to the garbage collection.
func (r *race) NodeNames(context.Context) ([]string, error) { return []string{"node-0", "node-1"}, nil }

// Gone lists the pods that there are now.
func (r *race) Gone(context.Context, ...string) (ovnport.Gone, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	uids := map[string]bool{}
	for i, p := range r.pods {
		uids[fmt.Sprintf("web-%d-%d", i, p.uid)] = true
	}
	return func(o ovnport.Owner) string {
		if uids[o.UID] {
			return ""
		}
		return "the pod is gone"
	}, nil
}

// collect is the controller's garbage collection of ports.
func (r *race) collect() {
	o := ovnport.NewOrphans(r.ports[orphans], r, func() error { return nil }, slog.New(slog.DiscardHandler))
	for range 3 {
		ctx, cancel := r.call(orphans)
		if err := o.Pass(ctx); err != nil {
			r.say("orphans: %v", err)
		}
		cancel()
	}
}

// control changes and deletes the NAD, and makes the network as the NAD says.
func (r *race) control(rnd *rand.Rand) {
	c := r.controllers[manager]
	for range 1 + rnd.IntN(3) {
		if rnd.IntN(2) == 0 {
			ctx, cancel := r.call(manager)
			r.say("controller: delete: %v", c.Delete(ctx, "shop/blue", false))
			cancel()
		} else {
			r.mu.Lock()
			r.nad = rnd.IntN(len(configurations))
			r.mu.Unlock()
		}
		r.ensure(c)
	}
}

// play has a random choice of actors do what they do.
func (r *race) play(rnd *rand.Rand) (turns int) {
	seeds := make([][2]uint64, actors+crowd)
	for i := range seeds {
		seeds[i] = [2]uint64{rnd.Uint64(), rnd.Uint64()}
	}
	own := func(i int) *rand.Rand { return rand.New(rand.NewPCG(seeds[i][0], seeds[i][1])) }
	all := make([]func(), actors)
	for who := range kubelets - 1 {
		all[who] = func() { r.kubelet(who, own(who)) }
	}
	all[kubelets-1] = func() {
		var group sync.WaitGroup
		for i := range crowd {
			group.Go(func() { r.kubelet(kubelets-1, own(actors+i)) })
		}
		group.Wait()
	}
	all[cleaner] = func() { r.reconcile(own(cleaner)) }
	all[repairer] = func() { r.repair(own(repairer)) }
	all[orphans] = r.collect
	all[manager] = func() { r.control(own(manager)) }
	for who := servers; who < actors; who++ {
		all[who] = func() { r.controlServices(who, own(who)) }
	}
	for i := range all {
		if i > 0 && rnd.IntN(3) == 0 {
			all[i] = func() {}
		}
	}
	return r.run(rnd, all, func(who int) {
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, cancel := range r.cancels[who] {
			cancel()
		}
		r.cancels[who] = nil
	})
}
