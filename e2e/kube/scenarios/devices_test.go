//go:build kube

package scenarios

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

// TestDevices takes devices from a device plugin by way of kubelet to the delegates of pods' networks, and back, one thing after
// the other on the same cluster.
func TestDevices(t *testing.T) {
	t.Parallel()
	d := newDeviceWorld(t)
	d.run("given in order", (*deviceWorld).givenInOrder)
	d.run("too few", (*deviceWorld).tooFew)
	d.run("forgotten by kubelet", (*deviceWorld).forgottenByKubelet)
	d.run("given up", (*deviceWorld).givenUp)
	d.run("given again", (*deviceWorld).givenAgain)
	d.Must(lab.Eventually(d.Ctx, d.nothingLeft))
	if files := d.files("cni"); len(files) > 0 {
		t.Errorf("files of devices are left: %q", files)
	}
}

// givenInOrder: all containers' devices, in an order that is neither the device plugin's nor kubelet's.
func (d *deviceWorld) givenInOrder() {
	d.Must(d.Apply(d.Ctx, takes("pair", "vf,blue,vf,vf", 2, 1)))
	d.Must(d.WaitReady(d.Ctx, "default/pair"))
	given := d.given("pair")
	if want := "[[vf10 vf9] [vf2]]"; fmt.Sprint(given) != want || fmt.Sprint(d.plugin.Allocated()) != want {
		d.T.Errorf("kubelet says that the containers have %v, and asked the device plugin for %v, want %s", given, d.plugin.Allocated(), want)
	}
	d.has("pair", "net1", "net3", "net4")
	if got, want := fmt.Sprint(d.devicesOf("ADD", "pair")), "map[net1:vf10 net3:vf2 net4:vf9]"; got != want {
		d.T.Errorf("pod pair has the devices %s, want %s", got, want)
	}
	links, status := d.links("pair"), d.status("pair")
	if len(status) != 5 || len(links) != 2 {
		d.T.Fatalf("pod pair has the links %v and the status %+v", links, status)
	}
	d.inOVN("pair", status[2], links["net2"])
}

// tooFew: a pod that asks for fewer devices than it has attachments gets a reason and nothing else, and is in nobody's way.
func (d *deviceWorld) tooFew() {
	short, rest := takes("short", "blue,vf,vf", 1), takes("rest", "vf,vf", 2)
	d.Must(d.Apply(d.Ctx, short+rest))
	d.sandboxFails("short", "interface net3: network default/vf: the pod has 1 of resource example.com/vf, and 2 of its attachments take one; "+
		"the pod's containers must ask for them: resources.limits: {example.com/vf: 2}")
	d.Must(d.WaitReady(d.Ctx, "default/rest"))
	d.has("rest", "net1", "net2")
	if given := d.given("short"); len(slices.Concat(given...)) != 1 {
		d.T.Errorf("kubelet gave %q to pod short, want one device", given)
	}
	if calls := d.calls("ADD", "short"); len(calls) > 0 {
		d.T.Errorf("the delegate was run for pod short: %+v", calls)
	}
	ids := d.rows("Logical_Switch_Port", "external_ids", "external_ids:ovn-multinet/pod=short")
	if slices.ContainsFunc(ids, func(id string) bool {
		return strings.HasPrefix(id, "ovn-multinet/sandbox=") && !strings.HasPrefix(id, "ovn-multinet/sandbox=early-")
	}) {
		d.T.Errorf("a sandbox of pod short has ports: %q", ids)
	}
	if files := d.files("cni"); len(files) != 3+2 {
		d.T.Errorf("files of devices: %q, want those of pair and rest", files)
	}
	d.Must(d.Delete(d.Ctx, short))
}

// forgottenByKubelet: pod pair is deleted while kubelet is away, and its delegates do not let go. A kubelet that knows nothing of
// it any more gives its devices to the next pod, which is not to have them yet.
func (d *deviceWorld) forgottenByKubelet() {
	d.Must(d.node.Kubelet.Stop(d.Ctx))
	d.Must(os.WriteFile(d.node.Path(stuckFile), nil, 0o600))
	now := int64(0)
	d.Must(d.Client.CoreV1().Pods("default").Delete(d.Ctx, "pair", metav1.DeleteOptions{GracePeriodSeconds: &now}))
	d.Must(d.WaitGone(d.Ctx, "default/pair"))
	d.Must(d.node.Kubelet.Restart(d.Ctx))
	d.undone("pair")
	if given := d.given("pair"); given != nil {
		d.T.Errorf("kubelet knows pod pair, with the devices %q", given)
	}
	d.offering() // else kubelet refuses the pod for good, and not only until it has the devices again
	d.Must(d.Apply(d.Ctx, takes("next", "vf,vf,vf", 3)))
	d.sandboxFails("next", "interface net1: network default/vf: no device of resource example.com/vf is free: "+
		"vf10 is allocated to container "+d.container("pair")+" of pod default/pair, vf2 is allocated")
	if given, want := fmt.Sprint(d.given("next")), "[[vf10 vf2 vf9]]"; given != want {
		d.T.Errorf("kubelet gave %s to pod next, want those of pod pair, %s", given, want)
	}
	if n, err := d.plugin.Registered(); n != 2 || err != nil {
		d.T.Errorf("the device plugin has registered %d times, %v", n, err)
	}
}

