//go:build chaos

package chaos

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/e2e/labtest"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnport"
)

// The load on the raft: so many nodes, each with so many pods at most that come and go one after the other.
const (
	nodes       = 8
	podsPerNode = 24
	// step is how many operations have to end between the beginning of a fault and its end, and before the next fault:
	// the nodes go on while the fault lasts.
	step = 40
)

// raft is an NB on three members over TLS, with the nodes that use it.
type raft struct {
	*ovndbtest.Cluster
	t       *testing.T
	client  string // the folder of a client's key and certificate
	network *netmodel.Network
	nodes   []*ovnport.NB
	history History
	backups []func() // of the members, from the beginning

	load
	mu   sync.Mutex
	live map[string]*pod // by the sandbox
}

// pod is an acknowledged sandbox.
type pod struct {
	owner ovnport.Owner
	ports []ovnport.Port
	hold  *Hold
}

func newRaft(t *testing.T) *raft {
	t.Helper()
	server, client := ovndbtest.Certificates(t, "127.0.0.1")
	r := &raft{Cluster: ovndbtest.StartNBClusterTLS(t, server, 3), t: t, client: client, live: map[string]*pod{}}
	r.network = nbtest.Network(t, "blue", `"subnets":"10.1.0.0/23,fd01::/64"`)
	nbtest.Ensure(t, nbtest.Connect(t, r.Leader().Endpoint()), r.network)
	for range nodes {
		db := labtest.OpenNB(t, r.conf(), "")
		r.connected(db)
		r.nodes = append(r.nodes, ovnport.NewNB(db))
	}
	for _, m := range r.Members {
		r.backups = append(r.backups, m.Backup())
	}
	return r
}

// conf is how a client reaches NB.
func (r *raft) conf() conf.NB { return labtest.NBOverTLS(r.client, r.Endpoints()...) }

// connected waits for the first connection.
func (r *raft) connected(db *ovndb.DB) {
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	must(r.t, db.WaitConnected(ctx))
}

// run has every node start and end pods until so many operations have ended.
func (r *raft) run(seed uint64, operations int) {
	until := r.ended.Load() + int64(operations)
	var all sync.WaitGroup
	for i := range r.nodes {
		all.Go(func() {
			rnd := rand.New(rand.NewPCG(seed, uint64(i)))
			slots := make([]*pod, podsPerNode)
			for r.ended.Load() < until {
				slot := rnd.IntN(podsPerNode)
				if slots[slot] == nil {
					slots[slot] = r.start(i, slot, rnd)
				} else {
					r.end(i, slots[slot])
					slots[slot] = nil
				}
			}
		})
	}
	all.Wait()
}

// start starts a pod as a kubelet does: an ADD that failed is followed by a DEL, and by an ADD of another sandbox.
func (r *raft) start(node, slot int, rnd *rand.Rand) *pod {
	begin := time.Now()
	defer r.operation(begin)
	name := fmt.Sprintf("web-%d-%d", node, slot)
	request := ovnport.Request{Interface: "net1", Network: r.network}
	if rnd.IntN(8) == 0 { // an address that others want too
		request.IPs = []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 1, 0, byte(10 + rnd.IntN(4))}), 23)}
	}
	for try := 0; ; try++ {
		p := &pod{owner: ovnport.Owner{Namespace: "shop", Pod: name, UID: fmt.Sprint(name, "-", begin.UnixNano()),
			Sandbox: fmt.Sprintf("%s-%d-%d", name, begin.UnixNano(), try), Node: fmt.Sprint("node-", node), Chassis: fmt.Sprint("chassis-", node)}}
		ctx, cancel := context.WithTimeout(r.t.Context(), 30*time.Second)
		ports, err := r.nodes[node].Ensure(ctx, p.owner, []ovnport.Request{request},
			func(context.Context, ovnport.Owner) error { return nil })
		cancel()
		if err == nil {
			p.ports = ports
			p.hold = r.history.Attached(p.owner.Sandbox, addressesOf(ports))
			r.mu.Lock()
			r.live[p.owner.Sandbox] = p
			r.mu.Unlock()
			return p
		}
		r.release(node, p)
		switch {
		case conf.HasCode(err, conf.CodeInUse):
			return nil // another pod has the address: the answer is correct
		case time.Since(begin) > patience:
			r.failed.Add(1)
			r.t.Errorf("%s did not start within %v: %v", name, patience, err)
			return nil
		}
	}
}

// end ends a pod.
func (r *raft) end(node int, p *pod) {
	defer r.operation(time.Now())
	r.mu.Lock()
	delete(r.live, p.owner.Sandbox)
	r.mu.Unlock()
	r.history.Releasing(p.hold)
	r.release(node, p)
}

