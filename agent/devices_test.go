package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/node/journal"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
)

// kubelet answers in kubelet's place what the pod shop/web has.
type kubelet struct {
	podresources.UnimplementedPodResourcesListerServer
	containers []*podresources.ContainerResources
	err        error

	mu    sync.Mutex
	asked int
}

func (k *kubelet) List(context.Context, *podresources.ListPodResourcesRequest) (*podresources.ListPodResourcesResponse, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.asked++
	if k.err != nil {
		return nil, k.err
	}
	other := &podresources.ContainerResources{Devices: []*podresources.ContainerDevices{{ResourceName: vf, DeviceIds: []string{"another's"}}}}
	return &podresources.ListPodResourcesResponse{PodResources: []*podresources.PodResources{
		{Namespace: "depot", Name: "web", Containers: []*podresources.ContainerResources{other}}, {Namespace: "shop", Name: "web", Containers: k.containers},
	}}, nil
}

func (k *kubelet) questions() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.asked
}

const (
	vf = "a.example/vf"
	vg = "a.example/vg"
)

// kubelet runs until the test's end; each container of the pod has devices, written "resource: id id".
func (r *rig) kubelet(containers ...string) *kubelet {
	r.t.Helper()
	k := &kubelet{}
	for _, line := range containers {
		resource, ids, _ := strings.Cut(line, ": ")
		k.containers = append(k.containers, &podresources.ContainerResources{Devices: []*podresources.ContainerDevices{{ResourceName: resource, DeviceIds: strings.Fields(ids)}}})
	}
	l, err := net.Listen("unix", r.conf.PodResources)
	r.must(err)
	server := grpc.NewServer()
	podresources.RegisterPodResourcesListerServer(server, k)
	var done sync.WaitGroup
	done.Go(func() { _ = server.Serve(l) })
	r.t.Cleanup(func() { server.Stop(); done.Wait() })
	return k
}

// newDeviceRig has the networks vf and vg of a resource each, and ext of none.
func newDeviceRig(t *testing.T) *rig {
	t.Helper()
	r := newRig(t)
	r.conf.PodResources = filepath.Join(filepath.Dir(r.conf.Socket), "kubelet.sock")
	r.source.nads["ext"] = testNAD{Config: ext}
	r.source.nads["vf"] = testNAD{Config: `{"cniVersion":"1.0.0","name":"v","plugins":[{"type":"sriov","vlan":7},{"type":"tuning"}]}`, Resource: vf}
	r.source.nads["vg"] = testNAD{Config: `{"cniVersion":"1.0.0","name":"v","type":"host-device"}`, Resource: vg}
	return r
}

// attachedTo is an entry of the plugin's journal: a container of the pod shop/old with a device of vf, or of vg
// behind a resource's name.
func (r *rig) attachedTo(container, device string) *journal.Summary {
	resource, id, found := strings.Cut(device, " ")
	if !found {
		resource, id = vf, device
	}
	a := &journal.Summary{Sandbox: agentapi.Sandbox{ContainerID: container, Interface: "eth0", Conflist: "cbr0", Namespace: "shop", Pod: "old", UID: "u-0"}, Plan: &agentapi.Plan{}}
	a.Plan.Delegates = []agentapi.Delegate{{Name: "net1", Network: "shop/ext"}, {Name: "net2", Network: "shop/vf", Device: &agentapi.Device{Resource: resource, ID: id}, Position: 1}}
	return a
}

// write puts a file into the state folder.
func (r *rig) write(text string, path ...string) {
	r.t.Helper()
	file := filepath.Join(append([]string{r.conf.StateDir}, path...)...)
	r.must(os.MkdirAll(filepath.Dir(file), 0o700))
	r.must(os.WriteFile(file, []byte(text), 0o600))
}

func (r *rig) writeAttached(all ...*journal.Summary) {
	r.t.Helper()
	for _, a := range all {
		r.write(string(marshal(r.t, a)), journal.EntryDir, a.Sandbox.ID())
	}
}

// given writes the devices of a plan's delegates.
func given(p *agentapi.Plan) string {
	var words []string
	for _, d := range p.Delegates {
		word := d.Name
		if d.Device != nil {
			word += " " + d.Device.Resource + " " + d.Device.ID
		}
		words = append(words, word)
	}
	return strings.Join(words, "; ")
}

