package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
	"github.com/ovn-multinet/ovn-multinet/e2e/labtest"
)

// TestAttachFollowed: what is added at run time is under its policies from its first packet, is a backend of Services, and
// has the addresses of its IPAMClaim each time.
func TestAttachFollowed(t *testing.T) {
	w := attachWorld(t, 1)
	peer := w.Attached(0, "peer", "blue")
	empty := w.Base
	w.Base = w.Snapshot()
	w.part("policies", func(t *testing.T, w *world) {
		w.policy("closed", "blue", `{podSelector: {matchLabels: {app: db}}, policyTypes: [Ingress]}`)
		db := w.labelled(0, "db", "green", map[string]string{"app": "db"})
		stop, ended := make(chan struct{}), make(chan string, 1)
		go func() {
			answered := ""
			for {
				select {
				case <-stop:
					ended <- answered
					return
				default:
				}
				if out, err := peer.Exec(w.Ctx, "ping", "-c", "5", "-i", "0.01", "-W", "1", "10.1.9.9"); err == nil {
					answered = out
				}
			}
		}()
		w.edit(db, `[{"name":"green"},{"name":"blue","ips":["10.1.9.9"]}]`)
		w.changesTo(db, "net1", "net2")
		w.mustNotReach(peer, "net1", "10.1.9.9")
		close(stop)
		if out := <-ended; out != "" {
			t.Errorf("a pod was reached that a policy closes: %s", out)
		}
		w.Must(w.RemoveManifest(policyManifest("closed")))
		w.MustReach(peer, "10.1.9.9")
		w.Over(db)
	})
	w.part("Services", func(t *testing.T, w *world) {
		w.service("web", serviceYAML("web", "blue", "10.1.8.8", "{port: 80}", ""))
		web := w.Pod(0, "web", "green")
		web.Labels, web.Ready = map[string]string{"app": "web"}, "True"
		w.Must(web.WriteManifest())
		w.Add(web)
		w.edit(web, `[{"name":"green"},{"name":"blue","ips":["10.1.9.8"]}]`)
		w.changesTo(web, "net1", "net2")
		w.backendsAre("shop/web", "shop/blue", "tcp", "10.1.8.8:80", "10.1.9.8:80")
		w.edit(web, "green")
		w.changesTo(web, "net1")
		w.backendsAre("shop/web", "shop/blue", "tcp", "10.1.8.8:80")
		w.Must(w.RemoveManifest(serviceManifest("web")))
		w.Over(web)
	})
	w.part("IPAMClaims", func(t *testing.T, w *world) {
		w.NAD("vms", vmNetwork)
		w.Must(w.WriteManifest("claim.yaml", vmClaim))
		vm := w.Attached(0, "vm", "green")
		w.edit(vm, `[{"name":"green"},{"name":"vms","interface":"nic","ipam-claim-reference":"vm.net"}]`)
		w.Eventually(func() error { return w.named(vm, "net1", "nic") })
		addresses, mac := w.Links(vm)["nic"].Prefixes(), w.Links(vm)["nic"].MAC
		w.claimIs("vm", addresses)
		w.edit(vm, "green")
		w.Eventually(func() error { return w.named(vm, "net1") })
		other := w.Attached(0, "other", "vms")
		w.edit(vm, `[{"name":"green"},{"name":"vms","interface":"nic","ipam-claim-reference":"vm.net"}]`)
		w.Eventually(func() error { return w.named(vm, "net1", "nic") })
		equal(t, "addresses", w.Links(vm)["nic"].Prefixes(), addresses)
		equal(t, "MAC", w.Links(vm)["nic"].MAC, mac)
		w.MustReach(other, w.Links(vm)["nic"].IPs()...)
		w.End(vm, other)
		w.Must(w.RemoveManifest("claim.yaml"))
		w.Eventually(func() error {
			if n := w.heldRows(); n > 0 {
				return fmt.Errorf("NB has %d rows of IPAMClaims", n)
			}
			return nil
		})
		w.Must(w.RemoveManifest(labtest.NADFile("vms")))
		w.AsBefore()
	})
	w.Base = empty
	w.Over(peer)
}

