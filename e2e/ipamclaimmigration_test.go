package e2e

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

// migrations is how many times the machine migrates; OVN_MULTINET_MIGRATIONS sets more.
func migrations() int {
	if n, err := strconv.Atoi(os.Getenv("OVN_MULTINET_MIGRATIONS")); err == nil {
		return n
	}
	return 6
}

// lostAtMost is how many answers a migration may cost, at 100 requests a second: two seconds, as drops says why. A target
// that does not get the machine's packets has no answers at all.
const lostAtMost = 10 * drops

// sharedBy waits until the machine's port is that of a pod, bound on these nodes.
func (w *world) sharedBy(p *lab.Pod, nodes ...*lab.Node) {
	w.T.Helper()
	var chassis []string
	for _, n := range nodes {
		chassis = append(chassis, n.SystemID)
	}
	strategy := " "
	if len(nodes) > 1 {
		strategy = " rarp"
	}
	want := p.Name + " " + strings.Join(chassis, ",") + strategy
	w.Eventually(func() error {
		row := w.NBCtl("--bare", "--columns=external_ids,options", "find", "Logical_Switch_Port", `name="shop/vm.net/ipam:claim"`)
		value := func(key string) string {
			_, rest, _ := strings.Cut(row, key+"=")
			return strings.TrimSpace(strings.FieldsFunc(rest+" ", func(r rune) bool { return r == ' ' || r == '\n' })[0])
		}
		got := value("ovn-multinet/pod") + " " + value("requested-chassis") + " "
		if strings.Contains(row, "activation-strategy=") {
			got += value("activation-strategy")
		}
		if got != want {
			return fmt.Errorf("the port is of %s, want %s", got, want)
		}
		return nil
	})
}

// lost ends a stream and returns how many requests have no answer, without those that were on their way in the end.
func (p *pinger) lost() int {
	p.goesOnBy(50)
	p.w.Must(unix.Kill(p.proc.Pid(), unix.SIGINT))
	seen := map[int]bool{}
	last := 0
	for _, seq := range p.answers() {
		seen[seq], last = true, max(last, seq)
	}
	return last - len(seen)
}

// goesOnBy waits for that many answers more.
func (p *pinger) goesOnBy(more int) {
	p.w.T.Helper()
	before := len(p.answers())
	p.w.Eventually(func() error {
		if now := len(p.answers()); now < before+more {
			return fmt.Errorf("%s: %d answers, then %d", p.what, before, now)
		}
		return nil
	})
}

// TestMigration: a virtual machine migrates live, to and fro. The target's pod neither gets nor sends anything until the
// guest runs there, and the machine is reached all the time. A target that ends before the guest runs there leaves
// everything as it was; a source that is lost without a DEL gives the port to the target.
func TestMigration(t *testing.T) {
	w := parallelWorld(t, lab.Options{Nodes: 3}, reconciling)
	w.network("vms", vmNetwork)
	w.Base = w.Snapshot()
	w.Must(w.WriteManifest("claim.yaml", vmClaim))
	client := w.Attached(2, "client", "vms")
	source := w.labelled(0, "launcher-0", vmRequest, map[string]string{"app": "vm"})
	link := w.Links(source)["net1"]
	from := w.wiredByKubeVirt(source, link)
	from.runs()
	w.MustReach(client, link.IPs()...)
	target := func(node int, name string) *lab.Pod {
		t.Helper()
		return w.labelled(node, name, vmRequest, map[string]string{"app": "vm", conf.MigrationLabel: name})
	}
	stream := func(addr string) *pinger {
		t.Helper()
		w.MustReach(client, addr)
		proc, err := client.Start(w.Ctx, "ping", "-n", "-i", "0.01", addr)
		w.Must(err)
		p := &pinger{w, proc, "ping from client to " + addr}
		p.goesOnBy(50)
		return p
	}
	for i := 1; i <= migrations(); i++ {
		node := i % 2
		running := stream(link.IPs()[i/2%2])
		to := target(node, fmt.Sprint("launcher-", i))
		w.sharedBy(source, source.Node, w.Nodes[node])
		next := w.wiredByKubeVirt(to, link)
		running.goesOnBy(50)
		if got := next.received(); got > 0 {
			t.Errorf("%s has got %d packets before it runs", next, got)
		}
		next.arrives()
		from.pauses()
		running.goesOnBy(100)
		w.End(source)
		w.sharedBy(to, w.Nodes[node])
		lost := running.lost()
		t.Logf("migration %d: %d of %d answers are missing", i, lost, len(running.answers()))
		if lost > lostAtMost {
			t.Errorf("migration %d: %d answers are missing", i, lost)
		}
		source, from = to, next
		w.claimIs(source.Name, link.Prefixes())
	}
	w.part("a target that ends before", func(t *testing.T, w *world) {
		running := stream(link.IPs()[0])
		to := target(1-migrations()%2, "failed")
		w.sharedBy(source, source.Node, to.Node)
		w.End(to)
		w.sharedBy(source, source.Node)
		if lost := running.lost(); lost > lostAtMost {
			t.Errorf("%d answers are missing", lost)
		}
	})
	w.part("the guest has arrived, says KubeVirt", func(t *testing.T, w *world) {
		running := stream(link.IPs()[0])
		to := target(1-migrations()%2, "arrived")
		w.sharedBy(source, source.Node, to.Node)
		next := w.wiredByKubeVirt(to, link)
		next.arrives()
		from.pauses()
		to.Annotations[conf.MigratedAnnotation] = "2026-01-02T03:04:05Z"
		w.Must(to.WriteManifest())
		w.sharedBy(to, to.Node)
		w.End(source)
		w.sharedBy(to, to.Node)
		lost := running.lost()
		t.Logf("%d answers are missing", lost)
		if lost > lostAtMost {
			t.Errorf("%d answers are missing", lost)
		}
		source, from = to, next
	})
	w.part("a source that is lost", func(t *testing.T, w *world) {
		to := target(migrations()%2, "survivor")
		w.sharedBy(source, source.Node, to.Node)
		w.Must(source.Node.KillAgent())
		from.pauses()
		w.Must(source.RemoveManifest())
		running := w.wiredByKubeVirt(to, link)
		running.runs()
		w.sharedBy(to, to.Node)
		w.MustReach(client, link.IPs()...)
		w.Must(source.Node.StartAgent(w.Ctx))
		w.End(source)
		w.sharedBy(to, to.Node)
		w.MustReach(client, link.IPs()...)
		source = to
	})
	w.End(source, client)
	w.Must(w.RemoveManifest("claim.yaml"))
	w.AsBefore()
}

