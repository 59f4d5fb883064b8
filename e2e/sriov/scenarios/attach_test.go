//go:build sriov

package scenarios

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

// TestAmongOthers gives two pods a virtual function each, of different physical ones, beside Flannel and OVN: all work, and
// all go with the pods, though kubelet has forgotten them by then.
func TestAmongOthers(t *testing.T) {
	withEach(t, func(w *world) {
		w.fast("fast0", pf0, "")
		w.fast("fast1", pf1, "")
		w.deviceInfo(pf0, w.vfs[0][1])
		other := w.Attached(1, "other", "blue")
		a := w.fastPod("a", pf0, w.vfs[0][1], `[{"name":"fast0","ips":["192.0.2.1/24"]},{"name":"blue"}]`)
		b := w.fastPod("b", pf1, w.vfs[1][2], `[{"name":"fast1","ips":["192.0.2.2/24"]}]`)
		equal(w.T, "interfaces of a", len(w.Links(a)), 3)
		equal(w.T, "addresses", w.Links(a)["net1"].IPs(), []string{"192.0.2.1"})

		w.MustReach(a, "192.0.2.2") // from one card to the other
		w.Must(lab.Transfer(a, b, "192.0.2.2"))
		w.MustReach(a, w.Links(other)["net1"].IPs()...) // through OVN
		w.MustReach(a, w.Links(other)["eth0"].IPs()...) // through Flannel
		w.MustReach(other, w.Links(a)["net2"].IPs()...)
		s := w.Status(a)
		equal(w.T, "networks", []string{s[0].Name, s[1].Name, s[2].Name}, []string{"cbr0", "shop/fast0", "shop/blue"})
		equal(w.T, "addresses in the status", s[1].IPs, []string{"192.0.2.1"})
		equal(w.T, "mac in the status", s[1].Mac, w.Links(a)["net1"].MAC)
		if s[1].DeviceInfo == nil || s[1].DeviceInfo.Pci == nil || s[1].DeviceInfo.Pci.PciAddress != w.vfs[0][1].Address {
			w.T.Errorf("device information %+v", s[1].DeviceInfo)
		}
		w.Must(a.Check(w.Ctx))

		for _, p := range []*lab.Pod{a, b} {
			w.kubelet.Take(p.Namespace, p.Name)
		}
		w.End(other, a, b)
		w.isBack(w.vfs[0][1])
		w.isBack(w.vfs[1][2])
		w.AsBefore()
	})
}

// deviceInfo writes what a device plugin says of a device, until the scenario's end.
func (w *world) deviceInfo(resource string, v vf) {
	const dir = "/var/run/k8s.cni.cncf.io/devinfo/dp"
	w.Must(os.MkdirAll(dir, 0o755))
	path := filepath.Join(dir, strings.ReplaceAll(resource, "/", "-")+"-"+v.Address+"-device.json")
	w.Must(os.WriteFile(path, fmt.Appendf(nil, `{"type":"pci","version":"1.1.0","pci":{"pci-address":"%s"}}`, v.Address), 0o644))
	w.T.Cleanup(func() { _ = os.Remove(path) })
}

// TestTwoOfOneResource gives a pod of two containers two virtual functions in an order that is not theirs: the n-th of them,
// sorted, is the n-th attachment's, unless the attachment asks for a certain one.
func TestTwoOfOneResource(t *testing.T) {
	withEach(t, func(w *world) {
		w.fast("fast0", pf0, "")
		first, second := w.vfs[0][0], w.vfs[0][2]
		for _, tt := range []struct {
			name, deviceID string
			want           []vf
		}{
			{"in order", "", []vf{first, second}},
			{"asked for", first.Address, []vf{second, first}},
		} {
			last := `{"name":"fast0","ips":["198.51.100.1/24"]}`
			if tt.deviceID != "" {
				last = fmt.Sprintf(`{"name":"fast0","ips":["198.51.100.1/24"],"deviceID":"%s"}`, tt.deviceID)
			}
			p := w.Pod(0, "two", `[{"name":"fast0","ips":["192.0.2.1/24"]},{"name":"blue"},`+last+`]`)
			w.kubelet.Give("shop", "two", map[string][]string{pf0: {second.Address}}, map[string][]string{pf0: {first.Address}})
			w.Add(p)
			w.has(p, "net1", tt.want[0])
			w.has(p, "net3", tt.want[1])
			w.Over(p)
		}
	})
}

// TestOneCard has two virtual functions of one physical one speak with each other, which the card itself switches.
func TestOneCard(t *testing.T) {
	withEach(t, func(w *world) {
		w.fast("fast0", pf0, "")
		a := w.fastPod("a", pf0, w.vfs[0][0], `[{"name":"fast0","ips":["192.0.2.1/24"]}]`)
		b := w.fastPod("b", pf0, w.vfs[0][3], `[{"name":"fast0","ips":["192.0.2.2/24"]}]`)
		w.MustReach(a, "192.0.2.2")
		w.MustReach(b, "192.0.2.1")
		w.Over(a, b)
	})
}

// TestTwoAtOnce attaches and detaches pods at the same time.
func TestTwoAtOnce(t *testing.T) {
	withEach(t, func(w *world) {
		w.fast("fast0", pf0, "")
		var pods []*lab.Pod
		for i := range 2 {
			p := w.Pod(0, fmt.Sprintf("at-once-%d", i), fmt.Sprintf(`[{"name":"fast0","ips":["192.0.2.%d/24"]},{"name":"blue"}]`, i+1))
			w.given(p, pf0, w.vfs[0][i])
			pods = append(pods, p)
		}
		var all errgroup.Group
		for _, p := range pods {
			all.Go(func() error {
				_, err := p.Add(w.Ctx)
				return err
			})
		}
		w.Must(all.Wait())
		for i, p := range pods {
			w.has(p, "net1", w.vfs[0][i])
		}
		w.MustReach(pods[0], "192.0.2.2")
		for _, p := range pods {
			all.Go(func() error { return p.Close(w.Ctx) })
		}
		w.Must(all.Wait())
		w.AsBefore()
	})
}

// TestExhaustion wants more than there is: code 105, and nothing was made.
func TestExhaustion(t *testing.T) {
	withEach(t, func(w *world) {
		w.fast("fast0", pf0, "")
		one := w.vfs[0][0]
		p := w.Pod(0, "greedy", `[{"name":"blue"},{"name":"fast0","ips":["192.0.2.1/24"]},{"name":"fast0","ips":["198.51.100.1/24"]}]`)
		w.given(p, pf0, one)
		w.refused(w.TryAdd(p), 105, "interface net3: network shop/fast0", "the pod has 1 of resource "+pf0+", and 2 of its attachments take one")
		w.isBack(one)
		equal(w.T, "interfaces", len(w.Links(p)), 1) // the first one, which the runtime's DEL takes
		w.Over(p)

		holder := w.fastPod("holder", pf0, one, `[{"name":"fast0","ips":["192.0.2.1/24"]}]`)
		p = w.Pod(0, "late", `[{"name":"fast0","ips":["192.0.2.2/24"]}]`)
		w.given(p, pf0, one)
		w.refused(w.TryAdd(p), 105, one.Address+" is allocated to", "shop/holder")
		w.End(p)
		w.has(holder, "net1", one)
		w.Over(holder)
	})
}
