package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/fsnotify/fsnotify"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

// networkStatus is what a pod's network-status says of an interface; nil: nothing.
func (w *world) networkStatus(p *lab.Pod, name string) *interfaceStatus {
	var file struct {
		Status []*interfaceStatus `json:"network-status"`
	}
	text, err := os.ReadFile(filepath.Join(w.Manifests, p.UID+".status.json"))
	if err != nil || json.Unmarshal(text, &file) != nil {
		return nil
	}
	for _, s := range file.Status {
		if s.Interface == name {
			return s
		}
	}
	return nil
}

type interfaceStatus struct {
	Interface, MAC string
	IPs            []string
	MTU            int
}

// TestAttachStatusIsTrue: at the moment when the network-status of a running pod names an interface, its link is up, with
// the addresses, the MAC, the MTU and the routes, and OVN has its flows: KubeVirt reads the link at once. 100 times.
func TestAttachStatusIsTrue(t *testing.T) {
	const pods, rounds = 25, 4
	w := attachWorld(t, 1)
	n := w.Nodes[0]
	watcher, err := fsnotify.NewWatcher()
	w.Must(err)
	defer func() { w.Must(watcher.Close()) }()
	w.Must(watcher.Add(w.Manifests))
	peer := w.Attached(0, "peer", "blue")
	to := w.Links(peer)["net1"].IPs()[0]
	var all []*lab.Pod
	for i := range pods {
		all = append(all, w.Attached(0, fmt.Sprint("pod", i), "green"))
	}
	trueNow := func(p *lab.Pod, s *interfaceStatus) error {
		link := w.Exec(p, "ip", "-o", "link", "show", "x1")
		addresses, routes := w.Exec(p, "ip", "-o", "addr", "show", "x1"), w.Exec(p, "ip", "route", "show", "dev", "x1")
		for text, words := range map[string][]string{
			link:      {"LOWER_UP", s.MAC, fmt.Sprintf(" mtu %d ", s.MTU)},
			addresses: s.IPs, routes: {"10.1.0.0/16", "10.99.0.0/16"},
		} {
			for _, word := range words {
				if word == "" || !strings.Contains(text, word) {
					return fmt.Errorf("%s: the status says %+v, and the pod has not %q: %s", p, *s, word, text)
				}
			}
		}
		if len(s.IPs) == 0 {
			return fmt.Errorf("%s: no address in the status", p)
		}
		out := w.VSCtl(n, "--columns=external_ids", "find", "Interface", "name="+agentapi.HostVeth(p.Sandbox, "x1"))
		if !strings.Contains(out, `ovn-installed="true"`) {
			return fmt.Errorf("%s: OVN has no flows: %s", p, out)
		}
		return nil
	}
	for range rounds {
		for _, p := range all {
			w.edit(p, "green,blue@x1")
		}
		var checks sync.WaitGroup
		failed := make(chan error, pods)
		for waiting := slices.Clone(all); len(waiting) > 0; {
			select {
			case <-watcher.Events:
			case err := <-watcher.Errors:
				w.Must(err)
			case <-w.Ctx.Done():
				t.Fatalf("%d pods have no status: %v", len(waiting), w.Ctx.Err())
			}
			waiting = slices.DeleteFunc(waiting, func(p *lab.Pod) bool {
				s := w.networkStatus(p, "x1")
				if s != nil {
					checks.Go(func() { failed <- trueNow(p, s) })
				}
				return s != nil
			})
		}
		checks.Wait()
		close(failed)
		for err := range failed {
			if err != nil {
				t.Error(err)
			}
		}
		for _, p := range all {
			w.MustReach(p, to)
			w.edit(p, "green")
		}
		for _, p := range all {
			w.Eventually(func() error { return errors.Join(w.named(p, "net1"), w.noStatus(p, "x1")) })
		}
	}
	w.Over(append(all, peer)...)
}

// noStatus is an error as long as a pod's network-status names an interface.
func (w *world) noStatus(p *lab.Pod, name string) error {
	if w.networkStatus(p, name) != nil {
		return fmt.Errorf("the network-status of %s names %s", p, name)
	}
	return nil
}
