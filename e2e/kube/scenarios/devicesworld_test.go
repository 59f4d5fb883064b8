//go:build kube

package scenarios

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/ovn-multinet/ovn-multinet/e2e/deviceplugin"
	"github.com/ovn-multinet/ovn-multinet/e2e/kube"
	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

// Paths are the node's.
const (
	resource    = "example.com/vf"
	devInfo     = "/run/k8s.cni.cncf.io/devinfo"
	calledLog   = "/var/log/recorder.log"
	stuckFile   = "/run/recorder-is-stuck" // as long as it is there, the delegate's DEL fails
	stuck       = "the device does not let go"
	kubeletRuns = "/var/lib/kubelet"
)

// offered devices are given to containers in this order; sorted as text they have another.
var offered = []string{"vf9", "vf10", "vf2", "vf1", "vf20", "vf3"}

// address is what the device plugin says of a device.
func address(id string) string { return fmt.Sprintf("0000:03:%02x.0", slices.Index(offered, id)) }

// deviceWorld is a cluster whose first node has devices.
type deviceWorld struct {
	*world
	node   *kube.Node
	plugin *deviceplugin.Plugin
}

func newDeviceWorld(t *testing.T) *deviceWorld {
	t.Helper()
	d := &deviceWorld{world: bareWorld(t, kube.Options{Nodes: 2, AllowedDelegates: []string{"recorder"}})}
	d.node = d.Node("node1")
	o := deviceplugin.Options{Resource: resource, Dir: d.node.Path(kubeletRuns + "/device-plugins"), InfoDir: d.node.Path(devInfo + "/dp")}
	for _, id := range offered {
		info := fmt.Sprintf(`{"type":"pci","version":"1.1.0","pci":{"pci-address":%q}}`, address(id))
		o.Devices = append(o.Devices, deviceplugin.Device{ID: id, Info: info})
	}
	var err error
	d.plugin, err = deviceplugin.Start(o)
	d.Must(err)
	t.Cleanup(func() {
		if err := d.plugin.Stop(); err != nil {
			t.Errorf("stop the device plugin: %v", err)
		}
	})
	d.Must(d.node.InstallRecorder())
	d.Must(d.InstallProduct(d.Ctx))
	recorder := fmt.Sprintf(`{"cniVersion":"1.0.0","type":"recorder","capabilities":{"deviceID":true},"log":"%s",`+
		`"result":{"cniVersion":"1.0.0"},"fail":{"DEL":{"code":119,"msg":"%s"}},"while":"%s"}`, calledLog, stuck, stuckFile)
	ofResource := strings.Replace(nad("vf", recorder), "metadata: {", "metadata: {annotations: {k8s.v1.cni.cncf.io/resourceName: "+resource+"}, ", 1)
	d.Must(d.Apply(d.Ctx, nad("blue", `{"type":"ovn-multinet","subnets":"10.1.0.0/16"}`)+ofResource))
	return d
}

// run runs a part, which begins with what the parts before have left: after one that failed none is tried.
func (d *deviceWorld) run(name string, part func(*deviceWorld)) {
	if d.T.Failed() {
		d.T.FailNow()
	}
	d.world.run(name, func(w *world) {
		sub := *d
		sub.world = w
		part(&sub)
	})
}

