//go:build sriov

package scenarios

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

// The resources that the virtual functions of the two physical ones are given to pods as.
const (
	pf0 = "example.com/pf0"
	pf1 = "example.com/pf1"
)

const pciDevices = "/sys/bus/pci/devices"

// vf is a virtual function: its address on the PCI bus stays whatever becomes of it.
type vf struct {
	Address string
	Name    string // in the host, as it was made
	Number  int    // as its physical function counts
}

// findVFs reads them in the order of their numbers.
func findVFs(physical string) (found []vf, err error) {
	links, err := filepath.Glob(filepath.Join("/sys/class/net", physical, "device/virtfn*"))
	if err != nil {
		return nil, err
	}
	for i := range links {
		target, err := os.Readlink(filepath.Join("/sys/class/net", physical, "device", fmt.Sprintf("virtfn%d", i)))
		if err != nil {
			return nil, err
		}
		found = append(found, vf{Address: filepath.Base(target), Name: fmt.Sprintf("%sv%d", physical, i), Number: i})
	}
	return found, nil
}

// inHost is the name of the function's interface in the host, "" when it is elsewhere.
func (v vf) inHost() (string, error) {
	entries, err := os.ReadDir(filepath.Join(pciDevices, v.Address, "net"))
	if err != nil || len(entries) == 0 {
		return "", err
	}
	return entries[0].Name(), nil
}

// driver is the name of the function's driver.
func (v vf) driver() (string, error) {
	target, err := os.Readlink(filepath.Join(pciDevices, v.Address, "driver"))
	return filepath.Base(target), err
}

// withEach runs a scenario with each plugin that gives virtual functions to pods.
func withEach(t *testing.T, scenario func(w *world)) {
	t.Run("host-device", func(t *testing.T) { scenario(newWorld(t).with("host-device")) })
	if !haveSRIOV() {
		notRun(t.Name() + "/sriov")
		return
	}
	t.Run("sriov", func(t *testing.T) { scenario(newWorld(t).with("sriov")) })
}

func haveSRIOV() bool { return os.Getenv("SRIOV_CNI") != "" }

// notRun tells the runner of a scenario that is not run, and is none that passed.
func notRun(name string) { fmt.Printf("not run: %s: needs SRIOV_CNI=/path/to/sriov\n", name) }

func (w *world) with(plugin string) *world {
	w.plugin = plugin
	return w
}

// run runs a part of a scenario in the same world.
func (w *world) run(name string, part func(w *world)) {
	plugin := w.plugin
	w.Part(name, func(t *testing.T) { part(newWorld(t).with(plugin)) })
}

// fast writes a NAD whose plugin gives a pod a device of a resource; keys are more of its configuration, each after a comma.
func (w *world) fast(name, resource, keys string) {
	w.NAD(name, w.fastPlugin(name, `,"ipam":{"type":"static"}`+keys), resourceAnnotation, resource)
}

func (w *world) fastPlugin(name, keys string) string {
	return fmt.Sprintf(`{"cniVersion":"1.0.0","name":"%s","type":"%s","capabilities":{"ips":true,"mac":true}%s}`, name, w.plugin, keys)
}

// given says that kubelet gave the pod's one container devices of a resource.
func (w *world) given(p *lab.Pod, resource string, devices ...vf) {
	var ids []string
	for _, v := range devices {
		ids = append(ids, v.Address)
	}
	w.kubelet.Give(p.Namespace, p.Name, map[string][]string{resource: ids})
}

// fastPod attaches a pod with one virtual function on its first network, and all that networks says beside it.
func (w *world) fastPod(name, resource string, v vf, networks string) *lab.Pod {
	p := w.Pod(0, name, networks)
	w.given(p, resource, v)
	w.Add(p)
	w.has(p, "net1", v)
	return p
}

// has asserts that a pod's interface is that virtual function, and that the host has it no more.
func (w *world) has(p *lab.Pod, ifName string, v vf) {
	out := w.Exec(p, "ethtool", "-i", ifName)
	if !strings.Contains(out, "bus-info: "+v.Address+"\n") || !strings.Contains(out, "driver: igbvf\n") {
		w.T.Errorf("%s of %s is not %s:\n%s", ifName, p, v.Address, out)
	}
	host, err := v.inHost()
	w.Must(err)
	equal(w.T, v.Address+" in the host", host, "")
}

// isBack asserts that the host has the virtual function under its own name.
func (w *world) isBack(v vf) {
	host, err := v.inHost()
	w.Must(err)
	equal(w.T, v.Address+" in the host", host, v.Name)
}

// refused asserts an error's code and words.
func (w *world) refused(err error, code uint, words ...string) {
	var e *types.Error
	if !errors.As(err, &e) || e.Code != code {
		w.T.Fatalf("got error %v, want code %d", err, code)
	}
	for _, word := range words {
		if !strings.Contains(e.Msg+" "+e.Details, word) {
			w.T.Errorf("the error does not say %q: %s; %s", word, e.Msg, e.Details)
		}
	}
}
