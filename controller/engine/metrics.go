package engine

import (
	"errors"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ovn-multinet/ovn-multinet/conf"
)

// spent is what passes take, and write into NB.
type spent struct {
	time                      time.Duration
	transactions, rows, bytes int
	flows                     int // that ovn-controller computes again
}

// Metrics are the metrics of passes and of refused objects. Their counters begin with the process, also if its
// controller does not lead.
type Metrics struct {
	passes       *prometheus.CounterVec
	transactions prometheus.Counter
	refused      *prometheus.GaugeVec
	// What passes cost, by the kind of their items and by the namespace whose object caused them.
	seconds, committed, rows, bytes *prometheus.CounterVec
	// What the accepted objects of a namespace need in OVN, and may need.
	needed, limits *prometheus.GaugeVec
	// active are the tenants with passes since the last call of prune, idle are those with none.
	active, idle map[string]bool
}

// NewMetrics makes the metrics of an engine.
func NewMetrics() *Metrics {
	m := &Metrics{active: map[string]bool{}, idle: map[string]bool{}}
	m.passes = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "ovn_multinet_controller_passes_total",
		Help: "Reconcile passes, by what was compared (nad, network, gateway or all) and result.",
	}, []string{"kind", "result"})
	m.transactions = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "ovn_multinet_controller_nb_transactions_total",
		Help: "Transactions committed to OVN's Northbound database for networks, routers and gateways.",
	})
	m.refused = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "ovn_multinet_controller_refused_objects",
		Help: "Objects that are refused as they are written, by kind (nad, service, policy or pod); NADs by CNI error code.",
	}, []string{"kind", "code"})
	m.seconds = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "ovn_multinet_controller_pass_seconds_total",
		Help: "Time of reconcile passes, by the namespace whose objects caused them; without one, the operator's.",
	}, []string{"kind", "namespace"})
	m.committed = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "ovn_multinet_controller_pass_transactions_total",
		Help: "Transactions that reconcile passes committed to OVN's Northbound database.",
	}, []string{"kind", "namespace"})
	m.rows = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "ovn_multinet_controller_pass_rows_total",
		Help: "Rows that these transactions inserted, changed or deleted.",
	}, []string{"kind", "namespace"})
	m.bytes = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "ovn_multinet_controller_pass_bytes_total",
		Help: "Bytes of these transactions.",
	}, []string{"kind", "namespace"})
	m.needed = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "ovn_multinet_controller_cost",
		Help: "What the accepted objects of a namespace need in OVN, by resource.",
	}, []string{"namespace", "resource"})
	m.limits = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "ovn_multinet_controller_cost_limit",
		Help: "What the objects of a namespace may need together.",
	}, []string{"namespace", "resource"})
	return m
}

// Register adds the metrics to a registry.
func (m *Metrics) Register(registry prometheus.Registerer) {
	registry.MustRegister(m.passes, m.transactions, m.refused, m.seconds, m.committed, m.rows, m.bytes,
		m.needed, m.limits)
}

// pass counts a reconcile pass. err is its error.
func (m *Metrics) pass(i Item, err error, c spent) {
	result := "done"
	if err != nil {
		result = "failed"
	}
	m.passes.WithLabelValues(i.Kind, result).Inc()
	m.transactions.Add(float64(c.transactions))
	m.seconds.WithLabelValues(i.Kind, i.Tenant).Add(c.time.Seconds())
	if c.transactions > 0 {
		m.committed.WithLabelValues(i.Kind, i.Tenant).Add(float64(c.transactions))
		m.rows.WithLabelValues(i.Kind, i.Tenant).Add(float64(c.rows))
		m.bytes.WithLabelValues(i.Kind, i.Tenant).Add(float64(c.bytes))
	}
	m.active[i.Tenant] = true
	delete(m.idle, i.Tenant)
}

// prune deletes the counters of namespaces without a pass since the call before the last one. Some of these namespaces
// do not exist any more.
func (m *Metrics) prune() {
	for tenant := range m.idle {
		for _, counters := range []*prometheus.CounterVec{m.seconds, m.committed, m.rows, m.bytes} {
			counters.DeletePartialMatch(prometheus.Labels{"namespace": tenant})
		}
	}
	m.idle, m.active = m.active, map[string]bool{}
}

// Refusals are the objects of one kind that are refused as they are written, by "<namespace>/<name>". Only the worker
// uses them.
type Refusals struct {
	gauge *prometheus.GaugeVec // by code
	codes map[string]string    // by object
}

// Refusals returns the refusals of a kind of objects. An earlier engine of the process may have counted some.
func (e *Engine) Refusals(kind string) *Refusals {
	labels := prometheus.Labels{"kind": kind}
	e.metrics.refused.DeletePartialMatch(labels)
	gauge := e.metrics.refused.MustCurryWith(labels)
	return &Refusals{gauge, map[string]string{}}
}

// Has reports whether an object is refused.
func (r *Refusals) Has(id string) bool {
	_, is := r.codes[id]
	return is
}

// Set notes whether an object is refused. One that is gone is not.
func (r *Refusals) Set(id string, refused bool) { r.set(id, "", refused) }

// SetCode is Set with the reason for which an object is refused; nil: it is not. The reason has the code that new pods
// get which request the object.
func (r *Refusals) SetCode(id string, why error) {
	r.set(id, strconv.FormatUint(uint64(codeOf(why)), 10), why != nil)
}

func (r *Refusals) set(id, code string, refused bool) {
	if was, is := r.codes[id]; is {
		r.gauge.WithLabelValues(was).Dec()
		delete(r.codes, id)
	}
	if refused {
		r.gauge.WithLabelValues(code).Inc()
		r.codes[id] = code
	}
}

// Keep forgets the objects of a namespace that are not among present.
func (r *Refusals) Keep(namespace string, present map[string]bool) {
	for id := range r.codes {
		if NamespaceOf(id) == namespace && !present[id] {
			r.Set(id, false)
		}
	}
}

// codeOf returns the CNI error code that a new pod gets if it requests the refused object. If only rows in NB are in
// the way, the code is conf.CodeTryAgain.
func codeOf(err error) uint {
	if e, ok := errors.AsType[*conf.Error](err); ok {
		return e.Code
	}
	return conf.CodeTryAgain
}
