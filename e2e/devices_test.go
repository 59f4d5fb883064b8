package e2e

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
)

// The resources of these scenarios: PCI devices, and devices whose IDs only their plugin understands.
const (
	nics  = "example.com/nic"
	cards = "example.com/card"
)

// has is what kubelet says of a container.
type has = map[string][]string

// kubelet has the first node's pod-resources API answer until the test ends.
func (w *world) kubelet() *lab.PodResources {
	k, stop, err := w.Nodes[0].ServePodResources()
	w.Must(err)
	w.T.Cleanup(stop)
	return k
}

// ofResource writes a NAD into namespace shop that takes the devices of a resource.
func (w *world) ofResource(name, resource, config string) {
	w.NAD(name, config, netmodel.ResourceNameAnnotation, resource)
}

// taking writes such a NAD whose plugin only writes down how it is called.
func (w *world) taking(name, resource, keys string) (log string) {
	log = filepath.Join(w.Nodes[0].Dir, name+".log")
	w.ofResource(name, resource, fmt.Sprintf(`{"cniVersion":"1.0.0","type":"recorder","log":"%s","result":{"cniVersion":"1.0.0"}%s}`, log, keys))
	return log
}

// devices are the IDs that a recorder's calls were told, by "<command> <interface>", each as deviceID and as pciBusID.
func (w *world) devices(log string) map[string][2]string {
	ids := map[string][2]string{}
	for _, c := range w.told(log) {
		ids[c.command+" "+c.ifName] = [2]string{fmt.Sprint(c.stdin["deviceID"]), fmt.Sprint(c.stdin["pciBusID"])}
	}
	return ids
}

// both is an ID in both places.
func both(id string) [2]string { return [2]string{id, id} }

// TestDevices gives a pod of two containers devices of two resources beside an OVN network: each attachment has its own,
// the n-th of the sorted ones, and the first plugin of a list alone has it in its configuration.
func TestDevices(t *testing.T) {
	w := newWorld(t, lab.Options{Nodes: 1}, withDelegates)
	k := w.kubelet()
	dir := w.Nodes[0].Dir
	one, two, three := filepath.Join(dir, "one.log"), filepath.Join(dir, "two.log"), filepath.Join(dir, "three.log")
	// What the NAD itself says of a device counts for nothing.
	w.ofResource("vf", nics, fmt.Sprintf(`{"cniVersion":"1.0.0","name":"vf","plugins":[
		{"type":"recorder","log":"%s","deviceID":"0000:00:1f.6","pciBusID":"0000:00:1f.6","capabilities":{"deviceID":true},"result":{"cniVersion":"1.0.0"}},
		{"type":"recorder","log":"%s","capabilities":{"deviceID":true}},
		{"type":"recorder","log":"%s"}]}`, one, two, three))
	card := w.taking("card", cards, "")
	k.Give("shop", "other", has{nics: {"0000:3b:01.0"}, cards: {"card-1"}})
	k.Give("elsewhere", "web", has{nics: {"0000:3b:01.1"}, cards: {"card-0"}})
	// As numbers, a.0 is behind 2.1 and card-10 behind card-9; as strings, card-10 is before card-9.
	k.Give("shop", "web", has{nics: {"0000:3b:0a.0", "0000:3b:02.1"}, cards: {"card-9"}}, has{nics: {"0000:3b:02.0", "0000:3b:0a.0"}, cards: {"card-10"}})

	p := w.Attached(0, "web", "vf,blue,vf,card")
	want := map[string][2]string{"ADD net1": both("0000:3b:02.0"), "ADD net3": both("0000:3b:02.1")}
	equal(t, "devices of the first plugin", w.devices(one), want)
	equal(t, "devices of the other resource", w.devices(card), map[string][2]string{"ADD net4": both("card-10")})
	for _, log := range []string{two, three} {
		for _, c := range w.told(log) {
			for _, key := range []string{"deviceID", "pciBusID"} {
				if c.stdin[key] != nil {
					t.Errorf("%s: a later plugin of the list was told %s %v", filepath.Base(log), key, c.stdin[key])
				}
			}
		}
	}
	for log, declared := range map[string]bool{one: true, two: true, three: false, card: false} {
		for _, c := range w.told(log) {
			wanted := "map[]"
			if declared {
				wanted = "map[deviceID:" + want["ADD "+c.ifName][0] + "]"
			}
			equal(t, filepath.Base(log)+": runtimeConfig", strings.Replace(fmt.Sprint(c.stdin["runtimeConfig"]), "<nil>", "map[]", 1), wanted)
		}
	}
	other := w.Attached(0, "other", "blue")
	w.reachBy(p, "net2", w.Links(other)["net1"].IPs()...)
	equal(t, "questions", k.Asked(), 1)
	w.Must(p.Check(w.Ctx))
	w.End(p, other)
	equal(t, "questions in the end", k.Asked(), 1)
	w.AsBefore()
}

