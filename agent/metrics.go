package agent

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/node/journal"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
)

// metrics are the agent's, on the registry that it is given.
type metrics struct {
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	phases   *prometheus.HistogramVec
	stale    prometheus.Counter
	restored *prometheus.CounterVec
	lost     prometheus.Gauge
	lastPass prometheus.Gauge
	denied   *prometheus.CounterVec
	changes  *prometheus.CounterVec // of running pods' networks, by result
	searches *prometheus.CounterVec // for other hosts with a pod's addresses, by result
	// undeletable is how many files of release/ the disk refuses to delete.
	undeletable atomic.Int64
}

func newMetrics(registry prometheus.Registerer, dir journal.Dir, nbConnected, ovsConnected func() bool) *metrics {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ovn_multinet_agent_requests_total",
			Help: "Requests of plugins, by operation and CNI error code (0: success).",
		}, []string{"op", "code"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "ovn_multinet_agent_request_seconds", Help: "Time to serve a request of a plugin.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 15),
		}, []string{"op"}),
		phases: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "ovn_multinet_agent_add_phase_seconds", Help: "Time of a phase of an ADD with networks that succeeded.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 16),
		}, []string{"phase"}),
		stale: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "ovn_multinet_agent_stale_sandboxes_total",
			Help: "Stale sandboxes whose ports or OVS ports were deleted without a DEL.",
		}),
		restored: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ovn_multinet_agent_ports_restored_total",
			Help: "Ports of running pods that a database had lost and that were inserted again, by database (nb or ovs).",
		}, []string{"database"}),
		lost: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "ovn_multinet_agent_ports_lost",
			Help: "Ports of running pods that are missing in the Northbound database and cannot be inserted again.",
		}),
		lastPass: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "ovn_multinet_agent_last_reconcile_timestamp_seconds",
			Help: "Time of the last reconcile pass that could list all that the node's sandboxes have.",
		}),
		changes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ovn_multinet_agent_pod_changes_total",
			Help: "Changes of the networks of running pods, by result: each is one run of the plugin.",
		}, []string{"result"}),
		searches: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ovn_multinet_agent_address_searches_total",
			Help: "Searches for other hosts that use the addresses of a pod's interface on a physical network, by result.",
		}, []string{"result"}),
		denied: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ovn_multinet_agent_denied_packets_logged_total",
			Help: "Packets that a policy has denied and that ovn-controller has logged: OVN logs a limited number per second.",
		}, []string{"namespace", "policy", "direction"}),
	}
	registry.MustRegister(m.requests, m.seconds, m.phases, m.stale, m.restored, m.lost, m.lastPass, m.denied, m.searches,
		m.changes,
		journalMetrics{dir, &m.undeletable},
		connected("ovn_multinet_agent_nb_connected",
			"Whether the agent is connected to OVN's Northbound database.", nbConnected),
		connected("ovn_multinet_agent_ovs_connected",
			"Whether the agent is connected to the node's Open vSwitch.", ovsConnected))
	return m
}

func connected(name, help string, is func() bool) prometheus.Collector {
	help += fmt.Sprintf(" A server that disappears without closing the connection is noticed within %v.",
		ovndb.NoticedWithin)
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 {
		if is() {
			return 1
		}
		return 0
	})
}

// journalMetrics are the metrics of the plugin's journal, which each scrape reads once.
type journalMetrics struct {
	dir         journal.Dir
	undeletable *atomic.Int64
}

var (
	failedDELsDesc = prometheus.NewDesc("ovn_multinet_agent_failed_dels",
		"Sandboxes with networks of other plugins whose DEL failed, and which a later call tries again.", nil, nil)
	damagedDesc = prometheus.NewDesc("ovn_multinet_agent_damaged_files",
		"Files of the plugin's journal that cannot be read or do not parse, and files in release/ that cannot be deleted.",
		nil, nil)
)

func (journalMetrics) Describe(to chan<- *prometheus.Desc) {
	to <- failedDELsDesc
	to <- damagedDesc
}

func (j journalMetrics) Collect(to chan<- prometheus.Metric) {
	failed, files := math.NaN(), math.NaN()
	if attached, damaged, err := j.dir.Summaries(); err == nil {
		waiting := slices.DeleteFunc(failedDELs(attached), func(l agentapi.FailedDEL) bool { return l.Forgotten })
		failed, files = float64(len(waiting)), float64(len(damaged))+float64(j.undeletable.Load())
	}
	to <- prometheus.MustNewConstMetric(failedDELsDesc, prometheus.GaugeValue, failed)
	to <- prometheus.MustNewConstMetric(damagedDesc, prometheus.GaugeValue, files)
}

// The phases of an ADD that take long enough to look at.
const (
	phasePorts  = "ports"  // of the plan: the transaction in NB
	phasePlugin = "plugin" // from the answer to the plan until the bind: the plugin makes the interfaces
	phaseOVS    = "ovs"    // of the bind: the transaction in Open vSwitch
	phaseFlows  = "flows"  // of the bind: the wait for OVN's flows
	phaseStatus = "status" // of the bind, beside the wait for flows: the write of the network-status
)

// timed runs a phase of an ADD. The time of a phase that fails says nothing, so it is not observed.
func (m *metrics) timed(phase string, run func() error) error {
	began := time.Now()
	err := run()
	if err == nil {
		m.phases.WithLabelValues(phase).Observe(time.Since(began).Seconds())
	}
	return err
}

func (m *metrics) observe(op string, err error, took time.Duration) {
	code := uint(0)
	if err != nil {
		code, _, _ = conf.Describe(err)
	}
	switch op {
	case agentapi.OpPlan, agentapi.OpBind, agentapi.OpRelease, agentapi.OpCheck, agentapi.OpStatus,
		agentapi.OpFailedDELs, agentapi.OpForget, agentapi.OpGC, agentapi.OpChange:
	default:
		op = "unknown" // a peer must not choose our label values
	}
	m.requests.WithLabelValues(op, strconv.FormatUint(uint64(code), 10)).Inc()
	m.seconds.WithLabelValues(op).Observe(took.Seconds())
}