// The devices of all the pod's containers go to its attachments, in their order, into the plan and into the plugins'
// configuration; networks of no resource are as they were.
func TestDevicesInAPlan(t *testing.T) {
	r := newDeviceRig(t)
	k := r.kubelet(vf+": d9 d3", vg+": e1", vf+": d1")
	r.start()
	p, err := r.planFor("c1", "vf,blue,ext,vg,vf")
	r.must(err)
	list := func(id string) json.RawMessage {
		return json.RawMessage(fmt.Sprintf(`{"cniVersion":"1.0.0","name":"v","plugins":[{"deviceID":%q,"pciBusID":%q,"type":"sriov","vlan":7},{"type":"tuning"}]}`, id, id))
	}
	capability := func(id string) map[string]json.RawMessage {
		return map[string]json.RawMessage{"deviceID": json.RawMessage(`"` + id + `"`)}
	}
	want := []agentapi.Delegate{
		{Name: "net1", Network: "shop/vf", Conflist: list("d1"), Capabilities: capability("d1"), Device: &agentapi.Device{Resource: vf, ID: "d1"}},
		{Name: "net3", Network: "shop/ext", Conflist: json.RawMessage(`{"cniVersion":"1.0.0","name":"e","plugins":[{"capabilities":{"mac":true},"type":"bridge"}]}`), Position: 2},
		{Name: "net4", Network: "shop/vg", Conflist: json.RawMessage(`{"cniVersion":"1.0.0","name":"v","plugins":[{"deviceID":"e1","pciBusID":"e1","type":"host-device"}]}`),
			Capabilities: capability("e1"), Device: &agentapi.Device{Resource: vg, ID: "e1"}, Position: 3},
		{Name: "net5", Network: "shop/vf", Conflist: list("d3"), Capabilities: capability("d3"), Device: &agentapi.Device{Resource: vf, ID: "d3"}, Position: 4},
	}
	for i := range want {
		want[i].Digest = p.Interfaces[0].Digest // the requests ask for nothing but a network
	}
	if !reflect.DeepEqual(p.Delegates, want) || len(p.Interfaces) != 1 || p.Interfaces[0].Name != "net2" {
		t.Errorf("got  %s\nwant %s, and net2 on blue", marshal(t, p), marshal(t, want))
	}
	if n := k.questions(); n != 1 {
		t.Errorf("kubelet was asked %d times", n)
	}
}

// Kubelet is not asked for pods without networks of a resource: those start without it.
func TestKubeletIsAskedForDevicesAlone(t *testing.T) {
	r := newDeviceRig(t)
	k := r.kubelet(vf + ": d1")
	r.start()
	p, err := r.planFor("c1", "blue,ext")
	r.must(err)
	if got := given(p); got != "net2" || len(p.Interfaces) != 1 {
		t.Errorf("delegates %s, interfaces %+v", got, p.Interfaces)
	}
	if n := k.questions(); n != 0 {
		t.Errorf("kubelet was asked %d times", n)
	}
}