// TestDeviceThatIsAskedFor: a pod may choose among its own devices, and what it chose no other attachment gets.
func TestDeviceThatIsAskedFor(t *testing.T) {
	w := newWorld(t, lab.Options{Nodes: 1}, withDelegates)
	k := w.kubelet()
	log := w.taking("vf", nics, "")
	k.Give("shop", "web", has{nics: {"0000:3b:02.2", "0000:3b:02.1", "0000:3b:02.0"}})
	p := w.Attached(0, "web", `[{"name":"vf"},{"name":"vf","deviceID":"0000:3b:02.0"},{"name":"vf"}]`)
	equal(t, "devices", w.devices(log), map[string][2]string{
		"ADD net1": both("0000:3b:02.1"), "ADD net2": both("0000:3b:02.0"), "ADD net3": both("0000:3b:02.2")})
	w.Over(p)
}

// TestArgumentsOfDelegates: a plugin that refuses what it does not know (as some do with CNI_ARGS) is told not to, whatever
// the runtime says.
func TestArgumentsOfDelegates(t *testing.T) {
	w := newWorld(t, lab.Options{Nodes: 1}, withDelegates)
	log := w.recorderOn("rec", "")
	for given, want := range map[string]string{
		"":                 "IgnoreUnknown=1;",
		"IgnoreUnknown=1;": "IgnoreUnknown=1;",
		"IgnoreUnknown=0;": "IgnoreUnknown=1;",
	} {
		w.Must(os.RemoveAll(log))
		p := w.Pod(0, "web", "rec")
		pod := fmt.Sprintf("K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web;K8S_POD_UID=%s", p.UID)
		w.Add(p, lab.WithEnv("CNI_ARGS="+given+pod))
		w.Must(p.Check(w.Ctx, lab.WithEnv("CNI_ARGS="+given+pod)))
		w.Del(p, lab.WithEnv("CNI_ARGS="+given+pod))
		for _, c := range w.told(log) {
			equal(t, fmt.Sprintf("%s with %q", c.command, given), c.args, want+pod)
		}
		equal(t, "calls", w.toldOf(log, p), []string{"ADD web net1", "CHECK web net1", "DEL web net1"})
		w.End(p)
	}
	w.AsBefore()
}

