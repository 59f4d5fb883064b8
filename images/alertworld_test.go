package images

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// The world in which alerts and panels are tested: three agents and two controllers for three hours, one sample a
// minute, as Prometheus has them by the chart's monitors. Twice another controller leads. Nothing is wrong in it.
const (
	worldMinutes = 180
	firstChange  = 30 // controller-1 ends; controller-2 leads from the next minute on
	secondChange = 60 // controller-1 leads again
	replaced     = 45 // the agent of node n3 is another pod from then on, at the same address
)

// A sample is a series' value at a minute, in promtool's words: "_" is none, and "stale" ends the series.
type sample func(minute int) string

func number(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

func always(v float64) sample { return func(int) string { return number(v) } }

// between is another value from a minute to a later one.
func between(from, to int, then, else_ sample) sample {
	return func(m int) string {
		if m >= from && m < to {
			return then(m)
		}
		return else_(m)
	}
}

// counter grows in the minutes for which grows is true. It begins again with the process, which one minute may be.
func counter(perMinute float64, restart int, grows func(int) bool) sample {
	return func(m int) string {
		total := 0.0
		for i := 1; i <= m; i++ {
			if i == restart {
				total = 0
			}
			if grows(i) {
				total += perMinute
			}
		}
		return number(total)
	}
}

func anyMinute(int) bool { return true }

// world has the samples of each series.
type world map[string]sample

// target has the labels that a monitor gives the samples of a pod, without the namespace.
func target(component, pod, node string) string {
	port := map[string]string{"agent": "9401", "controller": "9402"}[component]
	return fmt.Sprintf(`job="ovn-multinet/%s",pod="%s",node="%s",container="%s",instance="192.0.2.%s:%s"`,
		component, pod, node, component, node[1:], port)
}

const ours = `,namespace="ovn-multinet"`

// agents are the pods of agents with their nodes, and controllers those of controllers.
var (
	agents      = [][2]string{{"agent-1", "n1"}, {"agent-2", "n2"}, {"agent-3", "n3"}, {"agent-4", "n3"}}
	controllers = [][2]string{{"controller-1", "n1"}, {"controller-2", "n2"}}
)

// add adds a series of a pod. Labels begin with a comma. A label "namespace" of the metric takes the place of the pod's.
func (w world) add(name, of, labels string, s sample) {
	if !strings.Contains(labels, ",namespace=") {
		labels += ours
	}
	w[name+"{"+of+labels+"}"] = s
}

// change changes the series whose names contain all texts.
func (w world) change(to func(sample) sample, texts ...string) {
	for name, s := range w {
		if !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(name, text) }) {
			w[name] = to(s)
		}
	}
}

// tenants are the codes of ADDs that fail by what tenants, or the plugins of others, have done.
var tenants = []string{"7", "101", "102", "103", "105", "107", "108"}

func newWorld() world {
	w := world{}
	for _, a := range agents {
		w.addAgent(target("agent", a[0], a[1]))
	}
	// Prometheus finds the end of agent-3 late: its samples count for five minutes, beside those of agent-4.
	none := func(int) string { return "_" }
	w.change(func(s sample) sample { return between(replaced, worldMinutes+1, none, s) }, `pod="agent-3"`)
	w.change(func(s sample) sample { return between(0, replaced, none, s) }, `pod="agent-4"`)
	// Since its start agent-4 has only refused a tenant's mistakes.
	for name := range w {
		if strings.Contains(name, "agent-4") && (strings.Contains(name, `code="0"`) || strings.Contains(name, `code="106"`)) {
			delete(w, name)
		}
	}
	for i, c := range controllers {
		leads := func(m int) bool { return (m > firstChange && m <= secondChange) == (i == 1) && m != firstChange }
		w.addController(target("controller", c[0], c[1]), leads, []int{firstChange, 0}[i])
	}
	return w
}

func (w world) addAgent(of string) {
	const name = "ovn_multinet_agent_"
	w.add("up", of, "", always(1))
	w.add("process_resident_memory_bytes", of, "", always(5e7))
	w.add("process_cpu_seconds_total", of, "", counter(1, 0, anyMinute))
	for _, gauge := range []string{"nb_connected", "ovs_connected"} {
		w.add(name+gauge, of, "", always(1))
	}
	for _, gauge := range []string{"failed_dels", "damaged_files", "ports_lost"} {
		w.add(name+gauge, of, "", always(0))
	}
	w.add(name+"last_reconcile_timestamp_seconds", of, "", func(m int) string { return number(float64(60 * (m - m%2))) })
	w.add(name+"stale_sandboxes_total", of, "", always(0))
	for _, op := range []string{"plan", "bind"} {
		w.add(name+"requests_total", of, `,op="`+op+`",code="0"`, counter(5, 0, anyMinute))
	}
	for _, code := range tenants {
		w.add(name+"requests_total", of, `,op="plan",code="`+code+`"`, counter(5, 0, anyMinute))
	}
	w.add(name+"requests_total", of, `,op="bind",code="106"`, counter(0.1, 0, anyMinute))
	for i, le := range []string{"0.064", "0.128", "+Inf"} {
		n := counter(float64(i+3), 0, anyMinute)
		w.add(name+"request_seconds_bucket", of, `,op="bind",le="`+le+`"`, n)
		for _, phase := range []string{"ports", "flows"} {
			w.add(name+"add_phase_seconds_bucket", of, `,phase="`+phase+`",le="`+le+`"`, n)
		}
	}
	w.add(name+"ports_restored_total", of, `,database="nb"`, counter(0.01, 0, anyMinute))
	for _, result := range []string{"done", "failed"} {
		w.add(name+"pod_changes_total", of, `,result="`+result+`"`, counter(0.1, 0, anyMinute))
	}
	w.add(name+"address_searches_total", of, `,result="free"`, counter(0.1, 0, anyMinute))
	for _, policy := range []string{"web", "db"} {
		w.add(name+"denied_packets_logged_total", of, `,namespace="shop",policy="`+policy+`",direction="ingress"`, counter(6, 0, anyMinute))
	}
}

