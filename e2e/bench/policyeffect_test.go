//go:build bench

package bench

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
)

// effect is what a change costs, until all programs are done with it.
type effect struct {
	agent, controller ovndbtest.Counts
	recomputes        lab.Recomputes
	cpu               []time.Duration // of the processes in watched
	wall              time.Duration
}

// effect makes a change and waits until all is done and cond is true.
func (s *policySite) effect(do func(), cond func() error) (e effect) {
	s.settle()
	pids, before, recomputes := s.pids(), s.cpus(), get[lab.Recomputes](s.T)(s.Recomputes(s.Ctx))
	s.agentNB.Reset()
	s.controllerNB.Reset()
	began := time.Now()
	do()
	if cond == nil {
		cond = func() error { return nil }
	}
	e.wall = max(0, s.until(cond).Sub(began))
	e.agent, e.controller = s.agentNB.Counts(), s.controllerNB.Counts()
	after := get[lab.Recomputes](s.T)(s.Recomputes(s.Ctx))
	e.recomputes = lab.Recomputes{Northd: after.Northd - recomputes.Northd, LFlow: after.LFlow - recomputes.LFlow}
	for i, used := range s.cpus() {
		if s.pids()[i] == pids[i] { // otherwise a new process
			used -= before[i]
		}
		e.cpu = append(e.cpu, used)
	}
	s.T.Logf("%.1f s, %.4g", e.wall.Seconds(), e.cells())
	return e
}

// effectColumns are the columns of a table of effects.
var effectColumns = append([]string{
	"agent: transactions", "operations", "KB from NB",
	"controller: transactions that wrote", "refused", "that read", "operations", "KB to NB", "KB from NB",
	"recomputes of northd", "of its flows",
}, watched...)

func (e *effect) cells() []float64 {
	kb := func(n int64) float64 { return float64(n) / 1000 }
	a, c := e.agent, e.controller
	cells := []float64{
		float64(a.Committed + a.Refused + a.ReadOnly), float64(a.Operations), kb(a.Received),
		float64(c.Committed), float64(c.Refused), float64(c.ReadOnly), float64(c.Operations), kb(c.Sent), kb(c.Received),
		float64(e.recomputes.Northd), float64(e.recomputes.LFlow),
	}
	for _, used := range e.cpu {
		cells = append(cells, used.Seconds())
	}
	return cells
}

// effects is what changes cost, by what was changed.
type effects struct {
	names []string
	of    map[string][]effect
}

func (all *effects) add(what string, e effect) {
	if all.of == nil {
		all.of = map[string][]effect{}
	}
	if all.of[what] == nil {
		all.names = append(all.names, what)
	}
	all.of[what] = append(all.of[what], e)
}

// table has the medians.
func (all *effects) table(title string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\n| | %s |\n|---%s|\n", title, strings.Join(effectColumns, " | "), strings.Repeat("|---", len(effectColumns)))
	for _, what := range all.names {
		fmt.Fprintf(&b, "| %s, n = %d |", what, len(all.of[what]))
		for i := range effectColumns {
			var values []float64
			for _, e := range all.of[what] {
				values = append(values, e.cells()[i])
			}
			fmt.Fprintf(&b, " %s |", short(Median(values)))
		}
		b.WriteString("\n")
	}
	return strings.TrimSpace(b.String())
}

// size is a number that grows with the cluster or with its policies.
type size struct {
	what, unit string
	n          float64
}

// sizes measures what the databases, the node and the programs hold. It compacts the databases.
func (s *policySite) sizes() (all []size) {
	s.settle()
	add := func(what, unit string, n float64) { all = append(all, size{what, unit, n}) }
	kinds, bytes := map[string]float64{}, map[string]float64{}
	for _, table := range []string{nb.LogicalSwitchPortTable, nb.CoppTable, nb.PortGroupTable, nb.ACLTable, "Address_Set"} {
		for _, row := range s.nb.Dump(s.T, table) {
			kind := table
			if ids, ok := row["external_ids"].(map[string]string); ok && table == nb.CoppTable {
				kind = "Copp, " + coppKind(ids)
			}
			kinds[kind]++
			bytes[kind] += float64(len(s.JSON(row)))
		}
	}
	for _, kind := range []string{nb.LogicalSwitchPortTable, "Copp, port lists of nodes", nb.PortGroupTable, nb.ACLTable,
		"Copp, indexes of policies", "Copp, texts of policies", "Copp, labels of namespaces", "Copp, other rows", "Address_Set"} {
		add("NB: rows of "+kind, "", kinds[kind])
		add("NB: these rows as JSON", "KB", bytes[kind]/1000)
	}
	for _, of := range []string{"nb", "sb"} {
		dir := filepath.Join(s.Dir, "central")
		out, err := exec.CommandContext(s.Ctx, "ovs-appctl", "-t", filepath.Join(dir, of+".ctl"), "ovsdb-server/compact").CombinedOutput()
		if err != nil {
			s.Must(fmt.Errorf("%w: %s", err, out))
		}
		info, err := os.Stat(filepath.Join(dir, of+".db"))
		s.Must(err)
		add(strings.ToUpper(of)+": the compacted file", "MB", float64(info.Size())/1e6)
	}
	flows, err := s.SBCtl(s.Ctx, "--bare", "--columns=_uuid", "list", "Logical_Flow")
	s.Must(err)
	add("SB: logical flows", "", float64(len(strings.Fields(flows))))
	open, err := s.node.AppCtl(s.Ctx, "bridge/dump-flows", "br-int")
	s.Must(err)
	add("OpenFlow flows of the real node", "", float64(strings.Count(open, "\n")+1))
	for i, pid := range s.pids() {
		add("memory of "+watched[i], "MB", memory(s.T, pid))
	}
	return all
}