// TestDeviceWhenAllIsForgotten: kubelet forgets a pod long before its last DEL, and NADs are edited and deleted. CHECK, DEL
// and GC have the configuration and the device of the ADD all the same.
func TestDeviceWhenAllIsForgotten(t *testing.T) {
	w := newWorld(t, lab.Options{Nodes: 1, CNIVersion: "1.1.0"}, withDelegates)
	log := filepath.Join(w.Nodes[0].Dir, "vf.log")
	config := func(vlan int) string {
		return fmt.Sprintf(`{"cniVersion":"1.1.0","name":"vf","type":"recorder","log":"%s","vlan":%d,"capabilities":{"deviceID":true},"result":{"cniVersion":"1.0.0"}}`, log, vlan)
	}
	for _, changed := range []struct {
		name string
		do   func(*world)
	}{
		{"changed", func(w *world) { w.ofResource("vf", cards, config(9)) }},
		{"deleted", func(w *world) { w.removeNAD("vf") }},
	} {
		for _, by := range []string{"DEL", "GC"} {
			w.part("NAD "+changed.name+", ended by "+by, func(t *testing.T, w *world) {
				w.Must(os.RemoveAll(log))
				w.ofResource("vf", nics, config(7))
				k, stop, err := w.Nodes[0].ServePodResources()
				w.Must(err)
				k.Give("shop", "web", has{nics: {"0000:3b:02.1", "0000:3b:02.0"}})
				p := w.Attached(0, "web", "vf,blue,vf")
				k.Take("shop", "web")
				stop() // nor does it answer at all any more
				changed.do(w)
				w.Must(p.Check(w.Ctx))
				w.Must(w.Nodes[0].GC(w.Ctx, []*lab.Pod{p}, lab.WithoutCache()))
				want := []string{"ADD web net1", "ADD web net3", "CHECK web net1", "CHECK web net3", "GC", "GC", "DEL web net3", "DEL web net1"}
				if by == "GC" {
					w.Must(w.Nodes[0].GC(w.Ctx, nil, lab.WithoutCache()))
					want = append(want, "GC", "GC") // those of a network that has none any more
				}
				w.End(p)
				equal(t, "calls", w.toldOf(log, p), want)
				w.likeItsADD(log)
				w.AsBefore()
			})
		}
	}
}

// likeItsADD holds all calls that a recorder was told of against the ADD of the same interface, and of the same device where
// a call is of none.
func (w *world) likeItsADD(log string) {
	short := func(c told) string {
		text := map[string]any{"CNI_ARGS": c.args}
		for _, key := range []string{"name", "cniVersion", "type", "log", "vlan", "deviceID", "pciBusID"} {
			text[key] = c.stdin[key]
		}
		if c.ifName != "" {
			text["runtimeConfig"] = c.stdin["runtimeConfig"]
		} else {
			delete(text, "CNI_ARGS")
		}
		return fmt.Sprint(text)
	}
	made, left, collected := map[string]string{}, map[string]int{}, false
	for _, c := range w.told(log) {
		switch {
		case c.command == "ADD":
			made[c.ifName] = short(c)
			anyone := c
			anyone.ifName = ""
			left[short(anyone)] = 0
		case c.ifName != "":
			equal(w.T, c.command+" "+c.ifName, short(c), made[c.ifName])
		default:
			if _, ok := left[short(c)]; !ok {
				w.T.Errorf("%s was told %s, which is no ADD's: %v", c.command, short(c), left)
			}
			left[short(c)]++
			collected = true
		}
	}
	for text, n := range left {
		if collected && n == 0 {
			w.T.Errorf("no GC was told %s", text)
		}
	}
}

// nothingOf makes a pod that has its first interface, asks for networks that it must not get, and holds the world against
// what it was: no port, no plug, no link, no entry, no file of a device, no call of a plugin.
func (w *world) nothingOf(networks string, code uint, words []string, details string, logs ...string) {
	p, prev := w.withoutNetworks("web", networks)
	before, files, written := w.Snapshot(), w.files(deviceFolder), w.written()
	err := w.TryAdd(p, lab.OnlyOurs(prev))
	w.refused(err, code, words...)
	if !strings.Contains(detailsOf(err), details) {
		w.T.Errorf("details %q do not say %q", detailsOf(err), details)
	}
	equal(w.T, "what the refused ADD changed", before.Diff(w.Snapshot()), "")
	w.nothingWritten(written) // nor taken back
	equal(w.T, "interfaces in the pod", len(w.Links(p)), 1)
	equal(w.T, "files of devices", w.files(deviceFolder), files)
	for _, log := range logs {
		for _, c := range w.told(log) {
			if c.container == p.Sandbox {
				w.T.Errorf("%s was called: %s", filepath.Base(log), c.of(p))
			}
		}
	}
	w.Over(p)
}

