package agent

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
)

// metrics are the agent's, on the registry that it is given.
type metrics struct {
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	taken    prometheus.Counter
	restored *prometheus.CounterVec
}

func newMetrics(registry prometheus.Registerer, a *Agent) *metrics {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ovn_multinet_agent_requests_total", Help: "Requests of plugins, by operation and CNI error code (0: success).",
		}, []string{"op", "code"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "ovn_multinet_agent_request_seconds", Help: "Time to serve a request of a plugin.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 15),
		}, []string{"op"}),
		taken: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "ovn_multinet_agent_taken_away_total", Help: "Containers that were gone and whose ports or host ends were taken away without a DEL.",
		}),
	}
	m.restored = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "ovn_multinet_agent_ports_restored_total",
		Help: "Ports of running pods that a database had lost and that were inserted again, by database (nb or ovs).",
	}, []string{"database"})
	lost := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "ovn_multinet_agent_ports_lost",
		Help: "Ports of running pods that are missing in the Northbound database and cannot be inserted again.",
	}, func() float64 { return float64(a.repairing.lost.Load()) })
	connected := func(name, help string, is func() bool) prometheus.Collector {
		help += fmt.Sprintf(" A server that is gone without a word is noticed within %v.", ovndb.NoticedWithin)
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 {
			if is() {
				return 1
			}
			return 0
		})
	}
	looked := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "ovn_multinet_agent_last_look_timestamp_seconds", Help: "When the agent last listed all that containers have, to find those that are gone.",
	}, func() float64 { return float64(a.remaining.looked.Load()) })
	registry.MustRegister(m.requests, m.seconds, m.taken, m.restored, lost, looked, journalMetrics{a},
		connected("ovn_multinet_agent_nb_connected", "Whether the connection to OVN's Northbound database stands.", a.nbdb.Connected),
		connected("ovn_multinet_agent_ovs_connected", "Whether the connection to the node's Open vSwitch stands.", a.ovs.Connected))
	return m
}

// journalMetrics are those of the plugin's journal, which each scrape reads once.
type journalMetrics struct{ agent *Agent }

var (
	leftBehindDesc = prometheus.NewDesc("ovn_multinet_agent_left_behind",
		"Containers with networks of other plugins whose DEL failed, and which are tried again.", nil, nil)
	damagedDesc = prometheus.NewDesc("ovn_multinet_agent_damaged_files",
		"Files of the plugin's journal that cannot be read or do not parse, and files in release/ that cannot be deleted.", nil, nil)
)

func (journalMetrics) Describe(to chan<- *prometheus.Desc) {
	to <- leftBehindDesc
	to <- damagedDesc
}

func (j journalMetrics) Collect(to chan<- prometheus.Metric) {
	left, files := math.NaN(), math.NaN()
	if attached, damaged, err := j.agent.journal.Summaries(); err == nil {
		waiting := slices.DeleteFunc(listLeftBehind(attached), func(l agentapi.FailedDEL) bool { return l.Forgotten })
		left, files = float64(len(waiting)), float64(len(damaged))+float64(j.agent.stuckReleases.Load())
	}
	to <- prometheus.MustNewConstMetric(leftBehindDesc, prometheus.GaugeValue, left)
	to <- prometheus.MustNewConstMetric(damagedDesc, prometheus.GaugeValue, files)
}

func (m *metrics) observe(op string, err error, took time.Duration) {
	code := uint(0)
	if err != nil {
		code, _, _ = conf.Describe(err)
	}
	switch op {
	case agentapi.OpPlan, agentapi.OpBind, agentapi.OpRelease, agentapi.OpCheck, agentapi.OpStatus, agentapi.OpFailedDELs, agentapi.OpForget, agentapi.OpGC:
	default:
		op = "unknown" // a peer must not choose our label values
	}
	m.requests.WithLabelValues(op, strconv.FormatUint(uint64(code), 10)).Inc()
	m.seconds.WithLabelValues(op).Observe(took.Seconds())
}
