package images

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/ovn-multinet/ovn-multinet/images/promtool"
)

const (
	rulesFile     = "chart/monitoring/rules.yaml"
	dashboardFile = "chart/monitoring/dashboard.json"
)

// alertRule is an alert of the chart.
type alertRule struct {
	Alert, Expr         string
	Labels, Annotations map[string]string
}

func alertRules(t *testing.T) []alertRule {
	t.Helper()
	var file struct{ Groups []struct{ Rules []alertRule } }
	readYAML(t, rulesFile, &file)
	if len(file.Groups) != 1 || len(file.Groups[0].Rules) < 8 {
		t.Fatalf("%s has %d groups", rulesFile, len(file.Groups))
	}
	return file.Groups[0].Rules
}

// runPromtool runs promtool, and fails the test if promtool finds a fault.
func runPromtool(t *testing.T, args ...string) {
	t.Helper()
	path, err := promtool.Path()
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(path, args...).CombinedOutput(); err != nil {
		t.Errorf("promtool %s: %v\n%.20000s", strings.Join(args[:2], " "), err, out)
	}
}

// ask has promtool evaluate queries in worlds, with the alerts of the chart.
func ask(t *testing.T, tests ...promtoolTest) {
	t.Helper()
	rules, err := filepath.Abs(rulesFile)
	if err != nil {
		t.Fatal(err)
	}
	text, err := yaml.Marshal(promtoolFile{[]string{rules}, "1m", tests})
	file := filepath.Join(t.TempDir(), "tests.yaml")
	if err == nil {
		err = os.WriteFile(file, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	runPromtool(t, "test", "rules", file)
}

func TestRulesParse(t *testing.T) { runPromtool(t, "check", "rules", rulesFile) }

const firing = `ALERTS{alertstate="firing"}`

// TestNoAlert: while nothing is wrong no alert fires, also while another controller leads and a pod is replaced.
func TestNoAlert(t *testing.T) {
	var queries []promtoolQuery
	for m := 5; m <= worldMinutes; m++ {
		queries = append(queries, query(firing, m))
	}
	ask(t, newWorld().test("nothing is wrong", queries...))
}

// A fault begins and ends in these minutes, and is looked at shortly before its end and long after.
const faultBegins, faultLooked, faultEnds, faultOver = 90, 160, 165, 180

// during replaces samples while a fault lasts.
func during(then sample) func(sample) sample {
	return func(s sample) sample { return between(faultBegins, faultEnds, then, s) }
}

// growing adds to a counter while a fault lasts, and for good.
func growing(perMinute float64) sample {
	more := counter(perMinute, 0, func(m int) bool { return m > faultBegins && m < faultEnds })
	return func(m int) string {
		if m < faultBegins {
			return "_"
		}
		return more(m)
	}
}

// faults has for each alert how its fault shows in the metrics, and the labels of the one alert that then fires.
var faults = []struct {
	alert, name, labels string
	make                func(w world)
}{
	{"Down", "an agent does not answer", target("agent", "agent-2", "n2") + ours, func(w world) {
		w.change(during(ended), `pod="agent-2"`)
		w.change(func(sample) sample { return during(always(0))(always(1)) }, "up{", `pod="agent-2"`)
	}},
	{"Down", "a controller does not answer", target("controller", "controller-2", "n2") + ours, func(w world) {
		w.change(during(ended), `pod="controller-2"`)
		w.change(func(sample) sample { return during(always(0))(always(1)) }, "up{", `pod="controller-2"`)
	}},
	{"NotScraped", "no agent is known", `job="ovn-multinet/agent"`, func(w world) { w.change(during(ended), `container="agent"`) }},
	{"NotOneLeader", "nobody leads", "", func(w world) { w.change(during(always(0)), "_leader{") }},
	{"NotOneLeader", "two lead", "", func(w world) {
		w.change(during(always(1)), "_leader{")
		// The second one works, too, and refuses nothing.
		w.change(func(sample) sample { return counter(0.2, 0, anyMinute) }, `kind="all",result="done"`)
		w.change(during(always(0)), "_refused_objects{")
		w.change(during(always(0)), "_cost{")
	}},
	{"NBDisconnected", "an agent", target("agent", "agent-2", "n2") + ours, func(w world) { w.change(during(always(0)), "agent_nb_connected{", `"n2"`) }},
	{"NBDisconnected", "a controller", target("controller", "controller-2", "n2") + ours, func(w world) {
		w.change(during(always(0)), "controller_nb_connected{", `"n2"`)
	}},
	{"OVSDisconnected", "an agent", target("agent", "agent-2", "n2") + ours, func(w world) { w.change(during(always(0)), "ovs_connected{", `"n2"`) }},
	{"AddsFail", "OVN is behind on a node", `node="n2"`, func(w world) {
		w.add("ovn_multinet_agent_requests_total", target("agent", "agent-2", "n2"), `,op="bind",code="11"`, growing(4))
	}},
	{"NetworkFull", "pods of a node get no address", `node="n2"`, func(w world) {
		w.add("ovn_multinet_agent_requests_total", target("agent", "agent-2", "n2"), `,op="plan",code="104"`, growing(1))
	}},
	{"PortsLost", "a port", target("agent", "agent-2", "n2") + ours, func(w world) { w.change(during(always(1)), "ports_lost{", `"n2"`) }},
	{"ReconcileOld", "no pass since", target("agent", "agent-2", "n2") + ours, func(w world) {
		w.change(during(always(60*faultBegins)), "last_reconcile_timestamp", `"n2"`)
	}},
	{"ControllerStuck", "the leader", target("controller", "controller-1", "n1") + ours, func(w world) {
		works := func(m int) bool { return m < faultBegins || m >= faultEnds }
		w.change(func(sample) sample { return counter(0.2, 0, works) }, `kind="all",result="done"`, "controller-1")
		w.change(func(sample) sample { return counter(0.1, 0, works) }, `pass_seconds_total{`, `kind="all"`, "controller-1")
	}},
	{"SlowPasses", "of one kind", `kind="all"`, func(w world) {
		w.change(func(sample) sample {
			slow, quick := counter(1.5, 0, func(m int) bool { return m > faultBegins && m < faultEnds-15 }), counter(0.1, 0, anyMinute)
			return func(m int) string { return sum(slow(m), quick(m)) }
		}, `pass_seconds_total{`, `kind="all"`, "controller-1")
	}},
	{"ObjectsRefused", "a NAD with a mistake", `kind="nad",code="7"`, func(w world) { w.change(during(always(1)), "refused_objects{", `code="7"`, "controller-1") }},
	{"ObjectsRefused", "a policy", `kind="policy"`, func(w world) { w.change(during(always(2)), "refused_objects{", `"policy"`, "controller-1") }},
	{"BudgetNearlyUsed", "of a namespace", `namespace="shop",resource="bytes"`, func(w world) {
		w.change(during(always(4e6)), "_cost{", `"shop"`, "controller-1")
	}},
	{"ConfigInvalid", "the same file in both", "", func(w world) { w.change(during(always(1)), "config_invalid{") }},
}

// ended is a series that has ended when the fault began.
func ended(m int) string {
	if m == faultBegins {
		return "stale"
	}
	return "_"
}

func sum(a, b string) string {
	var x, y float64
	fmt.Sscan(a, &x)
	fmt.Sscan(b, &y)
	return number(x + y)
}

// TestAlerts: each alert fires once when its fault is there, and no other one does. It ends with its fault. What its text
// names is a label of it.
func TestAlerts(t *testing.T) {
	rules := map[string]alertRule{}
	for _, r := range alertRules(t) {
		rules[r.Alert] = r
	}
	var tests []promtoolTest
	tried := map[string]bool{}
	for _, f := range faults {
		name := "OVNMultinet" + f.alert
		rule, found := rules[name]
		if !found {
			t.Errorf("there is no alert %s", name)
			continue
		}
		tried[name] = true
		w := newWorld()
		f.make(w)
		alert := fmt.Sprintf(`ALERTS{alertname="%s",alertstate="firing",severity="%s",%s}`, name, rule.Labels["severity"], f.labels)
		looked := faultLooked
		if f.alert == "SlowPasses" {
			looked -= 15 // the time that its rates look back
		}
		tests = append(tests, w.test(name+": "+f.name, query(firing, faultBegins-1), query(firing, looked, alert), query(firing, faultOver)))
		for _, label := range regexp.MustCompile(`\$labels\.(\w+)`).FindAllStringSubmatch(rule.Annotations["summary"], -1) {
			if !strings.Contains(","+f.labels, ","+label[1]+"=") && label[1] != "code" {
				t.Errorf("%s: %s names the label %s, which it does not have: %s", name, rule.Annotations["summary"], label[1], f.labels)
			}
		}
	}
	for name := range rules {
		if !tried[name] {
			t.Errorf("no fault is tried for the alert %s", name)
		}
	}
	ask(t, tests...)
}

// panel is a panel of the dashboard.
type panel struct {
	ID         int
	Title      string
	Datasource map[string]string
	GridPos    struct{ X, Y, W, H int }
	Targets    []struct{ Expr, LegendFormat string }
}

type dashboard struct {
	Inputs     any `json:"__inputs"`
	UID        string
	Templating struct {
		List []struct{ Name, Type, Query string }
	}
	Panels []panel
}

func readDashboard(t *testing.T) (d dashboard) {
	t.Helper()
	text, err := os.ReadFile(dashboardFile)
	if err == nil {
		err = json.Unmarshal(text, &d)
	}
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// panels has what each panel shows in the world after the second change of the leader: the labels of its legend, each once.
var panels = func() map[string][]string {
	nodes := []string{`{node="n1"}`, `{node="n2"}`, `{node="n3"}`}
	leaders := []string{`{pod="controller-1"}`, `{pod="controller-2"}`}
	pods := append([]string{`{pod="agent-1"}`, `{pod="agent-2"}`, `{pod="agent-4"}`}, leaders...)
	kinds := []string{`{kind="all"}`, `{kind="nad"}`}
	codes := []string{`{op="plan",code="0"}`, `{op="bind",code="0"}`, `{op="bind",code="106"}`}
	for _, code := range tenants {
		codes = append(codes, `{op="plan",code="`+code+`"}`)
	}
	return map[string][]string{
		"Programs that answer": {`{job="ovn-multinet/agent"}`, `{job="ovn-multinet/controller"}`},
		"Leader":               leaders,
		"Connected to NB": {`{node="n1",pod="agent-1"}`, `{node="n2",pod="agent-2"}`, `{node="n3",pod="agent-4"}`,
			`{node="n1",pod="controller-1"}`, `{node="n2",pod="controller-2"}`},
		"Connected to Open vSwitch":                           nodes,
		"Steps of ADDs, by their code":                        codes,
		"Steps of ADDs that fail":                             nodes,
		"Time of a bind, 99 %":                                nodes,
		"Phases of an ADD, 99 %":                              {`{phase="flows"}`, `{phase="ports"}`},
		"Ports that are lost":                                 nodes,
		"Ports that were restored, in an hour":                {`{database="nb"}`},
		"Failed DELs, damaged files":                          nodes,
		"Since the last reconcile pass":                       nodes,
		"Stale sandboxes, in an hour":                         nodes,
		"Changes of running pods, in an hour":                 {`{result="done"}`, `{result="failed"}`},
		"Searches for hosts with a pod's address, in an hour": {`{result="free"}`},
		"Denied packets that were logged":                     {`{namespace="shop",policy="web",direction="ingress"}`, `{namespace="shop",policy="db",direction="ingress"}`},
		"Queue of the controllers":                            leaders,
		"Passes":                                              {`{kind="all",result="done"}`, `{kind="all",result="failed"}`, `{kind="nad",result="done"}`, `{kind="nad",result="failed"}`},
		"Time of a pass":                                      kinds,
		"Time of passes, by their namespace":                  {`{}`, `{namespace="bank"}`, `{namespace="shop"}`},
		"Objects that are refused":                            {`{kind="nad",code="7"}`, `{kind="policy"}`},
		"Use of the limits of namespaces":                     {`{namespace="bank",resource="bytes"}`, `{namespace="shop",resource="bytes"}`},
		"Transactions in NB":                                  leaders,
		"Invalid --config":                                    leaders,
		"Memory":                                              pods,
		"CPU":                                                 pods,
	}
}()

// TestPanels: each panel shows all nodes, pods and kinds that there are, each once, also after the changes of the leader.
// While samples of an ended pod count beside those of the next one, no query fails.
func TestPanels(t *testing.T) {
	var queries []promtoolQuery
	seen := 0
	for _, p := range readDashboard(t).Panels {
		want, found := panels[p.Title]
		if !found || len(p.Targets) == 0 {
			t.Errorf("the panel %q is not known, or has no query", p.Title)
			continue
		}
		seen++
		for _, target := range p.Targets {
			var legend []string
			for _, m := range regexp.MustCompile(`{{(\w+)}}`).FindAllStringSubmatch(target.LegendFormat, -1) {
				legend = append(legend, m[1])
			}
			expr := strings.ReplaceAll(target.Expr, "$__rate_interval", "5m")
			byLegend := fmt.Sprintf("count by (%s) (%s)", strings.Join(legend, ", "), expr)
			queries = append(queries, query(byLegend, 80, want...))
			for _, m := range []int{firstChange + 1, replaced + 1, secondChange + 1} {
				queries = append(queries, query("max("+byLegend+")", m, "{}"))
			}
		}
	}
	if seen != len(panels) {
		t.Errorf("the dashboard has %d of %d panels", seen, len(panels))
	}
	ask(t, newWorld().test("the dashboard", queries...))
}

// TestDashboard: the dashboard works in a Grafana that loads it from a file: all panels use the data source that the
// reader chooses, and no name that only an import by hand replaces. No panel covers another one.
func TestDashboard(t *testing.T) {
	d := readDashboard(t)
	if d.Inputs != nil || d.UID == "" || len(d.Templating.List) != 1 ||
		d.Templating.List[0].Type != "datasource" || d.Templating.List[0].Query != "prometheus" {
		t.Errorf("inputs %v, uid %q, variables %+v", d.Inputs, d.UID, d.Templating.List)
	}
	uid := "${" + d.Templating.List[0].Name + "}"
	ids, places := map[int]bool{}, map[string]bool{}
	for _, p := range d.Panels {
		if p.Datasource["uid"] != uid || p.Datasource["type"] != "prometheus" {
			t.Errorf("%s: the data source is %v", p.Title, p.Datasource)
		}
		g := p.GridPos
		place := fmt.Sprint(g.X, " ", g.Y)
		if ids[p.ID] || places[place] || g.W != 12 || g.H != 8 || g.X%12 != 0 || g.Y%8 != 0 || g.X > 12 {
			t.Errorf("%s: ID %d, place %+v", p.Title, p.ID, g)
		}
		ids[p.ID], places[place] = true, true
		for _, target := range p.Targets {
			if used := regexp.MustCompile(`\$\w+|\$\{`).FindAllString(target.Expr, -1); slices.ContainsFunc(used, func(v string) bool { return v != "$__rate_interval" }) {
				t.Errorf("%s: the query has the variables %q", p.Title, used)
			}
		}
	}
}
