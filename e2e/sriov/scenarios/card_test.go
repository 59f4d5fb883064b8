//go:build sriov

package scenarios

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// vfInfo is what a physical function says of one of its virtual ones.
type vfInfo struct {
	MAC   string `json:"address"`
	VLANs []struct {
		VLAN int `json:"vlan"`
	} `json:"vlan_list"`
	Spoofchk bool `json:"spoofchk"`
	Trust    bool `json:"trust"`
	Rate     struct {
		Max int `json:"max_tx"`
	} `json:"rate"`
}

func (w *world) info(physical string, v vf) vfInfo {
	out := w.Exec(w.Nodes[0], "ip", "-json", "link", "show", physical)
	var links []struct {
		VFs []vfInfo `json:"vfinfo_list"`
	}
	w.Must(json.Unmarshal([]byte(out), &links))
	return links[0].VFs[v.Number]
}

// cardSettings are what the sriov plugin sets at the physical function for a virtual one.
var cardSettings = []struct {
	name, keys string
	element    string // more of the attachment's
	got        func(vfInfo) any
	want       any
}{
	{"vlan", `,"vlan":100`, "", func(i vfInfo) any { return i.VLANs[0].VLAN }, 100},
	{"spoofchk", `,"spoofchk":"off"`, "", func(i vfInfo) any { return i.Spoofchk }, false},
	{"trust", `,"trust":"on"`, "", func(i vfInfo) any { return i.Trust }, true},
	{"rates", `,"max_tx_rate":200`, "", func(i vfInfo) any { return i.Rate.Max }, 200},
	{"mac", `,"trust":"on"`, `,"mac":"02:00:00:00:aa:01"`, func(i vfInfo) any { return i.MAC }, "02:00:00:00:aa:01"},
}

// reach is the part of TestCard that is more than a setting.
const reach = "reach by vlan"

// TestCard has the sriov plugin set up a virtual function at its physical one, for as long as the pod has it.
func TestCard(t *testing.T) {
	w := newWorld(t).with("sriov")
	w.run(reach, vlanReach)
	for _, tt := range cardSettings {
		w.run(tt.name, func(w *world) {
			v := w.vfs[0][1]
			before := w.info("pf0", v)
			w.fast("fast0", pf0, tt.keys)
			p := w.fastPod("web", pf0, v, `[{"name":"fast0","ips":["192.0.2.1/24"]`+tt.element+`},{"name":"blue"}]`)
			equal(w.T, tt.name, tt.got(w.info("pf0", v)), tt.want)
			w.End(p)
			equal(w.T, "afterwards", w.info("pf0", v), before)
			w.isBack(v)
			w.AsBefore()
		})
	}
}

// vlanReach has pods on two cards reach each other within a VLAN, and not from another one.
func vlanReach(w *world) {
	w.fast("tagged0", pf0, `,"vlan":100`)
	w.fast("tagged1", pf1, `,"vlan":100`)
	w.fast("plain1", pf1, "")
	a := w.fastPod("a", pf0, w.vfs[0][0], `[{"name":"tagged0","ips":["192.0.2.1/24"]}]`)
	b := w.fastPod("b", pf1, w.vfs[1][0], `[{"name":"tagged1","ips":["192.0.2.2/24"]}]`)
	c := w.fastPod("c", pf1, w.vfs[1][1], `[{"name":"plain1","ips":["192.0.2.3/24"]}]`)
	w.MustReach(a, "192.0.2.2")
	for _, addr := range []string{"192.0.2.1", "192.0.2.2"} {
		if out, err := c.Exec(w.Ctx, "ping", "-c", "1", "-W", "2", addr); err == nil {
			w.T.Errorf("the pod without a VLAN reaches %s: %s", addr, out)
		}
	}
	w.Over(a, b, c)
}

// TestVFIO gives a pod a virtual function that has no driver of the kernel's network, but one for programs in the pod: no
// interface moves, and the pod's other networks are as ever.
func TestVFIO(t *testing.T) {
	withEach(t, func(w *world) {
		v := w.vfs[1][3]
		w.bind(v, "vfio-pci")
		w.NAD("dpdk", w.fastPlugin("dpdk", ""), resourceAnnotation, pf1)
		w.deviceInfo(pf1, v)
		p := w.Pod(0, "dpdk", "dpdk,blue")
		w.given(p, pf1, v)
		w.Add(p)
		equal(w.T, "interfaces", len(w.Links(p)), 2)
		s := w.Status(p)
		equal(w.T, "networks", []string{s[1].Name, s[2].Name}, []string{"shop/dpdk", "shop/blue"})
		if s[1].DeviceInfo == nil || s[1].DeviceInfo.Pci == nil || s[1].DeviceInfo.Pci.PciAddress != v.Address {
			w.T.Errorf("device information %+v", s[1].DeviceInfo)
		}
		w.ends(p) // the sriov plugin forgets by DEL that there was no interface
		driver, err := v.driver()
		w.Must(err)
		equal(w.T, "driver afterwards", driver, "vfio-pci")
		w.bind(v, "igbvf")
		w.rename(v)
		w.AsBefore()
	})
}

// bind gives a virtual function another driver, and waits for the interface if it is one of the kernel's network.
func (w *world) bind(v vf, driver string) {
	for _, step := range []struct{ file, text string }{
		{filepath.Join(pciDevices, v.Address, "driver_override"), driver},
		{filepath.Join(pciDevices, v.Address, "driver/unbind"), v.Address},
		{"/sys/bus/pci/drivers_probe", v.Address},
	} {
		w.Must(os.WriteFile(step.file, []byte(step.text), 0))
	}
	w.Eventually(func() error {
		got, err := v.driver()
		if err == nil && got != driver {
			err = errors.New("the driver is still " + got)
		}
		if err != nil || driver == "vfio-pci" {
			return err
		}
		name, err := v.inHost()
		if err == nil && name == "" {
			err = errors.New("no interface yet")
		}
		return err
	})
}