// release repeats a release until it is acknowledged, as the agent does with pending releases.
func (r *raft) release(node int, p *pod) {
	for begin := time.Now(); ; {
		ctx, cancel := context.WithTimeout(r.t.Context(), 30*time.Second)
		var err error
		if p.ports == nil {
			err = r.nodes[node].ReleaseSandbox(ctx, p.owner)
		} else {
			err = r.nodes[node].Release(ctx, p.owner, keysOf(p.ports))
		}
		cancel()
		if err == nil {
			return
		}
		if time.Since(begin) > patience {
			r.t.Errorf("%s was not released: %v", p.owner.Sandbox, err)
			return
		}
	}
}

func addressesOf(ports []ovnport.Port) (all []string) {
	for _, p := range ports {
		for _, a := range p.Addresses {
			all = append(all, a.Addr().String())
		}
		all = append(all, p.MAC.String())
	}
	return all
}

// compare compares NB with what was acknowledged; nobody may write meanwhile.
func (r *raft) compare() (lost, residue int) {
	acknowledged := map[string][][]string{}
	for sandbox, p := range r.live {
		for _, port := range p.ports {
			acknowledged[sandbox] = append(acknowledged[sandbox], addressesOf([]ovnport.Port{port}))
		}
	}
	lost, residue, words := comparePorts(r.t, r.Leader(), acknowledged)
	for _, w := range words {
		r.t.Error(w)
	}
	return lost, residue
}

// claims counts the claims in NB.
func (r *raft) claims() (n int) {
	for _, row := range r.Leader().Dump(r.t, nb.CoppTable) {
		if ids, _ := row["external_ids"].(map[string]string); ids["ovn-multinet/port"] != "" {
			n++
		}
	}
	return n
}

// endAll ends all pods.
func (r *raft) endAll() {
	var all sync.WaitGroup
	for i, p := range slices.Collect(maps.Values(r.live)) {
		all.Go(func() { r.end(i%nodes, p) })
	}
	all.Wait()
}

// A fault begins with begin, which returns what ends it.
type fault struct {
	name  string
	begin func(r *raft) (end func())
}

var leaderKilled = fault{"raft: leader killed", func(r *raft) func() {
	leader := r.Leader()
	leader.Kill()
	return func() { leader.Restart(); leader.Joined() }
}}

var leaderPaused = fault{"raft: leader paused", func(r *raft) func() {
	leader := r.Leader()
	leader.Pause()
	return func() { leader.Resume(); leader.Joined() }
}}

var raftFaults = []fault{
	leaderKilled,
	leaderPaused,
	{"raft: leader cut off", func(r *raft) func() {
		leader := r.Leader()
		leader.Isolate()
		return func() { leader.Rejoin(); leader.Joined() }
	}},
	{"raft: leadership moved", func(r *raft) func() {
		r.Leader().MoveLeadership()
		return func() {}
	}},
	{"raft: first endpoint silent", func(r *raft) func() {
		first := r.Members[0]
		if first == r.Leader() {
			first.MoveLeadership()
		}
		first.Pause()
		return func() { first.Resume(); first.Joined() }
	}},
	{"raft: member restored from an old backup", func(r *raft) func() {
		leader := r.Leader()
		i := slices.IndexFunc(r.Members, func(s *ovndbtest.Server) bool { return s != leader })
		r.backups[i]()
		r.Members[i].Joined()
		return func() {}
	}},
}

// TestRaftUnderFire has pods come and go on eight nodes, while the raft of NB is harmed again and again.
func TestRaftUnderFire(t *testing.T) {
	for _, f := range raftFaults {
		t.Run(f.name, func(t *testing.T) { report(t, newRaft(t).underFire(f, *operations/len(raftFaults))) })
	}
}

// underFire has pods come and go while the fault comes and goes.
func (r *raft) underFire(f fault, operations int) Row {
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.run(1, operations)
	}()
	faults := 0
	for r.progress(done, step) {
		end := f.begin(r)
		faults++
		r.progress(done, step)
		end()
	}
	<-done
	lost, residue := r.compare()
	r.endAll()
	_, left := r.compare()
	residue += left + r.claims()
	duplicates := r.history.Duplicates()
	for _, d := range duplicates {
		r.t.Errorf("two pods had one address: %s", d)
	}
	return Row{Fault: fmt.Sprintf("%s, %d times", f.name, faults), Tries: int(r.ended.Load()), Failed: int(r.failed.Load()),
		Lost: lost, Residue: residue, Duplicates: len(duplicates), Stall: time.Duration(r.stall.Load())}
}