// takes is a pod with a container for each number, one or two, which asks for so many devices. It is the scheduler that finds
// the node.
func takes(name, networks string, numbers ...int) string {
	containers := ""
	for i, n := range numbers {
		containers += fmt.Sprintf("\n  - {name: %s, image: %s, imagePullPolicy: Never, args: [serve, -port, %q], resources: {limits: {%s: %d}}}",
			[]string{"main", "other"}[i], kube.PodtoolImage, fmt.Sprint(8080+i), resource, n)
	}
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata:
  name: %s
  namespace: default
  annotations: {k8s.v1.cni.cncf.io/networks: '%s'}
spec:
  terminationGracePeriodSeconds: 1
  containers:%s
---
`, name, networks, containers)
}

// kubelet asks kubelet's pod-resources API.
func (d *deviceWorld) kubelet(ask func(podresources.PodResourcesListerClient) error) {
	conn, err := grpc.NewClient("unix:"+d.node.Path(kubeletRuns+"/pod-resources/kubelet.sock"),
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	d.Must(err)
	defer conn.Close()
	d.Must(ask(podresources.NewPodResourcesListerClient(conn)))
}

// given are the devices that kubelet says the containers of a pod have, in the pod's order, each's sorted. It is nil for a pod
// that kubelet does not know.
func (d *deviceWorld) given(pod string) [][]string {
	var list *podresources.ListPodResourcesResponse
	d.kubelet(func(c podresources.PodResourcesListerClient) (err error) {
		list, err = c.List(d.Ctx, &podresources.ListPodResourcesRequest{})
		return err
	})
	for _, p := range list.GetPodResources() {
		if p.GetNamespace() != "default" || p.GetName() != pod {
			continue
		}
		byContainer := map[string][]string{}
		for _, c := range p.GetContainers() {
			byContainer[c.GetName()] = []string{}
			for _, of := range c.GetDevices() {
				if of.GetResourceName() == resource {
					byContainer[c.GetName()] = append(byContainer[c.GetName()], of.GetDeviceIds()...)
				}
			}
			slices.Sort(byContainer[c.GetName()])
		}
		var given [][]string
		for _, name := range slices.Sorted(maps.Keys(byContainer)) {
			given = append(given, byContainer[name])
		}
		return given
	}
	return nil
}

// offering waits until kubelet has all devices to give, those that pods have among them.
func (d *deviceWorld) offering() {
	d.Must(lab.Eventually(d.Ctx, func() error {
		var answer *podresources.AllocatableResourcesResponse
		d.kubelet(func(c podresources.PodResourcesListerClient) (err error) {
			answer, err = c.GetAllocatableResources(d.Ctx, &podresources.AllocatableResourcesRequest{})
			return err
		})
		var ids []string
		for _, of := range answer.GetDevices() {
			if of.GetResourceName() == resource {
				ids = append(ids, of.GetDeviceIds()...)
			}
		}
		if len(ids) != len(offered) {
			_, err := d.plugin.Registered()
			return fmt.Errorf("kubelet has the devices %q, want %q; of its registration the plugin says: %v", ids, offered, err)
		}
		return nil
	}))
}

// called is how the delegate was run.
type called struct {
	Command string
	Env     []string
	Stdin   struct {
		DeviceID, PCIBusID string
		RuntimeConfig      struct{ DeviceID string }
	}
}

func (c *called) env(key string) string {
	for _, kv := range c.Env {
		if value, ok := strings.CutPrefix(kv, key+"="); ok {
			return value
		}
	}
	return ""
}

// calls are the delegate's for a pod.
func (d *deviceWorld) calls(command, pod string) (calls []called) {
	text := d.Read(d.node.Path(calledLog))
	for line := range strings.Lines(string(text)) {
		var c called
		d.Must(json.Unmarshal([]byte(line), &c))
		args := strings.Split(c.env("CNI_ARGS"), ";")
		if c.Command != command || !slices.Contains(args, "K8S_POD_NAME="+pod) {
			continue
		}
		if !slices.Contains(args, "IgnoreUnknown=1") {
			d.T.Errorf("%s of pod %s with CNI_ARGS %q", command, pod, args)
		}
		if s := c.Stdin; s.PCIBusID != s.DeviceID || s.RuntimeConfig.DeviceID != s.DeviceID {
			d.T.Errorf("%s of pod %s has several devices: %+v", command, pod, s)
		}
		calls = append(calls, c)
	}
	return calls
}

// devicesOf are those that the delegate was told in its calls for a pod, by interface. All calls for one say the same.
func (d *deviceWorld) devicesOf(command, pod string) map[string]string {
	devices := map[string]string{}
	for _, c := range d.calls(command, pod) {
		ifName := c.env("CNI_IFNAME")
		if before, again := devices[ifName]; again && before != c.Stdin.DeviceID {
			d.T.Errorf("%s of %s of pod %s: device %s, before %s", command, ifName, pod, c.Stdin.DeviceID, before)
		}
		devices[ifName] = c.Stdin.DeviceID
	}
	return devices
}

// undone waits until the delegate was asked to take all that it made for a pod away, each with its own device.
func (d *deviceWorld) undone(pod string) {
	want := d.devicesOf("ADD", pod)
	d.Must(lab.Eventually(d.Ctx, func() error {
		if got := d.devicesOf("DEL", pod); !maps.Equal(got, want) {
			return fmt.Errorf("DEL of pod %s has the devices %v, ADD had %v", pod, got, want)
		}
		return nil
	}))
}

// files are those for device information: of the device plugin in "dp", of attachments in "cni".
func (d *deviceWorld) files(folder string) (names []string) {
	entries, err := os.ReadDir(d.node.Path(devInfo + "/" + folder))
	d.Must(err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// informed holds what a pod's network-status says of devices, and the files that say it to others, against the devices that
// the pod's interfaces have.
func (d *deviceWorld) informed(pod string, devices map[string]string) {
	id := d.sandboxID(d.node, "default/"+pod)
	for _, s := range d.status(pod) {
		said := ""
		if s.DeviceInfo != nil && s.DeviceInfo.Pci != nil {
			said = s.DeviceInfo.Pci.PciAddress
		}
		device, has := devices[s.Interface]
		path := d.node.Path(fmt.Sprintf("%s/cni/%s-%s-device.json", devInfo, id, s.Interface))
		text, err := os.ReadFile(path)
		if has != (err == nil) {
			d.T.Errorf("%s of pod %s: file of its device: %v", s.Interface, pod, err)
		}
		if want := address(device); has && (said != want || !strings.Contains(string(text), want)) || !has && said != "" {
			d.T.Errorf("%s of pod %s has device %q; its status says %q, the file %s", s.Interface, pod, device, said, text)
		}
	}
}

// sorted gives the n-th interface the n-th of all devices of a pod.
func sorted(given [][]string, interfaces ...string) map[string]string {
	devices := map[string]string{}
	for i, id := range slices.Sorted(slices.Values(slices.Concat(given...))) {
		if i < len(interfaces) {
			devices[interfaces[i]] = id
		}
	}
	return devices
}

// has holds what the delegate was told for a pod against what kubelet gave to the pod, as its n-th of so many interfaces.
func (d *deviceWorld) has(pod string, interfaces ...string) {
	given := d.given(pod)
	want, got := sorted(given, interfaces...), d.devicesOf("ADD", pod)
	if len(want) != len(interfaces) || !maps.Equal(got, want) {
		d.T.Errorf("pod %s has the devices %v, kubelet gave %q, so want %v", pod, got, given, want)
	}
	for _, container := range given {
		if asked := d.plugin.Allocated(); !slices.ContainsFunc(asked, func(ids []string) bool { return slices.Equal(ids, container) }) {
			d.T.Errorf("pod %s: kubelet gave %q to a container, and asked the device plugin for %q", pod, container, asked)
		}
	}
	d.informed(pod, got)
}
