package denied

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovnport"
)

// NB is the Northbound database, as far as it says what rules and addresses are.
type NB interface {
	DenyingRules(ctx context.Context, keys []string) (map[string]*ovnport.DenyingRule, error)
	PodsAt(ctx context.Context, keys []string) (map[string]string, error)
}

const (
	// every is the time between two passes.
	every = time.Second
	// knownFor is how long rules and pods are remembered. A pod that gets the address of another one within this time has
	// the name of that one.
	knownFor = 10 * time.Second
	// maxKnown is how many rules, and how many addresses, are remembered. Further ones are not named until then.
	maxKnown = 1000
	// patience is how long NB may take to answer.
	patience = 5 * time.Second
)

// Reader reads the log of ovn-controller.
type Reader struct {
	follower follower
	nb       NB
	counter  *counter
	log      *slog.Logger
	since    time.Time // of what is known
	rules    map[string]*ovnport.DenyingRule
	pods     map[string]string // by the row key of an address; "": no pod has it
	failed   bool              // the last pass has logged an error
}

// New makes a reader of the file at the path. It counts packets in the metric, which has the labels namespace, policy
// and direction.
func New(path string, nb NB, packets *prometheus.CounterVec, log *slog.Logger) *Reader {
	return &Reader{follower: follower{path: path}, nb: nb, counter: newCounter(packets), log: log}
}

// Run reads until the end of ctx.
func (r *Reader) Run(ctx context.Context) {
	defer r.follower.close()
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		err := r.pass(ctx)
		if err != nil && !r.failed && ctx.Err() == nil {
			r.log.Warn("cannot read which packets policies have denied; trying again", "err", err)
		}
		r.failed = err != nil
	}, every)
}

// pass reads what ovn-controller has logged since the last pass.
func (r *Reader) pass(ctx context.Context) error {
	var packets []packet
	skipped, err := r.follower.read(func(line string) {
		if p, ok := parse(line); ok {
			packets = append(packets, p)
		}
	})
	if skipped > 0 {
		r.log.Warn("the log of ovn-controller grows too fast, and denied packets are missing", "bytes", skipped)
	}
	if err != nil || len(packets) == 0 {
		return err
	}
	if time.Since(r.since) > knownFor || r.rules == nil {
		r.rules, r.pods, r.since = map[string]*ovnport.DenyingRule{}, map[string]string{}, time.Now()
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := r.learn(ctx, packets); err != nil {
		return err
	}
	for i := range packets {
		r.tell(&packets[i])
	}
	return nil
}

// learn reads the rules and pods of packets that are not known yet. An address is searched on the network of the
// policy.
func (r *Reader) learn(ctx context.Context, packets []packet) error {
	unknown := sets.New[string]()
	for i := range packets {
		if _, known := r.rules[packets[i].acl]; !known && len(r.rules)+len(unknown) < maxKnown {
			unknown.Insert(packets[i].acl)
		}
	}
	if keys := unknown.UnsortedList(); len(keys) > 0 {
		rules, err := r.nb.DenyingRules(ctx, keys)
		if err != nil {
			return err
		}
		for _, key := range keys {
			r.rules[key] = rules[key] // nil: not ours, or gone
		}
	}
	clear(unknown)
	for i := range packets {
		rule := r.rules[packets[i].acl]
		if rule == nil {
			continue
		}
		for _, a := range []netip.Addr{packets[i].source, packets[i].target} {
			key := ovndb.AddressKey(rule.Book, a)
			if _, known := r.pods[key]; !known && len(r.pods)+len(unknown) < maxKnown {
				unknown.Insert(key)
			}
		}
	}
	keys := unknown.UnsortedList()
	if len(keys) == 0 {
		return nil
	}
	pods, err := r.nb.PodsAt(ctx, keys)
	for _, key := range keys {
		if err == nil {
			r.pods[key] = pods[key]
		}
	}
	return err
}

// tell logs a packet and counts it.
func (r *Reader) tell(p *packet) {
	rule := r.rules[p.acl]
	if rule == nil {
		return
	}
	args := []any{"policy", rule.Policy, "rule", rule.Rule, "network", rule.Network}
	for _, end := range []struct {
		word, pod string
		address   netip.Addr
		port      string
	}{
		{"from", r.pods[ovndb.AddressKey(rule.Book, p.source)], p.source, p.sourcePort},
		{"to", r.pods[ovndb.AddressKey(rule.Book, p.target)], p.target, p.targetPort},
	} {
		if end.pod != "" {
			args = append(args, end.word, end.pod)
		}
		address := end.address.String()
		if end.port != "" && !strings.HasPrefix(p.protocol, "icmp") {
			address = net.JoinHostPort(address, end.port)
		}
		args = append(args, end.word+"Address", address)
	}
	r.log.Info("a policy has denied a packet", append(args, "protocol", p.protocol)...)
	r.counter.add(rule)
}