// TestDeviceRefused has pods whose OVN network and plain delegate are in order, and one device that they cannot have.
func TestDeviceRefused(t *testing.T) {
	w := newWorld(t, lab.Options{Nodes: 1}, withDelegates)
	k := w.kubelet()
	logs := []string{w.recorderOn("rec", ""), w.taking("vf", nics, ""), w.taking("card", cards, ""), w.taking("odd", "no resource", "")}
	// A network of OVN that someone annotated is one to the controller, and to pods an error of its author's.
	onOVN := `{"cniVersion":"1.0.0","name":"ovn","type":"ovn-multinet","subnets":"10.7.0.0/24"}`
	w.ofResource("ovn", nics, onOVN)
	w.inForce("ovn", onOVN)
	w.Base = w.Snapshot()
	k.Give("shop", "other", has{nics: {"0000:3b:0a.7"}, cards: {"card-1"}})
	k.Give("shop", "web", has{nics: {"0000:3b:02.1", "0000:3b:02.0"}}, has{nics: {"0000:3b:02.0"}})
	const notHis = "deviceID in the pod's annotation " + conf.NetworksAnnotation
	for _, tt := range []struct {
		name, networks, words, details string
		code                           uint
	}{
		{"another pod's", `[{"name":"vf","deviceID":"0000:3b:0a.7"}]`,
			"interface net3: network shop/vf: device 0000:3b:0a.7 of resource example.com/nic is not the pod's, which has 0000:3b:02.0, 0000:3b:02.1", notHis, conf.CodeNoDevice},
		{"one of a resource that it has none of", `[{"name":"card","deviceID":"card-1"}]`,
			"interface net3: network shop/card: device card-1 of resource example.com/card is not the pod's, which has none", notHis, conf.CodeNoDevice},
		{"one of another resource", `[{"name":"card","deviceID":"0000:3b:02.0"}]`,
			"interface net3: network shop/card: device 0000:3b:02.0 of resource example.com/card is not the pod's, which has none", notHis, conf.CodeNoDevice},
		{"one twice", `[{"name":"vf","deviceID":"0000:3b:02.0"},{"name":"vf","deviceID":"0000:3b:02.0"}]`,
			"interface net4: network shop/vf: device 0000:3b:02.0 of resource example.com/nic is asked for twice", notHis, conf.CodeNoDevice},
		{"fewer devices than attachments", `[{"name":"vf"},{"name":"vf"},{"name":"vf"}]`,
			"interface net5: network shop/vf: the pod has 2 of resource example.com/nic, and 3 of its attachments take one", "resources.limits: {example.com/nic: 3}", conf.CodeNoDevice},
		{"none of the resource", `[{"name":"vf"},{"name":"card"}]`,
			"interface net4: network shop/card: the pod has 0 of resource example.com/card, and 1 of its attachments take one", "resources.limits: {example.com/card: 1}", conf.CodeNoDevice},
		{"a network of no resource", `[{"name":"rec","deviceID":"0000:3b:02.0"}]`,
			"interface net3: deviceID on network shop/rec: it is a network of no resource", netmodel.ResourceNameAnnotation, conf.CodeInvalidConfig},
		{"an OVN network of no resource", `[{"name":"green","deviceID":"0000:3b:02.0"}]`,
			"interface net3: deviceID on network shop/green: it is a network of no resource", netmodel.ResourceNameAnnotation, conf.CodeInvalidConfig},
		{"an OVN network with a resource", `[{"name":"ovn"}]`,
			"interface net3: network shop/ovn: annotation " + netmodel.ResourceNameAnnotation + ": an OVN port takes no device", "remove the annotation", conf.CodeInvalidConfig},
		{"a resource that is none", `[{"name":"odd"}]`,
			`interface net3: network shop/odd: annotation ` + netmodel.ResourceNameAnnotation + `: "no resource" is no resource like example.com/name`, "NetworkAttachmentDefinition", conf.CodeInvalidConfig},
		{"no name of a device", `[{"name":"vf","deviceID":"a b"}]`, `deviceID: "a b" is no name of a device`, "annotation", conf.CodeInvalidConfig},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w.sub(t).nothingOf(`[{"name":"blue"},{"name":"rec"},`+strings.TrimPrefix(tt.networks, "["), tt.code, []string{tt.words}, tt.details, logs...)
		})
	}
}