// TestAttachCycles: many pods are edited at once, again and again, and nothing grows: no row, no file, no descriptor of the
// program, which runs the plugin in a process of its own each time.
func TestAttachCycles(t *testing.T) {
	const pods, cycles = 8, 5
	w := attachWorld(t, 1)
	n := w.Nodes[0]
	open := func() int {
		files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", n.Attach.Pid()))
		w.Must(err)
		return len(files)
	}
	once := w.Attached(0, "once", "blue")
	w.edit(once, "blue,green")
	w.changesTo(once, "net1", "net2")
	w.Over(once)
	before := open()
	var all sync.WaitGroup
	for i := range pods {
		p := w.Attached(0, fmt.Sprint("pod", i), "blue")
		all.Go(func() {
			for range cycles {
				w.edit(p, "blue,green@x1,six@x2")
				w.Eventually(func() error { return w.named(p, "net1", "x1", "x2") })
				w.edit(p, "blue")
				w.Eventually(func() error { return w.named(p, "net1") })
			}
			w.End(p)
		})
	}
	all.Wait()
	w.AsBefore()
	if after := open(); after > before {
		t.Errorf("the program has %d open files, and had %d", after, before)
	}
	attached, err := os.ReadDir(filepath.Join(n.StateDir, "attached"))
	w.Must(err)
	if names := slices.DeleteFunc(attached, func(f os.DirEntry) bool { return strings.HasPrefix(f.Name(), ".") }); len(names) > 0 {
		t.Errorf("the journal has %d files", len(names))
	}
}

// TestAttachHerd: pods that started without their networks get them, while a herd of other pods starts: none fails.
func TestAttachHerd(t *testing.T) {
	before, herd := 30, 30
	if text := os.Getenv("OVN_MULTINET_HEALED"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		before = n // the node has 254 addresses for both
	}
	w := attachWorld(t, 1)
	n := w.Nodes[0]
	n.PrimaryOnly = true
	var late, pods []*lab.Pod
	for i := range before {
		p := w.Pod(0, fmt.Sprint("late", i), "blue,green")
		p.Phase = "Running"
		w.Must(p.WriteManifest())
		w.Add(p)
		late = append(late, p)
	}
	n.PrimaryOnly = false
	var all sync.WaitGroup
	for i := range herd {
		p := w.Pod(0, fmt.Sprint("herd", i), "blue,green")
		pods = append(pods, p)
		all.Go(func() { w.Add(p) })
	}
	all.Wait()
	for _, p := range late {
		w.Eventually(func() error {
			if _, err := os.Stat(filepath.Join(w.Manifests, p.UID+".status.json")); err != nil {
				return err
			}
			return w.named(p, "net1", "net2")
		})
		if failed := w.events(p, "FailedAddingInterface"); len(failed) > 0 {
			t.Errorf("%s failed: %s", p, failed[0])
		}
	}
	w.Over(append(late, pods...)...)
}

// TestAttachOutside: an outside address follows the interface that a running pod gets, and ends with it.
func TestAttachOutside(t *testing.T) {
	t.Parallel()
	w := newOutsideWorld(t)
	w.network("hidden", outOf(1, ""))
	w.before = w.settled()
	n := w.Nodes[2]
	w.Must(n.StopAgent(w.Ctx))
	w.Must(n.StartAgent(w.Ctx, "OVN_MULTINET_ATTACH=true", "OVN_MULTINET_RECONCILE_PERIOD=2s"))
	w.Must(n.StartAttach(w.Ctx))
	fixed := []string{"192.0.2.17", "2001:db8::111"}
	web := w.Pod(2, "web", "")
	web.Phase = "Running"
	w.Must(web.WriteManifest())
	w.Add(web)
	web.Annotations = map[string]string{labtest.NetworksAnnotation: "hidden"}
	w.requests(web, `[{"interface":"net1","floating":"192.0.2.17,2001:db8::111"}]`)
	w.floats(web, fixed)
	w.requests(web, "")
	w.world.edit(web, "")
	w.changesTo(web)
	for _, a := range fixed {
		w.mustNotReach(w.host, "eth0", a)
	}
	w.End(web)
	w.endNetworks("hidden")
	w.asBeforeOutside()
}