// addController adds the series of a controller. One that leads no more keeps its last numbers, unless its process ends.
func (w world) addController(of string, leads func(int) bool, restart int) {
	const name = "ovn_multinet_controller_"
	w.add("up", of, "", always(1))
	w.add("process_resident_memory_bytes", of, "", always(5e7))
	w.add("process_cpu_seconds_total", of, "", counter(1, restart, anyMinute))
	w.add(name+"leader", of, "", func(m int) string {
		if leads(m) {
			return "1"
		}
		return "0"
	})
	w.add(name+"nb_connected", of, "", always(1))
	w.add(name+"config_invalid", of, "", always(0))
	w.add(name+"queue_depth", of, "", always(2))
	w.add(name+"nb_transactions_total", of, "", counter(3, restart, leads))
	for kind, perMinute := range map[string]float64{"all": 0.2, "nad": 6} {
		w.add(name+"passes_total", of, `,kind="`+kind+`",result="done"`, counter(perMinute, restart, leads))
		w.add(name+"passes_total", of, `,kind="`+kind+`",result="failed"`, counter(perMinute/100, restart, leads))
	}
	w.add(name+"pass_seconds_total", of, `,kind="all",namespace=""`, counter(0.1, restart, leads))
	for _, namespace := range []string{"shop", "bank"} {
		w.add(name+"pass_seconds_total", of, `,kind="nad",namespace="`+namespace+`"`, counter(0.3, restart, leads))
	}
	// What controller-2 counted in its last ten minutes as the leader would be worth two alerts.
	refused, cost := 0.0, 1000.0
	if strings.Contains(of, "controller-2") {
		refused, cost = 3, 4e6
	}
	ever := func(now, before float64) sample {
		return func(m int) string {
			for i := range m + 1 {
				if leads(i) && i > secondChange-10 {
					return number(now)
				}
			}
			return number(before)
		}
	}
	w.add(name+"refused_objects", of, `,kind="nad",code="7"`, ever(refused, 0))
	w.add(name+"refused_objects", of, `,kind="policy",code=""`, always(0))
	for _, namespace := range []string{"shop", "bank"} {
		w.add(name+"cost", of, `,namespace="`+namespace+`",resource="bytes"`, ever(cost, 1000))
		w.add(name+"cost_limit", of, `,namespace="`+namespace+`",resource="bytes"`, always(4194304))
	}
}

// What promtool reads.
type (
	promtoolFile struct {
		RuleFiles          []string       `json:"rule_files"`
		EvaluationInterval string         `json:"evaluation_interval"`
		Tests              []promtoolTest `json:"tests"`
	}
	promtoolTest struct {
		Name     string           `json:"name"`
		Interval string           `json:"interval"`
		Series   []promtoolSeries `json:"input_series"`
		Queries  []promtoolQuery  `json:"promql_expr_test"`
	}
	promtoolSeries struct {
		Series string `json:"series"`
		Values string `json:"values"`
	}
	promtoolQuery struct {
		Expr    string           `json:"expr"`
		Time    string           `json:"eval_time"`
		Samples []promtoolSample `json:"exp_samples"`
	}
	promtoolSample struct {
		Labels string  `json:"labels"`
		Value  float64 `json:"value"`
	}
)

// test asks the world.
func (w world) test(name string, queries ...promtoolQuery) promtoolTest {
	t := promtoolTest{Name: name, Interval: "1m", Queries: queries}
	for _, series := range slices.Sorted(maps.Keys(w)) {
		var values []string
		for m := range worldMinutes + 1 {
			values = append(values, w[series](m))
		}
		t.Series = append(t.Series, promtoolSeries{series, strings.Join(values, " ")})
	}
	return t
}

// query asks for the labels of the samples at a minute; each sample has the value 1.
func query(expr string, minute int, labels ...string) promtoolQuery {
	q := promtoolQuery{Expr: expr, Time: fmt.Sprint(minute, "m")}
	for _, l := range labels {
		q.Samples = append(q.Samples, promtoolSample{l, 1})
	}
	return q
}
