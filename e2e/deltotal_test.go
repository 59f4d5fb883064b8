package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/bits"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	types100 "github.com/containernetworking/cni/pkg/types/100"
	"golang.org/x/sync/errgroup"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

// What a DEL may have to do without. The first three are one pod's, the others are a node's.
const (
	noNAD = 1 << iota
	noNetNS
	noJournal
	noAPI // the source of pods and NADs, which here is the folder of manifests: it is moved away
	noNB
	noAgent

	kindsOfPod = noAPI
	allKinds   = noAgent << 1
)

var missingNames = []string{"nad", "netns", "journal", "api", "nb", "agent"}

// without names what is missing, as part of a pod's name.
func without(kinds int) string {
	words := []string{"without"}
	for i, name := range missingNames {
		if kinds&(1<<i) != 0 {
			words = append(words, name)
		}
	}
	if len(words) == 1 {
		return "with-all"
	}
	return strings.Join(words, "-")
}

// The networks of these pods: the NADs of the second half go while pods are on them, those of totalDelegates too.
var (
	totalNADs      = []string{"stays", "stays-too", "goes", "goes-too"}
	totalDelegates = []string{"bridged-stays", "bridged-goes"}
)

func totalConfig(i int) string {
	return fmt.Sprintf(`{"type":"ovn-multinet","subnets":"10.8%d.0.0/24,fd8%d::/64"}`, i, i)
}

// deleted is a pod whose DEL goes without something, and another that wants its address, on the same node or another one.
type deleted struct {
	*lab.Pod
	kind  int
	rival *lab.Pod
	row   string
}

func (d *deleted) has(what int) bool { return d.kind&what == 0 }

// left is what there is of a container on its node and in NB.
type left struct {
	Ends, Plugs, Rows        int
	Lease, Attached, Release bool
}

// delWorld has two nodes; pods go on the first one.
type delWorld struct {
	*world
	leases string
}

func newDelWorld(t *testing.T) *delWorld {
	w := &delWorld{world: newWorld(t, lab.Options{Nodes: 2}, func(l *lab.Lab) {
		withDelegates(l)
		for _, n := range l.Nodes {
			n.AgentArgs = append(n.AgentArgs, "--reconcile-period=1s")
		}
	})}
	w.leases = filepath.Join(w.Nodes[0].Dir, "delegate-leases")
	w.onNode("ip", "link", "add", "dtbr0", "address", "02:00:00:00:80:01", "type", "bridge")
	w.makeNADs()
	w.Base = w.Snapshot()
	return w
}

// makeNADs writes those that are not there.
func (w *delWorld) makeNADs() {
	for i, name := range totalNADs {
		w.NAD(name, totalConfig(i))
	}
	for i, name := range totalDelegates {
		w.NAD(name, fmt.Sprintf(`{"cniVersion":"1.0.0","name":"%s","type":"bridge","bridge":"dtbr0","ipam":%s}`,
			name, ipam(w.leases, fmt.Sprintf("10.8%d.0.0/24", 8+i))))
	}
	for i, name := range totalNADs {
		w.inForce(name, totalConfig(i))
	}
}

// TestDelIsTotal: in all 64 combinations of API server, NB, agent, NAD, network namespace and journal, each there or missing, a
// pod's DEL succeeds, and a second and a third. What can go without the missing goes at once, the rest when it is back; nobody
// gets the pod's addresses before, and what only a lost journal knew is reported.
func TestDelIsTotal(t *testing.T) {
	t.Parallel()
	for node := 0; node < allKinds; node += noNB {
		t.Run(without(node), func(t *testing.T) {
			t.Parallel() // most of it is waiting
			w := newDelWorld(t)
			late := w.unheard()
			for state := node; state < node+noNB; state += kindsOfPod {
				w.delAll(state)
			}
			w.swept(late)
		})
	}
}

