package ovnport_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnport"
)

// Many nodes at once add, take over, move and delete few pods' ports in a small subnet. A ledger has what each was
// told; an independent reader holds the rows against it.

// sandboxRun is one sandbox of a pod.
type sandboxRun struct {
	owner    ovnport.Owner
	ports    []ovnport.Port // as Ensure returned them; nil: it has not, or with an error
	released bool           // a release of it was begun
}

// racePod is one pod's name; its sandboxes are numbered, and the newer one may take over from the older.
type racePod struct {
	name string
	mu   sync.Mutex
	runs []*sandboxRun
}

func (p *racePod) begin(uid, node string) *sandboxRun {
	p.mu.Lock()
	defer p.mu.Unlock()
	o := owner(p.name, fmt.Sprintf("%s-sandbox-%06d", p.name, len(p.runs)))
	o.UID, o.Node, o.Chassis = uid, node, "chassis-of-"+node
	p.runs = append(p.runs, &sandboxRun{owner: o})
	return p.runs[len(p.runs)-1]
}

// some returns a sandbox that has ports by what it was told, rather a late one, and notes that it is released.
func (p *racePod) some(r *rand.Rand) *sandboxRun {
	p.mu.Lock()
	defer p.mu.Unlock()
	var with []*sandboxRun
	for _, run := range p.runs {
		if run.ports != nil {
			with = append(with, run)
		}
	}
	if len(with) == 0 {
		return nil
	}
	run := with[max(0, len(with)-1-r.IntN(3))]
	run.released = true
	return run
}

// race is the whole of it.
type race struct {
	clients  []*ovnport.NB
	network  *netmodel.Network
	pods     []*racePod
	fillers  *racePod // all that fill the subnet are one pod's, of many interfaces
	addDel   atomic.Int64
	outcomes sync.Map // a word for how it ended → *atomic.Int64
}

func (r *race) count(outcome string) {
	n, _ := r.outcomes.LoadOrStore(outcome, new(atomic.Int64))
	n.(*atomic.Int64).Add(1)
}

func (r *race) String() string {
	var words []string
	r.outcomes.Range(func(k, v any) bool {
		words = append(words, fmt.Sprintf("%d %s", v.(*atomic.Int64).Load(), k))
		return true
	})
	slices.Sort(words)
	return strings.Join(words, ", ")
}

// Fixed things that pods fight for: their addresses are dynamic ones of others, too.
var (
	contestedIPs  = []string{"10.1.0.10", "10.1.0.20", "10.1.0.30", "10.1.0.40", "10.1.0.50", "10.1.0.60"}
	contestedMACs = []string{"02:00:00:00:00:01", "02:00:00:00:00:02", "02:00:00:00:00:03"}
)

func newRace(t *testing.T, n *netmodel.Network, clients, pods int, endpoints ...string) *race {
	t.Helper()
	r := &race{network: n, fillers: &racePod{name: "filler"}}
	for range clients {
		r.clients = append(r.clients, connect(t, endpoints...))
	}
	for i := range pods {
		r.pods = append(r.pods, &racePod{name: fmt.Sprint("pod-", i)})
	}
	return r
}

var errOlder = errors.New("a newer sandbox has it")

// add makes a new sandbox of the pod and its ports.
func (r *race) add(t *testing.T, c *ovnport.NB, p *racePod, rnd *rand.Rand) {
	run := p.begin(fmt.Sprint("uid-", rnd.IntN(2)), fmt.Sprint("node-", rnd.IntN(3)))
	var fixed []string
	switch rnd.IntN(8) {
	case 0:
		fixed = []string{contestedIPs[rnd.IntN(len(contestedIPs))]}
	case 1: // the first is the lease, the second a claim
		i := rnd.IntN(len(contestedIPs))
		fixed = []string{contestedIPs[i], contestedIPs[(i+1)%len(contestedIPs)]}
	case 2:
		fixed = []string{contestedMACs[rnd.IntN(len(contestedMACs))]}
	case 3:
		fixed = []string{"fd01::7"} // a claim beside a dynamic lease
	}
	wants := []ovnport.Request{want(r.network, "net1", fixed...)}
	if rnd.IntN(3) == 0 {
		wants = append(wants, want(r.network, "net2"))
	}
	ports, err := c.Ensure(timeout(t), run.owner, wants, func(_ context.Context, older ovnport.Owner) error {
		if older.Sandbox > run.owner.Sandbox {
			return errOlder
		}
		return nil
	})
	switch {
	case err == nil:
		p.mu.Lock()
		run.ports = ports
		p.mu.Unlock()
		r.count("added")
	case errors.Is(err, errOlder):
		r.count("older than the holder")
	case conf.HasCode(err, conf.CodeInUse):
		r.count("in use")
	case conf.HasCode(err, conf.CodeNoAddressLeft):
		r.count("no address left")
	default:
		t.Errorf("%s: %v", run.owner.Sandbox, err)
	}
}

// del releases some sandbox of the pod, which may be an old one.
func (r *race) del(t *testing.T, c *ovnport.NB, p *racePod, rnd *rand.Rand) {
	run := p.some(rnd)
	if run == nil {
		return
	}
	var err error
	if rnd.IntN(4) == 0 {
		err = c.ReleaseSandbox(timeout(t), run.owner)
	} else {
		err = c.Release(timeout(t), run.owner, held(run.ports))
	}
	if err != nil {
		p.mu.Lock()
		t.Errorf("release of %s: %v", run.owner.Sandbox, err)
		p.mu.Unlock()
	}
	r.count("released")
}