// TestKubeletIsAskedForDevicesOnly: a node without pod-resources has pods with all other networks, and pays nothing for it.
func TestKubeletIsAskedForDevicesOnly(t *testing.T) {
	w := newWorld(t, lab.Options{Nodes: 1}, withDelegates)
	k := w.kubelet()
	k.Refuse = func(int) error { return status.Error(codes.Internal, "nobody should ask") }
	k.Give("shop", "web", has{nics: {"0000:3b:02.0"}})
	w.recorderOn("rec", "")
	log := w.taking("vf", nics, "")
	for _, networks := range []string{"", "blue", "rec", "rec,green,blue"} {
		p := w.Attached(0, "web", networks)
		w.Must(p.Check(w.Ctx))
		w.End(p)
	}
	equal(t, "questions", k.Asked(), 0)
	w.nothingOf("blue,vf", conf.CodeTryAgain, []string{"which devices the pod has: kubelet's pod-resources API at " + w.Nodes[0].PodResources + ": nobody should ask"}, "--pod-resources-socket", log)
	equal(t, "questions for a device", k.Asked(), 1)
}

// TestKubeletLimitsQuestions: kubelet answers a hundred questions a second, of all who ask, and those that are too many with
// an error.
func TestKubeletLimitsQuestions(t *testing.T) {
	t.Parallel() // most of it is waiting
	w := newWorld(t, lab.Options{Nodes: 1}, func(l *lab.Lab) {
		l.Nodes[0].PluginConf = func(entry map[string]any) { entry["allowedDelegates"], entry["timeout"] = allowed, "4s" }
	})
	k := w.kubelet()
	log := w.taking("vf", nics, "")
	many := status.Error(codes.ResourceExhausted, "rejected by rate limit")
	k.Refuse = func(question int) error {
		if question <= 3 {
			return many
		}
		return nil
	}
	k.Give("shop", "web", has{nics: {"0000:3b:02.0"}})
	p := w.Attached(0, "web", "blue,vf")
	equal(t, "questions", k.Asked(), 4)
	equal(t, "devices", w.devices(log), map[string][2]string{"ADD net2": both("0000:3b:02.0")})
	w.End(p)
	w.Must(os.Remove(log))

	k.Refuse = func(int) error { return many }
	k.Give("shop", "web", has{nics: {"0000:3b:02.0"}})
	w.nothingOf("blue,vf", conf.CodeTryAgain, []string{"kubelet's pod-resources API at " + w.Nodes[0].PodResources, "rejected by rate limit"}, "does kubelet run", log)
	if k.Asked() < 6 {
		t.Errorf("kubelet was asked %d times, 4 of them before: once refused is not for good", k.Asked())
	}
}

// TestKubeletIsAway: the socket is there only while kubelet is, and one that hangs does not answer. A pod that needs it is tried
// again.
func TestKubeletIsAway(t *testing.T) {
	t.Parallel() // most of it is waiting
	w := newWorld(t, lab.Options{Nodes: 1}, withDelegates)
	log := w.taking("vf", nics, "")
	refused := []string{"which devices the pod has: kubelet's pod-resources API at " + w.Nodes[0].PodResources}
	w.nothingOf("blue,vf", conf.CodeTryAgain, refused, "does kubelet run", log)
	hangs, err := net.Listen("unix", w.Nodes[0].PodResources)
	w.Must(err)
	w.nothingOf("blue,vf", conf.CodeTryAgain, refused, "does kubelet run", log)
	w.Must(hangs.Close())
	w.kubelet().Give("shop", "web", has{nics: {"0000:3b:02.0"}})
	p := w.Attached(0, "web", "blue,vf")
	equal(t, "devices", w.devices(log), map[string][2]string{"ADD net2": both("0000:3b:02.0")})
	w.Over(p)
}
