package controller

import (
	"errors"
	"strconv"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
)

// Metrics are the metrics of the controller. Their counters begin with the process, also if the controller does not
// lead.
type Metrics struct {
	passes       *prometheus.CounterVec
	transactions prometheus.Counter
	refused      *prometheus.GaugeVec
	objects      *prometheus.GaugeVec
	queue        *Queue
	db           *ovndb.DB
	codes        map[string]string // by refused NAD: its code in refused; only the worker uses this map
	// leading returns an error if the controller does not lead. It is nil before and after Controller.Run.
	leading atomic.Pointer[func() error]
}

// NewMetrics makes the metrics of a controller that works off the queue.
func NewMetrics(queue *Queue, db *ovndb.DB) *Metrics {
	return &Metrics{queue: queue, db: db,
		codes: map[string]string{},
		passes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ovn_multinet_controller_passes_total",
			Help: "Reconcile passes, by what was compared (nad, network, gateway or all) and result.",
		}, []string{"kind", "result"}),
		transactions: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "ovn_multinet_controller_nb_transactions_total",
			Help: "Transactions committed to OVN's Northbound database for networks, routers and gateways.",
		}),
		refused: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "ovn_multinet_controller_refused_nads",
			Help: "NetworkAttachmentDefinitions that are refused as they are written, by CNI error code.",
		}, []string{"code"}),
		objects: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "ovn_multinet_controller_refused_objects",
			Help: "Other objects that are refused as they are written, by kind (service, policy or pod).",
		}, []string{"kind"}),
	}
}

// Register adds the metrics to a registry.
func (m *Metrics) Register(registry prometheus.Registerer) {
	gauge := func(name, help string, value func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value)
	}
	registry.MustRegister(m.passes, m.transactions, m.refused, m.objects,
		gauge("ovn_multinet_controller_leader", "Whether this controller leads, and NB belongs to its cluster.",
			func() float64 {
				leading := m.leading.Load()
				return oneIf(leading != nil && (*leading)() == nil)
			}),
		gauge("ovn_multinet_controller_queue_depth", "Items in the queue that wait for their pass.", func() float64 {
			return float64(m.queue.items.Len())
		}),
		gauge("ovn_multinet_controller_nb_connected", "Whether the connection to OVN's Northbound database stands.",
			func() float64 {
				return oneIf(m.db.Connected())
			}))
}

// oneIf returns 1 for true and 0 for false, which is how gauges show a condition.
func oneIf(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// pass counts a reconcile pass over an item of the kind. err is the error of the pass.
func (m *Metrics) pass(kind string, err error) {
	result := "done"
	if err != nil {
		result = "failed"
	}
	m.passes.WithLabelValues(kind, result).Inc()
}

// verdict updates the number of refused NADs. err is why the NAD is refused; nil means that it is not refused.
func (m *Metrics) verdict(nad string, err error) {
	code := ""
	if err != nil {
		code = strconv.FormatUint(uint64(codeOf(err)), 10)
	}
	was := m.codes[nad]
	if was == code {
		return
	}
	if was != "" {
		m.refused.WithLabelValues(was).Dec()
		delete(m.codes, nad)
	}
	if code != "" {
		m.refused.WithLabelValues(code).Inc()
		m.codes[nad] = code
	}
}

// refusals are the objects of one kind that are refused as they are written, by "<namespace>/<name>". Only the worker
// uses them.
type refusals struct {
	gauge prometheus.Gauge
	ids   map[string]bool
}

func (m *Metrics) refusals(kind string) *refusals {
	return &refusals{m.objects.WithLabelValues(kind), map[string]bool{}}
}

// set notes whether an object is refused. One that is gone is not.
func (r *refusals) set(id string, refused bool) {
	if refused {
		r.ids[id] = true
	} else {
		delete(r.ids, id)
	}
	r.gauge.Set(float64(len(r.ids)))
}

// codeOf returns the error code that a new pod gets if it requests the refused NAD. If only rows in NB are in the way
// of the NAD, the code is conf.CodeTryAgain.
func codeOf(err error) uint {
	if e, ok := errors.AsType[*conf.Error](err); ok {
		return e.Code
	}
	return conf.CodeTryAgain
}
