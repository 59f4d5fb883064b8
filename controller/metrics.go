package controller

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ovn-multinet/ovn-multinet/controller/engine"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
)

// Metrics are the metrics of the controller. Their counters begin with the process, also if the controller does not
// lead.
type Metrics struct {
	*engine.Metrics
	queue *Queue
	db    *ovndb.DB
	// leading returns an error if the controller does not lead. It is nil before and after Controller.Run.
	leading atomic.Pointer[func() error]
}

// NewMetrics makes the metrics of a controller that works off the queue.
func NewMetrics(queue *Queue, db *ovndb.DB) *Metrics {
	return &Metrics{Metrics: engine.NewMetrics(), queue: queue, db: db}
}

// Register adds the metrics to a registry.
func (m *Metrics) Register(registry prometheus.Registerer) {
	m.Metrics.Register(registry)
	gauge := func(name, help string, value func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value)
	}
	registry.MustRegister(
		gauge("ovn_multinet_controller_leader", "Whether this controller leads, and NB belongs to its cluster.",
			func() float64 {
				leading := m.leading.Load()
				return oneIf(leading != nil && (*leading)() == nil)
			}),
		gauge("ovn_multinet_controller_queue_depth", "Items in the queue that wait for their pass.", func() float64 {
			return float64(m.queue.Queue.Len())
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