// coppKind names a row of the table Copp.
func coppKind(ids map[string]string) string {
	switch kind := ids["ovn-multinet/kind"]; {
	case kind == "port-list":
		return "port lists of nodes"
	case kind == "policy-groups":
		return "indexes of policies"
	case kind == "policy-namespace":
		return "labels of namespaces"
	case ids["ovn-multinet/policy-network"] != "":
		return "texts of policies"
	}
	return "other rows"
}

// sizeRows compares sizes with those before any policy.
func sizeRows(before, after []size) (rows []Row) {
	for i, now := range after {
		switch was := before[i]; {
		case now.n == 0 && was.n == 0:
		case was.n == 0:
			rows = append(rows, Number(now.what, now.unit, []float64{now.n}, 0))
		default:
			rows = append(rows, Compare(now.what, now.unit, "without policies", []float64{now.n}, []float64{was.n}, 0))
		}
	}
	return rows
}

// passed wants the controller to have made a pass over everything since the call: over all networks, and over the
// policies of all namespaces, which follows.
func (s *policySite) passed() func() error {
	passes := func() float64 {
		metrics, err := s.node.Metrics(controllerMetrics)
		s.Must(err)
		return metrics[`ovn_multinet_controller_passes_total{kind="policy-scope",result="done"}`]
	}
	before := passes()
	return func() error {
		if got := passes() - before; got < float64(s.mix.namespaces) {
			return fmt.Errorf("the controller has made %v passes over policies, want one for each namespace", got)
		}
		return nil
	}
}

// heap is what the controller's garbage collector says of its memory, in MB.
func (s *policySite) heap() float64 {
	metrics, err := s.node.Metrics(controllerMetrics)
	s.Must(err)
	return metrics["go_memstats_heap_inuse_bytes"] / 1e6
}

// accepted wants so many MultiNetworkPolicies to be accepted.
func (s *policySite) accepted(want int) func() error {
	return func() error {
		var list struct {
			Items []struct {
				Metadata struct{ Annotations map[string]string }
			}
		}
		err := json.Unmarshal(s.request("GET", "/apis/k8s.cni.cncf.io/v1beta1/multi-networkpolicies", "", nil), &list)
		got := 0
		for _, p := range list.Items {
			if strings.Contains(p.Metadata.Annotations["ovn-multinet/policy-state"], `"ready":true`) {
				got++
			}
		}
		if got != want {
			err = errors.Join(err, fmt.Errorf("%d of %d policies are accepted", got, want))
		}
		return err
	}
}

// rows wants so many ACLs of a policy.
func (s *policySite) acls(policy string, want int) func() error {
	return func() error {
		out, err := s.NBCtl(s.Ctx, "--bare", "--columns=_uuid", "find", "ACL", fmt.Sprintf(`external_ids:"ovn-multinet/policy"=%q`, policy))
		if got := len(strings.Fields(out)); err == nil && got != want {
			err = fmt.Errorf("policy %s has %d ACLs, want %d", policy, got, want)
		}
		return err
	}
}

// member wants a tenant's port to be, or not to be, in the group of a selector.
func (s *policySite) member(group, port string, want bool) func() error {
	return func() error {
		out, err := s.NBCtl(s.Ctx, "--bare", "--columns=ports", "list", "Port_Group", group)
		if err == nil && strings.Contains(out, port) != want {
			err = fmt.Errorf("port %s in group %s: want %v", port, group, want)
		}
		return err
	}
}
