//go:build kube

package scenarios

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/e2e/kube"
	"github.com/ovn-multinet/ovn-multinet/e2e/labtest"
)

// claimKind is the definition of IPAMClaims, with the fields of version 0.5.1-alpha of its module.
const claimKind = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: ipamclaims.k8s.cni.cncf.io}
spec:
  group: k8s.cni.cncf.io
  scope: Namespaced
  names: {kind: IPAMClaim, listKind: IPAMClaimList, plural: ipamclaims, singular: ipamclaim}
  versions:
  - name: v1alpha1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            required: [network, interface]
            properties: {network: {type: string}, interface: {type: string}}
          status:
            type: object
            required: [ips]
            properties:
              ips: {type: array, items: {type: string}}
              ownerPod: {type: object, properties: {name: {type: string}}}
              conditions:
                type: array
                items:
                  type: object
                  required: [lastTransitionTime, message, reason, status, type]
                  properties:
                    lastTransitionTime: {type: string, format: date-time}
                    message: {type: string}
                    reason: {type: string, minLength: 1}
                    status: {type: string, enum: ["True", "False", Unknown]}
                    type: {type: string}
`

// claim is an IPAMClaim as KubeVirt's IPAM controller makes it.
func claim(name, network string) string {
	return "apiVersion: k8s.cni.cncf.io/v1alpha1\nkind: IPAMClaim\nmetadata: {name: " + name + ", finalizers: [kubevirt.io/persistent-ipam]}\n" +
		"spec: {network: " + network + ", interface: \"\"}\n---\n"
}

// claimIs waits until an IPAMClaim has these addresses and this pod.
func (w *world) claimIs(name, pod string, addresses []string) {
	w.T.Helper()
	w.until(func() error {
		got := w.kubectl("get", "ipamclaim", name, "-o", "jsonpath={.status.ownerPod.name} {.status.ips[*]} "+
			"{.status.conditions[?(@.type=='IPsAllocated')].status} {.status.conditions[*].reason}")
		if want := pod + " " + strings.Join(addresses, " ") + " True SuccessfulAllocation"; got != want {
			return fmt.Errorf("IPAMClaim %s has %q, want %q", name, got, want)
		}
		return nil
	})
}

// TestIPAMClaims: pods as KubeVirt makes them for a virtual machine, on the chart's own OVN. The machine keeps its
// addresses and its MAC: stopped and started on another node, its pod ended by itself, or deleted by force,
// and migrated. Its guest hears of them by DHCP when the network gets it. The definition
// of the kind comes late; an IPAMClaim of another network is refused by name; its deletion frees the addresses.
func TestIPAMClaims(t *testing.T) {
	t.Parallel()
	w := bareWorld(t, kube.Options{Nodes: 2, WithoutOVN: true})
	w.Must(w.LoadImages(w.Ctx))
	w.Must(w.InstallChart(w.Ctx, readmeValues))
	w.healthy()
	const vms = `{"type":"ovn-multinet","name":"vm-net","subnets":"10.51.0.0/24,fd51::/64","allowPersistentIPs":true}`
	launcher := func(name, node, claim string) string {
		return pod(name, node, `[{"name":"vms","ipam-claim-reference":"`+claim+`"}]`)
	}
	w.Must(w.Apply(w.Ctx, nad("vms", vms)+pod("client", "node1", "vms")+launcher("launcher-1", "node1", "vm.net")))
	w.sandboxFails("launcher-1", "IPAMClaim default/vm.net is not found")
	w.Must(w.Apply(w.Ctx, claimKind))
	w.until(func() error { return w.Apply(w.Ctx, claim("vm.net", "vm-net")+claim("vm.other", "other-net")) })
	w.Must(w.WaitReady(w.Ctx, "default/client", "default/launcher-1"))
	first := w.links("launcher-1")["net1"]
	same := func(name string) {
		w.T.Helper()
		w.Must(w.WaitReady(w.Ctx, "default/"+name))
		if now := w.links(name)["net1"]; now.MAC != first.MAC || !slices.Equal(now.Addresses, first.Addresses) {
			w.T.Errorf("%s has %+v, the first pod had %+v", name, now, first)
		}
		for _, ip := range first.ips() {
			w.reaches("client", "net1", ip)
		}
		w.claimIs("vm.net", name, first.Addresses)
	}
	same("launcher-1")
	w.run("another network's", func(w *world) {
		w.Must(w.Apply(w.Ctx, launcher("wrong", "node1", "vm.other")))
		w.sandboxFails("wrong", `IPAMClaim default/vm.other is for network "other-net", not for network default/vms with the name "vm-net"`)
		w.Must(w.Delete(w.Ctx, launcher("wrong", "node1", "vm.other")))
	})
	w.run("stopped and started", func(w *world) {
		w.Must(w.Apply(w.Ctx, launcher("launcher-2", "node2", "vm.net")))
		w.sandboxFails("launcher-2", "its IPAMClaim is in use by pod default/launcher-1")
		w.kubectl("delete", "pod", "launcher-1")
		same("launcher-2")
	})
	w.run("ended by itself", func(w *world) {
		w.kubectl("delete", "pod", "launcher-2")
		ends := strings.Replace(launcher("launcher-3", "node1", "vm.net"), "  containers:", "  restartPolicy: Never\n  containers:", 1)
		w.Must(w.Apply(w.Ctx, strings.Replace(ends, "args: [serve]", "args: [ip]", 1)))
		w.until(func() error {
			if phase := w.kubectl("get", "pod", "launcher-3", "-o", "jsonpath={.status.phase}"); phase != "Succeeded" {
				return fmt.Errorf("launcher-3 is %s", phase)
			}
			return nil
		})
		w.Must(w.Apply(w.Ctx, launcher("launcher-4", "node2", "vm.net")))
		same("launcher-4")
		w.kubectl("delete", "pod", "launcher-3")
		same("launcher-4")
	})
	w.run("killed", func(w *world) {
		w.kubectl("delete", "pod", "launcher-4", "--force", "--grace-period=0")
		w.Must(w.Apply(w.Ctx, launcher("launcher-5", "node1", "vm.net")))
		same("launcher-5")
	})
	w.run("migrates", func(w *world) {
		target := strings.Replace(launcher("launcher-6", "node2", "vm.net"), "  name: launcher-6", "  name: launcher-6\n  labels: {kubevirt.io/migrationJobUID: job}", 1)
		w.Must(w.Apply(w.Ctx, target))
		w.Must(w.WaitReady(w.Ctx, "default/launcher-6"))
		same("launcher-5")
		w.kubectl("annotate", "pod", "launcher-6", "kubevirt.io/migration-target-ready-timestamp=2026-01-02T03:04:05Z")
		w.until(func() error {
			out := w.multinet("nbctl", "--", "--bare", "--columns=external_ids", "find", "Logical_Switch_Port", `name="default/vm.net/ipam:claim"`)
			if !strings.Contains(out, "ovn-multinet/pod=launcher-6") {
				return fmt.Errorf("the port is %s", out)
			}
			return nil
		})
		w.kubectl("delete", "pod", "launcher-5")
		same("launcher-6")
	})
	w.run("who has its address", func(w *world) {
		for _, what := range append(first.ips(), first.MAC) {
			if out := w.multinet("who", what); !strings.Contains(out, "network default/vms  pod default/launcher-6/net1") {
				w.T.Errorf("who %s: %s", what, out)
			}
		}
	})
	w.run("DHCP", func(w *world) {
		withDHCP := strings.Replace(vms, "}", `,"dhcp":{"dns":["10.51.0.53"]}}`, 1)
		w.Must(w.Apply(w.Ctx, nad("vms", withDHCP)))
		w.until(func() error {
			if out := w.multinet("nbctl", "--", "--bare", "--columns=options", "list", "DHCP_Options"); !strings.Contains(out, "mtu=") {
				return fmt.Errorf("DHCP_Options are %q", out)
			}
			return nil
		})
		w.multinet("nbctl", "--", "--wait=hv", "sync")
		within := w.within("node2", "launcher-6")
		for family, want := range map[string]map[string]string{
			"-4": {"ip_address": first.ips()[0], "domain_name_servers": "10.51.0.53", "interface_mtu": fmt.Sprint(first.MTU)},
			"-6": {"ip6_address": first.ips()[1]},
		} {
			heard, err := labtest.Lease(w.Ctx, within, w.T.TempDir(), family, "net1")
			w.Must(err)
			for key, value := range want {
				if heard[key] != value {
					w.T.Errorf("the guest hears %s %q by dhclient %s, want %q: %v", key, heard[key], family, value, heard)
				}
			}
		}
	})
	w.run("a virtual address", virtualAddress)
	w.run("a subnet behind a pod", subnetBehind)
	w.run("deleted", func(w *world) {
		w.kubectl("delete", "ipamclaim", "vm.net", "vm.other", "--wait=false")
		w.Must(w.Apply(w.Ctx, launcher("late", "node2", "vm.net")))
		w.sandboxFails("late", "IPAMClaim default/vm.net is being deleted")
		w.Must(w.Delete(w.Ctx, launcher("late", "node2", "vm.net")))
		w.kubectl("patch", "ipamclaim", "vm.net", "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
		w.kubectl("patch", "ipamclaim", "vm.other", "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
		for _, ip := range first.ips() {
			w.reaches("client", "net1", ip)
		}
		w.kubectl("delete", "pod", "launcher-6")
		taker := pod("taker", "node2", `[{"name":"vms","ips":["`+first.ips()[0]+`"]}]`)
		w.Must(w.Apply(w.Ctx, taker))
		w.Must(w.WaitReady(w.Ctx, "default/taker"))
	})
	w.healthy()
}

// within runs commands in the network namespace of a pod on a node, with the node's programs.
func (w *world) within(node, name string) func(context.Context, ...string) (string, error) {
	w.T.Helper()
	netns, err := w.Node(node).PodNetNS(w.Ctx, "default/"+name)
	w.Must(err)
	return func(ctx context.Context, command ...string) (string, error) {
		out, err := exec.CommandContext(ctx, "nsenter", append([]string{"--net=" + netns}, command...)...).CombinedOutput()
		return string(out), err
	}
}

// virtualAddress: two pods have an address one after the other, and a third one reaches it.
func virtualAddress(w *world) {
	const pair = `{"type":"ovn-multinet","subnets":"10.52.0.0/24","virtualAddresses":[{"address":"10.52.0.100","selector":{"app":"pair"}}]}`
	w.Must(w.Apply(w.Ctx, nad("pair", pair)+pod("watcher", "node1", "pair")))
	w.Must(w.WaitReady(w.Ctx, "default/watcher"))
	for node, name := range map[string]string{"node1": "pair-1", "node2": "pair-2"} {
		w.Must(w.Apply(w.Ctx, strings.Replace(pod(name, node, "pair"), "  name: "+name, "  name: "+name+"\n  labels: {app: pair}", 1)))
	}
	w.Must(w.WaitReady(w.Ctx, "default/pair-1", "default/pair-2"))
	if out := w.multinet("who", "10.52.0.100"); !strings.Contains(out, "pods default with app=pair  virtual address") {
		w.T.Errorf("who 10.52.0.100: %s", out)
	}
	for node, name := range map[string]string{"node1": "pair-1", "node2": "pair-2"} { // one after the other
		for _, what := range []string{"add", "del"} {
			out, err := w.within(node, name)(w.Ctx, "ip", "addr", what, "10.52.0.100/32", "dev", "net1")
			if err != nil {
				w.T.Fatalf("ip addr %s in %s: %v: %s", what, name, err, out)
			}
			if what == "add" { // nothing announces it
				_, err := w.within("node1", "watcher")(w.Ctx, "ip", "neigh", "flush", "dev", "net1")
				w.Must(err)
				w.reaches("watcher", "net1", "10.52.0.100")
			}
		}
	}
	w.Must(w.Delete(w.Ctx, pod("pair-1", "node1", "pair")+pod("pair-2", "node2", "pair")+pod("watcher", "node1", "pair")+nad("pair", pair)))
}

// subnetBehind: a host behind a pod is reached from another network of the router while the pod is ready.
func subnetBehind(w *world) {
	const core = `{"type":"ovn-multinet","subnets":"10.53.0.0/24","router":"core","routes":[{"dst":"10.54.0.0/24"}],` +
		`"subnetsBehind":[{"subnet":"10.60.0.0/16","via":"10.53.0.5"}]}`
	const far = `{"type":"ovn-multinet","subnets":"10.54.0.0/24","router":"core","routes":[{"dst":"10.60.0.0/16"}]}`
	upf := pod("upf", "node1", `[{"name":"core","ips":["10.53.0.5"]}]`)
	networks, far1 := nad("core", core)+nad("far", far), pod("far-1", "node2", "far")
	w.Must(w.Apply(w.Ctx, networks+upf+far1))
	w.Must(w.WaitReady(w.Ctx, "default/upf", "default/far-1"))
	out, err := w.within("node1", "upf")(w.Ctx, "ip", "addr", "add", "10.60.0.7/32", "dev", "lo")
	if err != nil {
		w.T.Fatalf("ip addr add: %v: %s", err, out)
	}
	w.reaches("far-1", "net1", "10.60.0.7")
	if out := w.multinet("who", "10.60.0.7"); !strings.Contains(out, "behind them: 10.60.0.0/16 via 10.53.0.5") {
		w.T.Errorf("who 10.60.0.7: %s", out)
	}
	nextHop := func(want string) {
		w.T.Helper()
		w.Eventually(func() error {
			out := w.multinet("nbctl", "--", "--bare", "--columns=nexthop", "find", "Logical_Router_Static_Route", "ip_prefix=10.60.0.0/16")
			if got := strings.TrimSpace(out); got != want {
				return fmt.Errorf("10.60.0.0/16 is behind %q, want %q", got, want)
			}
			return nil
		})
	}
	nextHop("10.53.0.5")
	w.Must(w.Delete(w.Ctx, upf))
	nextHop("discard")
	w.Must(w.Delete(w.Ctx, far1+networks))
}