// delAll takes one pod of each kind away in one state of the node.
func (w *delWorld) delAll(node int) {
	pods := w.attachAll(node)
	w.Must(w.rivals(pods, (*delWorld).heldRival))
	w.takeAway(node, pods)
	traces := w.T.TempDir()
	w.Must(each(pods, func(d *deleted) error { return w.delOf(d, lab.WithStrace(filepath.Join(traces, d.Name))) }))
	w.atOnce(pods)
	for _, d := range pods {
		w.asked(d, filepath.Join(traces, d.Name))
	}
	w.Must(each(pods, func(d *deleted) error { return w.delOf(d) }))
	w.settles(pods, (*deleted).meanwhile)
	w.impatient(node, func() { w.Must(w.rivals(pods, (*delWorld).earlyRival)) })

	for _, d := range pods { // the runtime does that after a DEL that succeeded
		w.Must(d.RemoveNetNS())
	}
	w.giveBack(node)
	w.settles(pods, func(d *deleted) left { return left{Lease: !d.has(noJournal)} })
	w.Must(each(pods, func(d *deleted) error { return w.delOf(d) }))
	w.Must(w.rivals(pods, (*delWorld).lateRival))
	w.reported(pods)
	w.endAll(pods)
}

// each calls f for all pods at once.
func each(pods []*deleted, f func(*deleted) error) error {
	var all errgroup.Group
	for _, d := range pods {
		all.Go(func() error {
			if err := f(d); err != nil {
				return fmt.Errorf("%s: %w", d.Name, err)
			}
			return nil
		})
	}
	return all.Wait()
}

// attachAll attaches a pod of each kind, with an address of its choice, and makes its rival.
func (w *delWorld) attachAll(node int) (pods []*deleted) {
	for kind := range kindsOfPod {
		d := &deleted{kind: node | kind}
		which := kind & noNAD // of the NADs' halves
		first := fmt.Sprintf(`{"name":"%s","ips":["10.8%d.0.%d","fd8%d::%d"]}`, totalNADs[2*which], 2*which, 100+kind, 2*which, 100+kind)
		d.Pod = w.Pod(0, without(d.kind), fmt.Sprintf(`[%s,{"name":"%s"},{"name":"%s"}]`, first, totalNADs[2*which+1], totalDelegates[which]))
		d.rival = w.Pod((bits.OnesCount(uint(kind))+1)%2, "wants-"+d.Name, "["+first+"]")
		pods = append(pods, d)
	}
	w.Must(each(pods, func(d *deleted) error {
		_, err := d.Add(w.Ctx)
		return err
	}))
	for _, d := range pods {
		d.row = w.portRow(d.Pod, "net1").UUID
	}
	w.settles(pods, func(*deleted) left { return left{Ends: 2, Plugs: 2, Rows: 2, Lease: true, Attached: true} })
	return pods
}

// takeAway has things go missing: those that the controller has to notice first, and last those that the agent would act on.
func (w *delWorld) takeAway(node int, pods []*deleted) {
	for _, name := range append(totalNADs[2:], totalDelegates[1]) {
		w.removeNAD(name)
	}
	for _, name := range totalNADs[2:] {
		w.fenced("shop/" + name)
	}
	if node&noAgent != 0 {
		w.Must(w.Nodes[0].KillAgent())
	}
	if node&noNB != 0 {
		w.Must(w.NB.Kill())
	}
	if node&noAPI != 0 {
		w.Must(os.Rename(w.Manifests, w.Manifests+".away"))
	}
	for _, d := range pods {
		if !d.has(noNetNS) {
			w.Must(d.RemoveNetNS())
		}
		if !d.has(noJournal) {
			w.Must(os.Remove(filepath.Join(d.Node.StateDir, "attached", d.Sandbox+"@eth0")))
			results := w.Glob(filepath.Join(d.Node.StateDir, "results", "*", "*"+d.Sandbox+"*"))
			equal(w.T, d.Name+": results of delegates", len(results), 1)
			for _, path := range results {
				w.Must(os.Remove(path))
			}
		}
	}
	w.Eventually(func() error { // the kernel takes its time
		for d, l := range w.look(pods) {
			if !d.has(noNetNS) && l.Ends > 0 {
				return fmt.Errorf("%s has host ends still", d.Name)
			}
		}
		return nil
	})
}