// TestMigrationOnLocalnet: a virtual machine on a physical network migrates, and a machine outside reaches it all the time. When
// KubeVirt says that the guest has arrived, the port becomes the target's before the source's pod ends, also if the target's
// agent was away then.
func TestMigrationOnLocalnet(t *testing.T) {
	t.Parallel()
	w := newWorld(t, lab.Options{Nodes: 2, Physical: provider}, func(l *lab.Lab) {
		reconciling(l)
		controllerConfig(t, l, grantedVLANs)
	})
	w.network("vms", strings.Replace(onVLAN(100, ""), `"type"`, `"cniVersion":"1.0.0","name":"vm-net","allowPersistentIPs":true,"type"`, 1))
	host := w.outside("host", 100, "10.50.0.9/24", "fd50::9/64")
	w.Must(w.WriteManifest("claim.yaml", vmClaim))
	source := w.labelled(0, "launcher-0", vmRequest, map[string]string{"app": "vm"})
	link := w.Links(source)["net1"]
	from := w.wiredByKubeVirt(source, link)
	from.runs()
	w.MustReach(host, link.IPs()...)
	for i := 1; i <= migrations(); i++ {
		proc, err := host.Start(w.Ctx, "ping", "-n", "-i", "0.01", link.IPs()[i/2%2])
		w.Must(err)
		running := &pinger{w, proc, "ping from host"}
		running.goesOnBy(50)
		to := w.labelled(i%2, fmt.Sprint("launcher-", i), vmRequest, map[string]string{"app": "vm", conf.MigrationLabel: "job"})
		w.sharedBy(source, source.Node, to.Node)
		next := w.wiredByKubeVirt(to, link)
		from.pauses()
		next.arrives()
		here := running.answers()
		to.Annotations[conf.MigratedAnnotation] = "2026-01-02T03:04:05Z"
		if i == 1 {
			w.Must(to.Node.KillAgent())
			w.Must(to.WriteManifest())
			w.Must(to.Node.StartAgent(w.Ctx))
		}
		w.Must(to.WriteManifest())
		w.sharedBy(to, to.Node)
		running.goesOnBy(100)
		w.End(source)
		w.sharedBy(to, to.Node)
		running.lost()
		lost, last := 0, here[len(here)-1]
		for _, seq := range running.answers() {
			if seq > last+1 {
				lost += seq - last - 1
			}
			last = max(last, seq)
		}
		t.Logf("migration %d: %d answers are missing after the guest has arrived", i, lost)
		if lost > lostAtMost {
			t.Errorf("migration %d: %d answers are missing after the guest has arrived", i, lost)
		}
		source, from = to, next
		w.claimIs(source.Name, link.Prefixes())
	}
	w.End(source)
	w.Must(w.RemoveManifest("claim.yaml"))
	w.endNetworks("vms")
	w.asBeforeOutside()
}