func TestDevicesThatAreHeld(t *testing.T) {
	tests := []struct {
		name     string
		journal  func(r *rig)
		networks string
		want     string
		refused  string // behind "network shop/vf: "
	}{
		{"none", func(*rig) {}, "vf,vf", "net1 a.example/vf d1; net2 a.example/vf d2", ""},
		{"another container's", func(r *rig) { r.writeAttached(r.attachedTo("c9", "d1")) }, "vf", "net1 a.example/vf d2", ""},
		{"another container's, of another resource", func(r *rig) { r.writeAttached(r.attachedTo("c9", vg+" d1")) }, "vf", "net1 a.example/vf d1", ""},
		{"too many", func(r *rig) { r.writeAttached(r.attachedTo("c9", "d1")) }, "vf,vf,vf", "", "no device of resource a.example/vf is free: d1 is allocated to container c9 of pod shop/old"},
		{"its own", func(r *rig) { r.writeAttached(r.attachedTo("c1", "d1")) }, "vf,vf", "net1 a.example/vf d1; net2 a.example/vf d2", ""},
		{"one that would not go", func(r *rig) {
			a := r.attachedTo("c9", "d1")
			a.FailedAttempts = 3
			r.writeAttached(a)
		}, "vf", "net1 a.example/vf d2", ""},
		{"one that was given up", func(r *rig) {
			a := r.attachedTo("c9", "d1")
			a.FailedAttempts = 3
			r.writeAttached(a)
			r.write("", journal.ReleaseDir, ".forget-c9@eth0")
		}, "vf", "net1 a.example/vf d1", ""},
		{"a mark of one that lives", func(r *rig) {
			r.writeAttached(r.attachedTo("c9", "d1"))
			r.write("", journal.ReleaseDir, ".forget-c9@eth0")
		}, "vf", "net1 a.example/vf d2", ""},
		{"one that has not heard of its plan", func(r *rig) {
			a := r.attachedTo("c9", "d1")
			a.Plan = nil
			r.writeAttached(a, r.attachedTo("c8", "d2"))
		}, "vf", "net1 a.example/vf d1", ""},
		{"a certain one", func(r *rig) { r.writeAttached(r.attachedTo("c9", "d1")) }, `[{"name":"vf","deviceID":"d3"}]`, "net1 a.example/vf d3", ""},
		{"the certain one", func(r *rig) { r.writeAttached(r.attachedTo("0123456789abcdef", "d3")) }, `[{"name":"vf","deviceID":"d3"}]`, "",
			"device d3 of resource a.example/vf is allocated to container 0123456789ab of pod shop/old"},
		{"all", func(r *rig) {
			r.writeAttached(r.attachedTo("c7", "d3"), r.attachedTo("c8", "d2"), r.attachedTo("c9", "d1"))
		}, "vf", "", "no device of resource a.example/vf is free: d1 is allocated to container c9 of pod shop/old, d2 is allocated to container c8 of pod shop/old, d3 is allocated to container c7 of pod shop/old"},
		{"a damaged one beside", func(r *rig) {
			r.write(`{"sandbox":{"containerID":"c8"`, journal.EntryDir, "c8@eth0")
			r.writeAttached(r.attachedTo("c9", "d1"))
		}, "vf", "net1 a.example/vf d2", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := newDeviceRig(t)
			r.kubelet(vf + ": d3 d2 d1")
			tt.journal(r)
			r.start()
			p, err := r.planFor("c1", tt.networks)
			if tt.want == "" {
				r.wantRefused(err, conf.CodeNoDevice, "network shop/vf: "+tt.refused)
				return
			}
			r.must(err)
			if got := given(p); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
			if damaged := strings.Contains(r.log.String(), "files=[c8@eth0]"); damaged != strings.Contains(tt.name, "damaged") {
				t.Errorf("damaged is said: %t", damaged)
			}
		})
	}
}

// A pod whose ADD is repeated gets the devices that it had.
func TestDevicesOfARepeatedAdd(t *testing.T) {
	r := newDeviceRig(t)
	r.kubelet(vf+": d2 d1", vf+": d4 d3")
	r.start()
	var before string
	for range 3 {
		p, err := r.planFor("c1", "vf,vf,vf")
		r.must(err)
		if now := given(p); before != "" && now != before {
			t.Errorf("at first %s, now %s", before, now)
		}
		before = given(p)
		r.writeAttached(&journal.Summary{Sandbox: r.sandbox("c1"), Plan: p})
	}
	// The pod's next sandbox gets the fourth: the first one's are taken away by a DEL that is still to come.
	p, err := r.planFor("c2", "vf")
	r.must(err)
	if got := given(p); got != "net1 a.example/vf d4" {
		t.Errorf("another sandbox got %s beside %s", got, before)
	}
}