// run has each client do so many operations; during is called meanwhile, again and again.
func (r *race) run(t *testing.T, seed uint64, each int, during func()) {
	t.Helper()
	var actors, reader sync.WaitGroup
	for i, c := range r.clients {
		actors.Go(func() {
			rnd := rand.New(rand.NewPCG(seed, uint64(i)))
			for range each {
				p := r.pods[rnd.IntN(len(r.pods))]
				if rnd.IntN(5) < 3 {
					r.add(t, c, p, rnd)
				} else {
					r.del(t, c, p, rnd)
				}
				r.addDel.Add(1)
			}
		})
	}
	done := make(chan struct{})
	reader.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
				during()
			}
		}
	})
	actors.Wait()
	close(done)
	reader.Wait()
}

// fill brings the subnet's v4 addresses to so many held by others, or as near as it gets.
func (r *race) fill(t *testing.T, ports int) {
	t.Helper()
	for i := len(r.fillers.runs); i < ports; i++ {
		run := r.fillers.begin("uid", "node-0")
		run.owner.Pod = fmt.Sprint("filler-", i)
		got, err := r.clients[0].Ensure(timeout(t), run.owner, []ovnport.Request{want(r.network, "net1")}, nobody(t))
		if conf.HasCode(err, conf.CodeNoAddressLeft) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		run.ports = got
	}
}

// check holds the rows against the ledger; nobody may write meanwhile.
func (r *race) check(t *testing.T, s *snapshot) {
	t.Helper()
	s.check(t)
	bySandbox := map[string]int{}
	for _, row := range s.ports {
		bySandbox[ids(row)["ovn-multinet/sandbox"]]++
	}
	wantRows := 0
	lost := 0
	for _, p := range append(slices.Clone(r.pods), r.fillers) {
		for i, run := range p.runs {
			rows := bySandbox[run.owner.Sandbox]
			// The newest of all was neither taken over nor overtaken, and each filler is alone.
			newest := i == len(p.runs)-1 || p == r.fillers
			switch {
			case run.ports == nil || run.released:
				if rows != 0 {
					t.Errorf("%s has %d rows; ports %v, released: %t", run.owner.Sandbox, rows, run.ports, run.released)
				}
				continue
			case newest && rows != len(run.ports):
				lost++
				t.Errorf("%s has %d rows of %d", run.owner.Sandbox, rows, len(run.ports))
			}
			for _, port := range run.ports {
				row := s.ports[port.UUID]
				if row == nil || ids(row)["ovn-multinet/sandbox"] != run.owner.Sandbox {
					continue // taken over, or gone with the sandbox that took it over
				}
				wantRows++
				if bad := s.differs(run.owner, port, true); bad != "" {
					t.Error(bad)
				}
			}
		}
	}
	if wantRows != len(s.ports) {
		t.Errorf("%d rows are in the ledger, %d in the database", wantRows, len(s.ports))
	}
	if lost > 0 {
		t.Errorf("%d lost", lost)
	}
}

// finish has each pod added once more, all at once, and everything released in the end.
func (r *race) finish(t *testing.T, server func() *ovndbtest.Server) {
	t.Helper()
	each := func(do func(c *ovnport.NB, p *racePod, rnd *rand.Rand)) {
		var actors sync.WaitGroup
		for i, p := range r.pods {
			actors.Go(func() { do(r.clients[i%len(r.clients)], p, rand.New(rand.NewPCG(99, uint64(i)))) })
		}
		actors.Wait()
	}
	each(func(c *ovnport.NB, p *racePod, rnd *rand.Rand) { r.add(t, c, p, rnd) })
	s := read(t, server())
	r.check(t, s)
	t.Logf("%d operations: %v; %d ports and %d claims in the end", r.addDel.Load(), r, len(s.ports), len(s.claims))

	r.pods = append(r.pods, r.fillers)
	each(func(c *ovnport.NB, p *racePod, _ *rand.Rand) {
		for _, run := range p.runs {
			if err := c.Release(timeout(t), run.owner, held(run.ports)); err != nil {
				t.Errorf("release of %s: %v", run.owner.Sandbox, err)
			}
		}
	})
	if s := read(t, server()); len(s.ports) != 0 || len(s.claims) != 0 {
		t.Errorf("left after everything was released: %v", s)
	}
}

func TestRace(t *testing.T) {
	t.Parallel()
	w := &world{Server: ovndbtest.StartNB(t)}
	n := w.network(t, "small", `"subnets":"10.1.0.0/26,fd01::/64"`) // 61 v4 addresses
	r := newRace(t, n, 12, 16, w.Endpoint())
	for i, filled := range []int{20, 45, 61} { // about 50, 90 and 100 % with the pods'
		r.fill(t, filled)
		r.run(t, uint64(i), 50, func() { read(t, w.Server).check(t) })
		r.check(t, read(t, w.Server))
	}
	r.finish(t, func() *ovndbtest.Server { return w.Server })
}

// The same on a raft whose leader dies in the middle of it.
func TestRaceWhileTheLeaderDies(t *testing.T) {
	t.Parallel()
	c := ovndbtest.StartNBCluster(t, 3)
	n := parseNetwork(t, "small", `"subnets":"10.1.0.0/26,fd01::/64"`)
	c.Leader().Transact(t, insertNetwork(n)...)
	r := newRace(t, n, 8, 16, c.Endpoints()...)
	r.fill(t, 40)
	var kill sync.Once
	r.run(t, 7, 30, func() {
		if r.addDel.Load() > 100 {
			kill.Do(func() { c.Leader().Kill() })
		}
		read(t, c.Leader()).check(t)
	})
	r.check(t, read(t, c.Leader()))
	r.finish(t, c.Leader)
}