// giveBack brings back what is missing. The agent comes before NB, and has to wait for it.
func (w *delWorld) giveBack(node int) {
	if node&noAPI != 0 {
		w.Must(os.Rename(w.Manifests+".away", w.Manifests))
	}
	if node&noAgent != 0 {
		w.Must(w.Nodes[0].StartAgent(w.Ctx))
	}
	if node&noNB != 0 {
		w.Must(w.NB.Restart(w.Ctx))
	}
	w.makeNADs()
}

// look reads what is left of each pod. NB is read first, unless it is away: whose address is free there has neither host ends
// nor plugs any more, for the next one may have it already.
func (w *delWorld) look(pods []*deleted) map[*deleted]left {
	n := w.Nodes[0]
	rows := map[string]int{}
	if w.NB.Running() {
		out := w.NBCtl("--format=json", "--columns=external_ids", "list", "Logical_Switch_Port")
		rows = w.bySandbox(out, "ovn-multinet/sandbox")
	}
	out := w.VSCtl(n, "--format=json", "--columns=external_ids", "list", "Interface")
	plugs, state, all := w.bySandbox(out, "sandbox"), w.files(n.StateDir), map[*deleted]left{}
	for _, d := range pods {
		l := left{Rows: rows[d.Sandbox], Plugs: plugs[d.Sandbox], Lease: w.leaseOf(d) != ""}
		w.Must(n.Do(func() error { // a list of all may have gaps while links come and go
			for _, name := range []string{"net1", "net2"} {
				if _, err := os.Stat("/proc/sys/net/ipv4/conf/" + agentapi.HostVeth(d.Sandbox, name)); err == nil {
					l.Ends++
				}
			}
			return nil
		}))
		file := d.Sandbox + "@eth0"
		l.Attached, l.Release = slices.Contains(state, "attached/"+file), slices.Contains(state, "release/"+file)
		all[d] = l
		if w.NB.Running() && l.Rows == 0 && l.Ends+l.Plugs > 0 {
			w.T.Errorf("%s: its addresses are free before its ends are gone: %+v", d.Name, l)
		}
	}
	return all
}

// bySandbox counts the rows of a table of external_ids by the sandbox in them.
func (w *delWorld) bySandbox(out, key string) map[string]int {
	var table struct{ Data [][]json.RawMessage }
	w.Must(json.Unmarshal([]byte(out), &table))
	count := map[string]int{}
	for _, row := range table.Data {
		count[w.pairs(row[0])[key]]++
	}
	return count
}

// leaseOf is the file of the delegate's lease, "" without: host-local writes into it whose it is.
func (w *delWorld) leaseOf(d *deleted) string {
	for _, name := range w.files(w.leases) {
		text, err := os.ReadFile(filepath.Join(w.leases, name))
		if err == nil && strings.Contains(string(text), d.Sandbox) {
			return name
		}
	}
	return ""
}

// settles waits until of each pod there is what is to be.
func (w *delWorld) settles(pods []*deleted, want func(*deleted) left) {
	w.Eventually(func() error {
		var errs []error
		for d, got := range w.look(pods) {
			if want := want(d); got != want {
				errs = append(errs, fmt.Errorf("%s: left is %+v, want %+v", d.Name, got, want))
			}
		}
		return errors.Join(errs...)
	})
}

// atOnce holds what the plugin does by itself: the links, its journal and the delegates, before the DEL returns.
func (w *delWorld) atOnce(pods []*deleted) {
	for d, got := range w.look(pods) {
		want := left{Lease: !d.has(noJournal)}
		if !d.has(noJournal) && d.has(noNetNS) {
			want.Ends = 2
		}
		equal(w.T, d.Name+": ends, lease and journal right after its DEL", left{Ends: got.Ends, Lease: got.Lease, Attached: got.Attached}, want)
	}
}