// container is the beginning of the ID of the one that the delegate was run for.
func (d *deviceWorld) container(pod string) string {
	calls := d.calls("ADD", pod)
	if len(calls) == 0 {
		d.T.Fatalf("the delegate was not run for pod %s", pod)
	}
	return calls[0].env("CNI_CONTAINERID")[:12]
}

// left is what kubectl multinet lists.
type left struct {
	ContainerID, Namespace, Pod string
	LastError                   string `json:"complaint"`
	FailedAttempts              int    `json:"complaints"`
	Forgotten                   bool
	Delegates                   []struct{ Interface, Network, Device string }
}

// givenUp: an operator looks at what would not go and gives it up, and the next pod gets the devices.
func (d *deviceWorld) givenUp() {
	id := d.container("pair")
	text := d.multinet("forget", "--node", "node1", "-o", "json")
	var all []left
	d.Must(json.Unmarshal([]byte(text), &all))
	if len(all) != 1 || all[0].Namespace+"/"+all[0].Pod != "default/pair" || !strings.HasPrefix(all[0].ContainerID, id) || all[0].Forgotten ||
		all[0].FailedAttempts == 0 || !strings.Contains(all[0].LastError, stuck) ||
		fmt.Sprint(all[0].Delegates) != "[{net1 default/vf vf10} {net3 default/vf vf2} {net4 default/vf vf9}]" {
		d.T.Fatalf("what is left behind on node1: %s", text)
	}
	d.says([]string{"forget", "--node", "node1"}, id, "default/pair", "net1 on default/vf with vf10", "tried again", stuck)
	d.says([]string{"forget", "--node", "node2"}, "nothing is left behind on this node")
	for _, tt := range []struct{ node, container, want string }{
		{"node9", "", `no agent of ovn-multinet runs on node "node9"`},
		{"node2", id, `node node2: ovn-multinetd: container "` + id + `": 0 have this ID or beginning`},
	} {
		_, err := d.Multinet(d.Ctx, slices.DeleteFunc([]string{"forget", "--node", tt.node, tt.container}, func(a string) bool { return a == "" })...)
		if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(strings.TrimSpace(err.Error()), "\n") {
			d.T.Errorf("forget %s on %s: %v, want %s on one line", tt.container, tt.node, err, tt.want)
		}
	}
	d.says([]string{"forget", "--node", "node1", id}, "default/pair", "forgotten")
	d.Must(d.WaitReady(d.Ctx, "default/next"))
	d.has("next", "net1", "net2", "net3")
	tries := len(d.calls("DEL", "pair"))
	d.Must(os.Remove(d.node.Path(stuckFile)))
	// Pod rest is older than its kubelet. The DEL of any pod ends what was given up, if no call for its own container came before.
	d.Must(d.Delete(d.Ctx, takes("rest", "vf,vf", 2)))
	d.undone("rest")
	d.Must(lab.Eventually(d.Ctx, func() error {
		out, err := d.Multinet(d.Ctx, "forget", "--node", "node1")
		if err == nil && !strings.Contains(out, "nothing is left behind") {
			err = fmt.Errorf("what was given up is still listed: %s", out)
		}
		return err
	}))
	if now := len(d.calls("DEL", "pair")); now != tries {
		d.T.Errorf("the delegate was run %d times for what was given up", now-tries)
	}
	if files := d.files("cni"); len(files) != 3 {
		d.T.Errorf("files of devices: %q, want those of next", files)
	}
}

// says runs kubectl multinet.
func (d *deviceWorld) says(args []string, words ...string) {
	out := d.multinet(args...)
	for _, want := range words {
		if !strings.Contains(out, want) {
			d.T.Errorf("kubectl multinet %s: no %q in\n%s", strings.Join(args, " "), want, out)
		}
	}
}

// givenAgain: the devices that a pod gives back go to the next one, up to all that there are.
func (d *deviceWorld) givenAgain() {
	d.Must(d.Delete(d.Ctx, takes("next", "vf,vf,vf", 3)))
	d.undone("next")
	all := takes("all", "vf,vf,vf,vf,vf,vf", 4, 2)
	d.Must(d.Apply(d.Ctx, all))
	d.Must(d.WaitReady(d.Ctx, "default/all"))
	d.has("all", "net1", "net2", "net3", "net4", "net5", "net6")
	d.Must(d.Delete(d.Ctx, all))
	d.undone("all")
}