// A pod without its devices has nothing of its networks: OVN never hears of it.
func TestNoDevice(t *testing.T) {
	tests := []struct {
		name, networks string
		prepare        func(r *rig, k *kubelet)
		code           uint
		want           string
	}{
		{"fewer than attachments", "blue,vf,vf", func(*rig, *kubelet) {}, conf.CodeNoDevice,
			"interface net3: network shop/vf: the pod has 1 of resource a.example/vf, and 2 of its attachments take one"},
		{"none of the second resource", "vf,blue,vg", func(*rig, *kubelet) {}, conf.CodeNoDevice,
			"interface net3: network shop/vg: the pod has 0 of resource a.example/vg, and 1 of its attachments take one"},
		{"one that is not the pod's", `[{"name":"blue"},{"name":"vf","deviceID":"another's"}]`, func(*rig, *kubelet) {}, conf.CodeNoDevice,
			"interface net2: network shop/vf: device another's of resource a.example/vf is not the pod's, which has d1"},
		{"kubelet does not say", "blue,vf", func(_ *rig, k *kubelet) { k.err = status.Error(codes.Internal, "no checkpoint") }, conf.CodeTryAgain,
			"which devices the pod has: kubelet's pod-resources API at SOCKET: no checkpoint"},
		{"the journal cannot be read", "blue,vf", func(r *rig, _ *kubelet) { r.write("", journal.EntryDir) }, conf.CodeTryAgain,
			"which DELs failed: open STATE/attached: not a directory"},
		{"the device plugin lies", "blue,vf", func(r *rig, _ *kubelet) { r.info("{}") }, conf.CodeDecoding,
			`interface net2: network shop/vf: what the device plugin says of device d1: version: "" is none like 1.1.0`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := newDeviceRig(t)
			k := r.kubelet(vf + ": d1")
			r.start()
			r.agent.infoDir = filepath.Join(r.conf.StateDir, "dp")
			tt.prepare(r, k)
			asked := 0
			r.proxy.Before(func(ovndbtest.Transact) { asked++ })
			_, err := r.planFor("c1", tt.networks)
			r.proxy.Before(nil)
			r.wantRefused(err, tt.code, strings.NewReplacer("SOCKET", r.conf.PodResources, "STATE", r.conf.StateDir).Replace(tt.want))
			if asked != 0 {
				t.Errorf("NB was asked %d times", asked)
			}
		})
	}
}

// info is what the device plugin says of the device d1.
func (r *rig) info(text string) {
	r.t.Helper()
	r.write(text, "dp", "a.example-vf-d1-device.json")
}

// An operator's mistake is said, not passed by: the pod would have a port where it was to have a device.
func TestResourceOfAnOVNNetwork(t *testing.T) {
	r := newDeviceRig(t)
	k := r.kubelet(vf + ": d1")
	r.source.nads["blue"] = testNAD{Config: blue, Resource: vf}
	r.start()
	_, err := r.planFor("c1", "blue")
	r.wantRefused(err, conf.CodeInvalidConfig, "interface net1: network shop/blue: annotation k8s.v1.cni.cncf.io/resourceName: an OVN port takes no device")
	if n := k.questions(); n != 0 {
		t.Errorf("kubelet was asked %d times", n)
	}
}

// What the device plugin says of a device is in the plan, for the plugin that has the pod's folder of it.
// Conformance: D-4
func TestDeviceInformationInThePlan(t *testing.T) {
	const pci = `{"type":"pci","version":"1.1.0","pci":{"pci-address":"0000:18:02.5"},"org.foo":12345678901234567890}`
	r := newDeviceRig(t)
	r.kubelet(vf + ": d1 d2")
	r.start()
	r.agent.infoDir = filepath.Join(r.conf.StateDir, "dp")
	r.info(pci)
	p, err := r.planFor("c1", "vf,vf")
	r.must(err)
	want := []*agentapi.Device{{Resource: vf, ID: "d1", Info: json.RawMessage(pci)}, {Resource: vf, ID: "d2"}}
	if got := []*agentapi.Device{p.Delegates[0].Device, p.Delegates[1].Device}; !reflect.DeepEqual(got, want) {
		t.Errorf("got  %s\nwant %s", marshal(t, got), marshal(t, want))
	}
}

// The agent that is told of no other place reads it where device plugins write it.
func TestPlacesOfDevices(t *testing.T) {
	r := newDeviceRig(t)
	r.start()
	if got := r.agent.infoDir; got != "/var/run/k8s.cni.cncf.io/devinfo/dp" {
		t.Errorf("device information is read from %s", got)
	}
	if got := r.agent.kubelet.Socket; got != r.conf.PodResources {
		t.Errorf("kubelet is asked at %s", got)
	}
}

// Kubelet's word counts at each ADD: a pod that has got its devices since is served.
func TestKubeletIsAskedAtEachAdd(t *testing.T) {
	r := newDeviceRig(t)
	k := r.kubelet(vf + ": d1")
	r.start()
	_, err := r.planFor("c1", "vg")
	r.wantRefused(err, conf.CodeNoDevice, "the pod has 0 of resource a.example/vg")
	k.mu.Lock()
	k.containers = append(k.containers, &podresources.ContainerResources{Devices: []*podresources.ContainerDevices{{ResourceName: vg, DeviceIds: []string{"e1"}}}})
	k.mu.Unlock()
	p, err := r.planFor("c1", "vg")
	r.must(err)
	if got := given(p); got != "net1 a.example/vg e1" || k.questions() != 2 {
		t.Errorf("got %s after %d questions", got, k.questions())
	}
}