// meanwhile is what is left as long as what is missing stays so.
func (d *deleted) meanwhile() left {
	l := left{Plugs: 2, Rows: 2, Lease: !d.has(noJournal)}
	served := d.has(noAgent) && d.has(noNB)
	switch {
	case d.has(noJournal):
		l.Release = !served
		if d.has(noAgent) {
			l.Plugs = 0
		}
		if served {
			l.Rows = 0
		}
	case d.has(noNetNS):
		l.Ends = 2 // for all that anybody knows it lives
	case served:
		l.Plugs, l.Rows = 0, 0 // the agent sees that it is dead
	}
	if !d.has(noNB) {
		l.Rows = 0 // nobody can look
	}
	return l
}

// rivals has each pod's rival try. It has no network but ours.
func (w *delWorld) rivals(pods []*deleted, try func(*delWorld, *deleted, error)) error {
	return each(pods, func(d *deleted) error {
		_, err := d.rival.Add(w.Ctx, lab.OnlyOurs(&types100.Result{CNIVersion: "1.0.0"}))
		try(w, d, err)
		return nil
	})
}

func (w *delWorld) heldRival(d *deleted, err error) {
	w.refused(err, conf.CodeInUse, "is in use by shop/"+d.Name)
}

// earlyRival tries while something is missing: it gets the address if that is free, and nothing else is in its way.
func (w *delWorld) earlyRival(d *deleted, err error) {
	switch free := d.meanwhile().Rows == 0; {
	case d.rival.Node == d.Node && !d.has(noAgent):
		w.refused(err, conf.CodeTryAgain, "agent at "+d.Node.AgentSocket)
	case !d.has(noNAD):
		w.clean(err)
	case !d.has(noNB):
		w.refused(err, conf.CodeTryAgain, "NB database")
	case !free:
		w.refused(err, conf.CodeInUse, "is in use by shop/"+d.Name)
	case !d.has(noAPI):
		w.refused(err, conf.CodeTryAgain, "network-status")
	case err != nil:
		w.T.Errorf("%s: its address is free, but %v", d.Name, err)
	}
}

// lateRival gets the address, and what is more the very row.
func (w *delWorld) lateRival(d *deleted, err error) {
	if err != nil {
		w.T.Errorf("%s: its address is not to be had afterwards: %v", d.Name, err)
		return
	}
	equal(w.T, d.Name+": the lease of its rival", w.portRow(d.rival, "net1").UUID, d.row)
}

// reported reads the agent's log: it names each container that the journal had lost, and no other.
func (w *delWorld) reported(pods []*deleted) {
	w.Eventually(func() error {
		var errs []error
		for _, d := range pods {
			said := w.saidLost(d.Pod)
			switch lost := !d.has(noJournal); {
			case lost && said == "":
				errs = append(errs, fmt.Errorf("%s: nobody says that its journal was lost", d.Name))
			case lost && (!strings.Contains(said, "level=WARN") || !strings.Contains(said, "pod="+d.String())):
				w.T.Errorf("%s: %s", d.Name, said)
			case !lost && said != "":
				w.T.Errorf("%s had a journal: %s", d.Name, said)
			}
		}
		return errors.Join(errs...)
	})
}

// endAll takes the rest away: nothing is left but the leases of which only a journal knew.
func (w *delWorld) endAll(pods []*deleted) {
	w.Must(each(pods, func(d *deleted) error {
		err := d.rival.Del(w.Ctx, lab.OnlyOurs(nil))
		return errors.Join(err, d.rival.RemoveNetNS(), d.rival.RemoveManifest(), d.RemoveManifest())
	}))
	w.AsBefore()
	for _, d := range pods {
		if lease := w.leaseOf(d); lease != "" {
			w.Must(os.Remove(filepath.Join(w.leases, lease)))
		}
	}
}

// impatient has the plugins of nodes give up soon that wait for what is away.
func (w *delWorld) impatient(node int, do func()) {
	for i, n := range w.Nodes {
		if before := n.PluginConf; node&noNB != 0 || i == 0 && node&noAgent != 0 {
			n.PluginConf = func(entry map[string]any) { before(entry); entry["timeout"] = "2s" }
			defer func() { n.PluginConf = before }()
		}
	}
	do()
}
