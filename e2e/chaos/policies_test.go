//go:build chaos

package chaos

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/controller"
	"github.com/ovn-multinet/ovn-multinet/controller/pods"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/netmodel/policy"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnport"
)

// policySpecs are what a policy may be.
var policySpecs = []string{
	`{"podSelector":{"matchLabels":{"app":"db"}}}`,
	`{"podSelector":{"matchLabels":{"app":"db"}},"ingress":[{"from":[{"podSelector":{"matchLabels":{"app":"web"}}}]}]}`,
	`{"podSelector":{"matchLabels":{"app":"web"}},"egress":[{"to":[` +
		`{"namespaceSelector":{},"podSelector":{"matchLabels":{"app":"db"}}}]}]}`,
	`{"podSelector":{},"ingress":[{}]}`,
}

// policyAddresses are the addresses of the pods: several pods have one after the other.
var policyAddresses = []string{"10.1.0.2/28", "10.1.0.3/28", "10.1.0.4/28"}

const (
	policyPods = 3 // names of pods
	// The actors.
	policyAgents = 3
	policyAPI    = policyAgents     // changes pods and policies
	policyLeader = policyAgents + 1 // the controller, and what it hears
	policyActors = policyAgents + 2
)

// policyPod is a pod as the API has it, with all labels that it has had. Their index is their version.
type policyPod struct {
	name, uid string
	labels    []map[string]string
	gone      bool
}

func (p *policyPod) newest() int { return len(p.labels) - 1 }

// seen is the pod at a version, as the controller reads it.
func (p *policyPod) seen(version int) *netmodel.Pod {
	return &netmodel.Pod{Namespace: "shop", Name: p.name, UID: p.uid, Node: "node-0", Labels: p.labels[version],
		Version: resourceVersion(version)}
}

// resourceVersion is the resource version of a version of a pod.
func resourceVersion(version int) string { return fmt.Sprint(100 + version) }

// policyRace is one NB, an API, a controller that hears of the API's changes later, and agents that read older copies.
type policyRace struct {
	*nbtest.World
	*turns
	t       *testing.T
	network *netmodel.Network
	nad     *netmodel.NAD
	agents  [policyAgents]*ovnport.NB
	leader  *nbtest.Client
	queue   *controller.Queue
	barrier chan struct{}

	mu       sync.Mutex
	calls    int                       // that passes of the controller have made
	now      [policyPods]*policyPod    // the newest pod of each name
	pods     map[string]*policyPod     // by UID
	policies map[string]*policy.Object // by name
	heard    map[string]*netmodel.Pod  // the controller's copies, by name
	heardOf  map[string]*policy.Object
	known    [policyAgents]*knownGroups
	sandbox  int
	adding   map[string]bool // by UID: an ADD is under way
	changed  map[string]int  // by UID: the version of the labels to which the controller has heard a change
	oldest   map[string]int  // by UID: the version of the labels that an agent has used
	log      []string
	state    map[string]string // of policies

	joined   map[string]bool // "<group> <port> <UID>": the port was a member
	openings int
	stop     func() // ends the controller
}

func newPolicyRace(t *testing.T) *policyRace {
	r := &policyRace{World: nbtest.NewWorld(t), turns: newTurns(), t: t, barrier: make(chan struct{})}
	r.network = nbtest.Network(t, "blue", `"subnets":"10.1.0.0/28"`)
	r.nad = &netmodel.NAD{Namespace: "shop", Name: "blue", Created: 1, HasFinalizer: true,
		Config: netmodel.ParseConfig("shop", "blue", nbtest.Spec(`"subnets":"10.1.0.0/28"`), netmodel.KeptConfig)}
	for i := range r.agents {
		r.agents[i] = ovnport.NewNB(nbtest.Connect(t, r.connect(t, i, r.Server)).DB)
	}
	r.leader = nbtest.Connect(t, r.connect(t, policyLeader, r.Server))
	return r
}

func (r *policyRace) say(format string, args ...any) {
	r.log = append(r.log, fmt.Sprintf(format, args...))
}

