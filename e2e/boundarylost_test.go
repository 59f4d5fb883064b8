package e2e

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

// restoreNB has NB's server start on another file: a copy, or none for an empty database.
func (w *world) restoreNB(content []byte) {
	w.t.Helper()
	w.must(w.NB.Kill())
	w.must(os.RemoveAll(w.NBFile()))
	if content == nil {
		w.must(w.NewNBFile(w.ctx))
	} else {
		w.must(os.WriteFile(w.NBFile(), content, 0o600))
	}
	w.must(w.NB.Restart(w.ctx))
}

// rowsComeBack waits until the ports are as they were.
func (w *world) rowsComeBack(before map[string]string) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, soon)
	defer cancel()
	w.must(lab.Eventually(ctx, func() error {
		for name, want := range before {
			if got := w.rowText(name); got != want {
				return fmt.Errorf("port %s is\n%s\nwant\n%s", name, got, want)
			}
		}
		return nil
	}))
}

// rowText is a port's row, without what northd writes.
func (w *world) rowText(name string) string {
	w.t.Helper()
	out, err := w.NBCtl(w.ctx, "--columns=_uuid,name,addresses,port_security,options,external_ids", "find", "Logical_Switch_Port", "name="+name)
	w.must(err)
	return out
}

func (w *world) rowTexts(pods ...*lab.Pod) map[string]string {
	w.t.Helper()
	texts := map[string]string{}
	for _, p := range pods {
		for ifName := range w.links(p) {
			if strings.HasPrefix(ifName, "net") {
				name := fmt.Sprintf("%s/%s/%s", p.Namespace, p.Name, ifName)
				texts[name] = w.rowText(name)
			}
		}
	}
	return texts
}

// TestBoundaryNBIsReplaced: NB is emptied, or an older backup of it is restored, under running pods. Networks come back, then the
// pods' ports with the addresses that the pods have, and what the backup has of pods that are gone is released.
func TestBoundaryNBIsReplaced(t *testing.T) {
	t.Parallel()
	w := newWorld(t, lab.Options{Nodes: 2}, reconciling)
	w.network("wide", fmt.Sprintf(wide, ""))
	gone := w.attached(0, "gone", "blue,green")
	old := w.attached(0, "old", "blue,green,wide")
	backup, err := os.ReadFile(w.NBFile())
	w.must(err)
	w.end(gone)
	a, b := w.attached(0, "a", "blue,green,wide"), w.attached(1, "b", "blue,green,wide")
	before := w.rowTexts(old, a, b)
	for _, c := range []struct {
		name    string
		content []byte
	}{{"emptied", nil}, {"an older backup", backup}} {
		t.Run(c.name, func(t *testing.T) {
			w := w.sub(t)
			w.restoreNB(c.content)
			w.rowsComeBack(before)
			w.noRows(gone)
			for _, pair := range [][2]*lab.Pod{{a, b}, {b, old}, {old, a}} {
				for _, name := range []string{"net1", "net2", "net3"} {
					w.mustReach(pair[0], w.links(pair[1])[name].IPs()...)
				}
			}
			w.consistent(a, []string{"net1", "net2", "net3"})
			fresh := w.attached(1, "fresh", "blue,green,wide") // which takes nobody's address
			w.mustReach(fresh, w.links(a)["net1"].IPs()...)
			w.end(fresh)
		})
	}
	w.end(old, a, b)
	w.must(w.RemoveManifest("wide.yaml"))
	w.asBefore()
}

// TestBoundaryBridgeIsMadeAgain: br-int is deleted under running pods. ovn-controller makes the bridge again, and the agent adds the
// pods' OVS ports again.
func TestBoundaryBridgeIsMadeAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, lab.Options{Nodes: 2}, reconciling)
	a, b := w.attached(0, "a", "blue,green"), w.attached(1, "b", "blue,green")
	_, err := a.Node.VSCtl(w.ctx, "del-br", "br-int")
	w.must(err)
	w.eventually(func() error {
		out, err := a.Node.VSCtl(w.ctx, "--bare", "--columns=name", "find", "Interface", "external_ids:sandbox="+a.Sandbox)
		if n := len(strings.Fields(out)); err == nil && n != 2 {
			err = fmt.Errorf("%d OVS ports of %s, want 2", n, a)
		}
		return err
	})
	for _, name := range []string{"net1", "net2"} {
		w.mustReach(a, w.links(b)[name].IPs()...)
		w.mustReach(b, w.links(a)[name].IPs()...)
	}
	w.end(a, b)
	w.asBefore()
}
