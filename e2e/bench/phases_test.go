//go:build bench

package bench

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

// agentMetrics is where our agent serves its metrics, in the network namespace of its node.
const agentMetrics = "127.0.0.1:9410"

// clock reads the sums of the agent's histograms: an ADD adds its own times to them.
func (s *site) clock(sys *system) map[string]float64 {
	if sys.opts != nil {
		return nil // another system
	}
	sums := map[string]float64{}
	metrics, err := s.node.Metrics(agentMetrics)
	s.Must(err)
	for name, seconds := range metrics {
		for histogram, label := range map[string]string{
			"ovn_multinet_agent_request_seconds_sum": "op", "ovn_multinet_agent_add_phase_seconds_sum": "phase",
		} {
			if value, ours := strings.CutPrefix(name, histogram+"{"+label+`="`); ours {
				sums[strings.TrimSuffix(value, `"}`)] = 1000 * seconds
			}
		}
	}
	return sums
}

// chain is what the runs of an ADD took: of our plugin, and of the plugins before it.
type chain struct{ ours, before cost }

func chainOf(runs []lab.Run) (c chain) {
	for _, run := range runs {
		of := &c.before
		if run.Plugin == lab.PluginType {
			of = &c.ours
		}
		of.wall += run.Took
		of.cpu += run.CPU
	}
	return c
}

// The phases of an ADD follow each other. Their sum is the whole ADD.
const (
	inRuntime  = "the runtime, between the plugins"
	inBefore   = "Flannel and portmap, their processes"
	inProcess  = "our plugin's process: start, journal, end"
	inPlan     = "agent: plan, without NB"
	inNB       = "agent: the transaction in NB"
	inPlugin   = "our plugin: veths, addresses, journal"
	inOVS      = "agent: the transaction in Open vSwitch"
	inFlows    = "agent: wait for OVN's flows"
	inBind     = "agent: the rest of the bind"
	besideFlow = "meanwhile: network-status in the API"
)

var phaseOrder = []string{inRuntime, inBefore, inProcess, inPlan, inNB, inPlugin, inOVS, inFlows, inBind}

// phases divides one ADD.
func phases(whole time.Duration, c chain, before, after map[string]float64) map[string]float64 {
	of := func(name string) float64 { return after[name] - before[name] }
	return map[string]float64{
		inRuntime: ms(whole - c.before.wall - c.ours.wall), inBefore: ms(c.before.wall),
		inProcess: ms(c.ours.wall) - of("plan") - of("plugin") - of("bind"),
		inPlan:    of("plan") - of("ports"), inNB: of("ports"), inPlugin: of("plugin"), inOVS: of("ovs"), inFlows: of("flows"),
		inBind: of("bind") - of("ovs") - of("flows"), besideFlow: of("status"),
	}
}

// phaseRows compares the phases of two numbers of networks. The process of a pod without networks stands beside them.
func phaseRows(us map[int]*series) (rows []Row) {
	of := func(k int, phase string) (values []float64) {
		for _, turn := range us[k].phases {
			values = append(values, turn[phase])
		}
		return values
	}
	row := func(what string, eight, one []float64) {
		rows = append(rows, Compare(what, "ms", "k = 1", eight, one, 0))
	}
	var eights, ones float64
	for _, phase := range phaseOrder {
		eight, one := of(maxNetworks, phase), of(1, phase)
		eights, ones = eights+Median(eight), ones+Median(one)
		row(phase, eight, one)
	}
	row("sum of these medians", []float64{eights}, []float64{ones})
	row("ADD, whole", us[maxNetworks].add, us[1].add)
	row(besideFlow, of(maxNetworks, besideFlow), of(1, besideFlow))
	return append(rows, Number("our plugin's process for a pod without networks", "ms", us[0].process, 0))
}

// phasePlot draws the phases over the numbers of networks.
func phasePlot(us map[int]*series, ks []int) Plot {
	plot := Plot{Name: "phases", Title: "Where the time of an ADD goes", X: "k", Y: "ms"}
	for _, phase := range phaseOrder {
		line := Line{Name: phase}
		for _, k := range ks {
			if k == 0 {
				continue // no request to the agent
			}
			var values []float64
			for _, turn := range us[k].phases {
				values = append(values, turn[phase])
			}
			line.X, line.Points = append(line.X, float64(k)), append(line.Points, Estimated(values))
		}
		plot.Lines = append(plot.Lines, line)
	}
	return plot
}

// phasesPart begins the part on phases.
func phasesPart(t *testing.T) *Part {
	return report(t, "21-phases", "Where the time of an ADD goes", fmt.Sprintf(`The ADDs of the part before, k = %d beside k = 1: medians of
the turns. The agent's phases are its own histograms (ovn_multinet_agent_add_phase_seconds and _request_seconds), read before
and after each ADD. The processes of plugins are measured by the runtime, from start to end. What is left of an ADD is the
runtime's own. The phases follow each other; the network-status is written to the API during the wait for flows.`, maxNetworks))
}