// begin empties NB, and starts a controller that makes the network.
func (r *policyRace) begin() {
	r.Clear(r.t)
	r.Transact(r.t, map[string]any{"op": "delete", "table": "Port_Group", "where": []any{}})
	r.pods, r.policies = map[string]*policyPod{}, map[string]*policy.Object{}
	r.now = [policyPods]*policyPod{}
	r.heard, r.heardOf, r.state = map[string]*netmodel.Pod{}, map[string]*policy.Object{}, map[string]string{}
	r.known, r.oldest, r.log, r.joined = [policyAgents]*knownGroups{}, map[string]int{}, nil, map[string]bool{}
	r.openings, r.adding, r.changed = 0, map[string]bool{}, map[string]int{}
	r.lead()
	r.queue.NADChanged("shop", "blue")
	r.idle()
}

// lead starts a controller.
func (r *policyRace) lead() {
	quiet := slog.New(slog.DiscardHandler)
	r.queue = controller.NewQueue(quiet)
	c := controller.New(controller.Config{
		NB: r.leader.DB, Source: r, Queue: r.queue, Metrics: controller.NewMetrics(r.queue, r.leader.DB),
		WidestIPAM: r.leader.Widest, Leading: func() error { return nil }, Log: quiet, Policies: r,
		Ports: policyRacePorts{ovnport.NewNB(r.leader.DB).NewListedPorts()},
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- c.Run(ctx) }()
	r.stop = func() {
		cancel()
		must(r.t, <-done)
	}
}

// replace has another controller lead. What it has heard of pods may be older than what the former one has written.
func (r *policyRace) replace(rnd *rand.Rand) {
	r.stop()
	r.mu.Lock()
	ports, _, groups := r.memberships()
	for _, uid := range ports {
		// The former controller has followed the change, if there were groups.
		if version, changed := r.changed[uid]; changed && len(groups) > 0 && !r.adding[uid] {
			r.oldest[uid] = max(r.oldest[uid], version)
		}
	}
	clear(r.changed)
	for name, p := range r.heard {
		of := r.pods[p.UID]
		r.heard[name] = of.seen(rnd.IntN(versionOf(p) + 1))
		r.say("another controller leads: it has heard of %s %v", p.UID, r.heard[name].Labels)
	}
	r.mu.Unlock()
	r.lead()
}

// idle waits until the controller has worked off its queue. Its namespaces take turns, so a pass of shop would come
// between two passes of another namespace.
func (r *policyRace) idle() {
	for quiet := 0; quiet < 2; {
		r.mu.Lock()
		before := r.calls
		r.mu.Unlock()
		r.queue.PolicyChanged("barrier")
		<-r.barrier
		r.mu.Lock()
		if quiet++; r.calls != before {
			quiet = 0
		}
		r.mu.Unlock()
	}
}

// The controller's sources.

func (r *policyRace) NAD(_ context.Context, _, name string) (*netmodel.NAD, error) {
	if name != "blue" {
		return nil, netmodel.ErrNotFound
	}
	return r.nad, nil
}

func (r *policyRace) SetNetworkState(context.Context, *netmodel.NAD, string, bool) error { return nil }
func (r *policyRace) NetworkEvent(*netmodel.NAD, bool, string, string)                   {}
func (r *policyRace) PolicyEvent(*policy.Object, bool, string, string)                   {}
func (r *policyRace) Nodes(context.Context) ([]netmodel.Node, error)                     { return nil, nil }

func (r *policyRace) Policies(_ context.Context, namespace string) ([]*policy.Object, error) {
	if namespace == "barrier" {
		r.barrier <- struct{}{}
		return nil, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls++
	var all []*policy.Object
	for _, o := range r.heardOf {
		with := *o
		with.State = r.state[o.Name]
		all = append(all, &with)
	}
	return all, nil
}

func (r *policyRace) PolicyNamespaces(context.Context) ([]string, error) {
	return []string{"shop"}, nil
}

// Policy is for policies that a source sheds. This one keeps all.
func (r *policyRace) Policy(context.Context, string, string) (*policy.Object, error) {
	return nil, netmodel.ErrNotFound
}

func (r *policyRace) ClusterPolicies(context.Context) ([]*policy.Object, error) { return nil, nil }

func (r *policyRace) PolicyPods(_ context.Context, namespace string) ([]*netmodel.Pod, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls++
	if namespace != "shop" {
		return nil, nil
	}
	return slices.Collect(maps.Values(r.heard)), nil
}

func (r *policyRace) Namespaces(context.Context) (map[string]policy.Namespace, error) {
	return map[string]policy.Namespace{"shop": {}, "barrier": {}}, nil
}

func (r *policyRace) SetPolicyState(_ context.Context, o *policy.Object, state string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.state[o.Name] = state
	return nil
}

// policyRacePorts are the controller's ports.
type policyRacePorts struct{ *ovnport.ListedPorts }

func (p policyRacePorts) On(ctx context.Context, nodes []string) ([]pods.Port, error) {
	return asPolicyPorts(p.ListedPorts.On(ctx, nodes))
}

func (p policyRacePorts) ByKey(ctx context.Context, keys []string) ([]pods.Port, error) {
	return asPolicyPorts(p.ListedPorts.ByKey(ctx, keys))
}

func asPolicyPorts(ports []ovnport.OwnedPort, err error) (all []pods.Port, _ error) {
	for _, p := range ports {
		all = append(all, pods.Port{
			Key: p.UUID, Network: p.Network, Namespace: p.Owner.Namespace, Pod: p.Owner.Pod, UID: p.Owner.UID,
			Sandbox: p.Owner.Sandbox, PodVersion: p.PodVersion})
	}
	return all, err
}

// labelsAt returns labels that no other version of the pod has.
func labelsAt(rnd *rand.Rand, version int) map[string]string {
	return map[string]string{"app": []string{"db", "web", "other"}[rnd.IntN(3)], "version": fmt.Sprint(version)}
}

// change is one change in the API: of a pod's labels, mostly.
func (r *policyRace) change(rnd *rand.Rand) {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := rnd.IntN(policyPods)
	p := r.now[i]
	switch n := rnd.IntN(8); {
	case n == 0:
		name := fmt.Sprint("p", rnd.IntN(2))
		if r.policies[name] != nil && rnd.IntN(3) == 0 {
			delete(r.policies, name)
			r.say("API: policy %s is deleted", name)
			return
		}
		spec := policySpecs[rnd.IntN(len(policySpecs))]
		r.policies[name] = policy.NewObject("shop", name, 1, map[string]string{policy.ForAnnotation: "blue"}, []byte(spec), 0)
		r.say("API: policy %s is %s", name, spec)
	case n == 1 || p == nil:
		if p != nil {
			p.gone = true
		}
		p = &policyPod{name: fmt.Sprint("web-", i), uid: fmt.Sprintf("web-%d-%d", i, len(r.pods)),
			labels: []map[string]string{labelsAt(rnd, 0)}}
		r.now[i], r.pods[p.uid] = p, p
		r.say("API: pod %s is %v", p.uid, p.labels[0])
	default:
		p.labels = append(p.labels, labelsAt(rnd, len(p.labels)))
		r.say("API: pod %s is %v", p.uid, p.labels[p.newest()])
	}
}

// hear has the controller hear the news of one random object, or of all.
func (r *policyRace) hear(rnd *rand.Rand, all bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if all || rnd.IntN(2) == 0 {
		r.heardOf = maps.Clone(r.policies)
		r.queue.PolicyChanged("shop")
		r.say("controller: hears of the policies")
	}
	for i, p := range r.now {
		if p == nil || !all && rnd.IntN(2) == 0 {
			continue
		}
		version := p.newest()
		was, name := r.heard[p.name], fmt.Sprint("web-", i)
		if !all && was != nil && was.UID == p.uid { // one change after the other, or several at once
			version = min(version, versionOf(was)+1+rnd.IntN(2))
		}
		is := p.seen(version)
		r.heard[name] = is
		if was != nil && was.UID != is.UID {
			r.queue.PodGone("shop", was.UID)
		}
		if was != nil && was.UID == is.UID && !maps.Equal(was.Labels, is.Labels) {
			r.queue.PodChanged("shop", is.UID, true)
			r.changed[is.UID] = version
		} else {
			r.queue.PodChanged("shop", is.UID, false)
		}
		r.say("controller: hears of %s %v", is.UID, is.Labels)
	}
}

func versionOf(p *netmodel.Pod) (version int) {
	_, _ = fmt.Sscan(p.Labels["version"], &version)
	return version
}

// hears is the controller: it hears the news in several steps, and another one may take its place.
func (r *policyRace) hears(rnd *rand.Rand) {
	for range 1 + rnd.IntN(4) {
		r.await(policyLeader, false, false)
		if rnd.IntN(4) == 0 {
			r.idle()
			r.replace(rnd)
			r.idle()
		}
		r.hear(rnd, false)
		if rnd.IntN(2) == 0 {
			r.idle()
		}
	}
	r.idle()
}

// api changes pods and policies.
func (r *policyRace) api(rnd *rand.Rand) {
	for range 1 + rnd.IntN(5) {
		r.await(policyAPI, false, false)
		r.change(rnd)
	}
}

// agent calls ADD and DEL for pods. Its copy of a pod is any version that the pod has had.
func (r *policyRace) agent(who int, rnd *rand.Rand) {
	var mine *ovnport.Owner
	var ports []ovnport.Port
	for range 1 + rnd.IntN(3) {
		ctx, cancel := limited()
		if mine != nil && rnd.IntN(2) == 0 {
			err := r.agents[who].Release(ctx, *mine, keysOf(ports))
			r.mu.Lock()
			r.say("%d: DEL %s: %v", who, mine.UID, err)
			r.mu.Unlock()
			mine = nil
		}
		r.mu.Lock()
		p := r.now[rnd.IntN(policyPods)]
		r.mu.Unlock()
		if p != nil && mine == nil {
			mine, ports = r.attach(ctx, who, p, rnd)
		}
		cancel()
	}
}

// knownGroups is what an agent knows of policies.
type knownGroups struct {
	*policy.Matcher
	revisions ovnport.PolicyRevisions
}

// attach is an ADD, as agent.makePlan does it.
func (r *policyRace) attach(
	ctx context.Context, who int, p *policyPod, rnd *rand.Rand,
) (*ovnport.Owner, []ovnport.Port) {
	r.mu.Lock()
	r.sandbox++
	o := ovnport.Owner{Namespace: "shop", Pod: p.name, UID: p.uid, Sandbox: fmt.Sprint("s-", r.sandbox), Node: "node-0",
		Chassis: "chassis-0"}
	copied := rnd.IntN(len(p.labels))
	r.mu.Unlock()
	address := netip.MustParsePrefix(policyAddresses[rnd.IntN(len(policyAddresses))])
	for range 8 {
		r.mu.Lock()
		version := copied
		m := r.known[who]
		request := ovnport.Request{Interface: "net1", Network: r.network, IPs: []netip.Prefix{address}}
		if m != nil {
			if m.Stale(p.uid, p.labels[version]) {
				version = p.newest()
			}
			request.Policy.PolicyRevisions = m.revisions
			request.Policy.In, request.Policy.Out = m.Match(p.labels[version], nil)
		}
		request.Policy.PodVersion = resourceVersion(version)
		if old, ok := r.oldest[p.uid]; !ok || version < old {
			r.oldest[p.uid] = version
		}
		r.adding[p.uid] = true
		r.mu.Unlock()
		ports, err := r.agents[who].Ensure(ctx, o, []ovnport.Request{request},
			func(context.Context, ovnport.Owner) error { return r.mayTakeOver(o.UID) })
		r.mu.Lock()
		r.adding[p.uid] = false
		r.say("%d: ADD %s at %s with version %d: %v", who, p.uid, address, version, err)
		r.mu.Unlock()
		if _, changed := errors.AsType[*ovnport.PolicyChanged](err); !changed {
			if err != nil {
				return nil, nil
			}
			return &o, ports
		}
		rows, err := r.agents[who].PolicyRows(ctx, "shop/blue", "shop")
		must(r.t, err)
		m = nil
		if rows.Own != nil {
			m = &knownGroups{revisions: rows.Revisions()}
			m.Matcher, err = policy.NewMatcher(rows.Own, nil, nil)
			must(r.t, err)
		}
		r.mu.Lock()
		r.known[who] = m
		r.mu.Unlock()
	}
	return nil, nil
}

// mayTakeOver says whether a pod is still the live one of its name.
func (r *policyRace) mayTakeOver(uid string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p := r.pods[uid]; p == nil || p.gone {
		return errPodGone
	}
	return nil
}
