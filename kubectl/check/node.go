package check

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/node/nodefacts"
)

// CheckNodes judges what the nodes say of themselves.
func (c *Cluster) CheckNodes(p Plan, facts map[string]*nodefacts.Facts) (all []Finding) {
	for _, node := range slices.Sorted(maps.Keys(facts)) {
		f := facts[node]
		all = append(all, on(node, slices.Concat(
			checkConflist(f, c.Installed()), checkFolders(&f.CNI), checkModules(f, p), checkPorts(f),
			c.checkOVS(f, p), checkNB(f.NB), checkInotify(f.Inotify), checkLost(f.Lost),
		))...)
	}
	return all
}

func checkConflist(f *nodefacts.Facts, installed bool) (all []Finding) {
	const what = "conflist"
	n := &f.CNI
	if n.Primary == "" {
		const fix = "install the primary network, or set distribution, cni.confDir and cni.primary to where its file is"
		return []Finding{fault(what, fix, "%s has no conflist of a primary network: %s", n.NetDir.Path, oneLine(n.Error))}
	}
	if first := n.Files[0]; first < conf.ConflistName {
		fix := "remove or rename it on the node"
		if n.Plugin("multus") {
			fix = "uninstall Multus, and remove this file from the node"
		}
		all = append(all, fault(what, fix, "the runtime uses %s, which comes before %s by name", first, conf.ConflistName))
	}
	if installed && !slices.Contains(n.Files, conf.ConflistName) {
		const fix = "the logs of both containers of the agent's pod on this node say what they wait for"
		all = append(all, fault(what, fix, "the installer has not written %s", conf.ConflistName))
	}
	if len(all) == 0 {
		all = append(all, ok(what, "%s, CNI %s", n.Primary, n.CNIVersion))
	}
	if len(n.Missing) > 0 {
		const fix = "install it there, or set distribution and cni.binDir to where it is"
		return append(all, fault("cni-plugins", fix, "%s runs %s, and %s does not have it", n.Primary,
			strings.Join(n.Missing, ", "), n.BinDir.Path))
	}
	return append(all, ok("cni-plugins", "%s has %s", n.BinDir.Path, strings.Join(n.Programs, ", ")))
}

func checkFolders(n *nodefacts.CNI) (all []Finding) {
	const what = "plugin-folder"
	for _, folder := range []nodefacts.Folder{n.NetDir, n.BinDir} {
		switch folder.State {
		case nodefacts.ReadOnly:
			const fix = "mount it writable, or set cni.confDir and cni.binDir to writable folders that the runtime uses"
			all = append(all, fault(what, fix, "%s is on a file system that is read-only", folder.Path))
		case nodefacts.Absent:
			all = append(all, warning(what, "set the value distribution to that of the nodes",
				"there is no folder %s", folder.Path))
		}
	}
	if len(all) == 0 {
		all = append(all, ok(what, "%s and %s are not read-only", n.NetDir.Path, n.BinDir.Path))
	}
	return all
}

func checkModules(f *nodefacts.Facts, p Plan) []Finding {
	const what = "kernel-modules"
	var absent, states []string
	for _, name := range nodefacts.Modules {
		state := f.Modules[name]
		states = append(states, name+" is "+state)
		if state == nodefacts.Absent {
			absent = append(absent, name)
		}
	}
	cause := fmt.Sprintf("kernel %s: %s", f.Kernel, strings.Join(states, ", "))
	switch {
	case len(absent) == 0:
		return []Finding{ok(what, "%s", cause)}
	case slices.Contains(f.OVS.Userspace, p.Bridge):
		return []Finding{ok(what, "%s; %s has the userspace datapath, which needs neither", cause, p.Bridge)}
	case p.BringsOVN && p.Datapath == "kernel":
		return []Finding{fault(what, "install the kernel's extra modules, or set ovn.datapath to userspace, which is slower",
			"%s, and ovn.datapath is kernel", cause)}
	case p.BringsOVN && p.Decided && p.TunnelInterface == "":
		return []Finding{fault(what, "install the kernel's extra modules, or set ovn.tunnelInterface to an interface that "+
			"the node uses for nothing else: the userspace datapath, which is slower, takes it over", "%s", cause)}
	case p.BringsOVN && p.Decided:
		return []Finding{ok(what, "%s; the userspace datapath will take %s over", cause, p.TunnelInterface)}
	}
	return []Finding{warning(what, "install the kernel's extra modules, or use the userspace datapath, which is slower: "+
		"ovn.tunnelInterface, or datapath_type=netdev and external_ids:ovn-bridge-datapath-type=netdev in an OVN of your own",
		"%s", cause)}
}

// geneve is the UDP port of Geneve (RFC 8926).
const geneve = 6081

func checkPorts(f *nodefacts.Facts) (all []Finding) {
	const what = "ports"
	ours := f.OVS.Error == "" || f.Runs("ovs-vswitchd")
	if f.Uses("udp", geneve) && !ours {
		all = append(all, fault(what, "move the other program to another port: OVN's tunnels use it",
			"UDP port %d is in use, and no Open vSwitch runs", geneve))
	}
	var servers []string
	for _, port := range f.Ports {
		if port.Protocol == "tcp" {
			servers = append(servers, strconv.Itoa(port.Number))
		}
	}
	if len(servers) > 0 && !f.Runs("ovsdb-server") {
		all = append(all, warning(what, "run OVN's databases on other nodes, or move the other program",
			"TCP ports %s are in use, and no ovsdb-server runs", strings.Join(servers, ", ")))
	}
	if len(all) == 0 {
		cause := "UDP 6081 and TCP 6641 to 6644 are free, or OVN's"
		all = append(all, ok(what, "%s", cause))
	}
	return all
}

// oldestOVS is the oldest release of Open vSwitch that the tests use.
var oldestOVS = [2]int{3, 1}

func (c *Cluster) checkOVS(f *nodefacts.Facts, p Plan) (all []Finding) {
	const what = "open-vswitch"
	o, bridge := &f.OVS, p.Bridge
	if p.BringsOVN && !c.bringsOVN() { // it is not installed yet
		if len(f.Processes) == 0 && o.Error != "" {
			return []Finding{ok(what, "the node runs none: the chart brings it")}
		}
		if p.Decided {
			return []Finding{fault(what, "stop and uninstall it, or set ovn.enabled to false and use this OVN",
				"the node runs %s already", cmp.Or(strings.Join(f.Processes, ", "), "Open vSwitch"))}
		}
	}
	if o.Error != "" && c.bringsOVN() {
		return []Finding{fault(what, "the logs of the pod ovn-node on this node say what it waits for",
			"its database does not answer: %s", oneLine(o.Error))}
	}
	if o.Error != "" {
		const fix = "install Open vSwitch and ovn-controller (Debian: openvswitch-switch, ovn-host), or set ovn.ovsSocket"
		return []Finding{fault(what, fix, "its database does not answer: %s", oneLine(o.Error))}
	}
	for _, key := range []string{"ovn-remote", "ovn-encap-type", "ovn-encap-ip"} {
		if o.OVN[key] == "" && o.OVN[key+"-"+o.SystemID] == "" {
			all = append(all, fault(what, "ovs-vsctl set Open_vSwitch . external_ids:"+key+"=…",
				"ovn-controller is not configured: external_ids has no %s", key))
		}
	}
	if o.SystemID == "" {
		all = append(all, fault(what, "ovs-vsctl set Open_vSwitch . external_ids:system-id=…",
			"the node has no system-id, its name in OVN"))
	}
	if !slices.Contains(o.Bridges, bridge) {
		all = append(all, fault(what, "start ovn-controller, and see in its log whether it reaches the Southbound database",
			"there is no bridge %s, which ovn-controller makes", bridge))
	}
	// The start script of Open vSwitch writes the version. Without the script it is empty.
	if version := numbers(o.Version); o.Version != "" && slices.Compare(version[:], oldestOVS[:]) < 0 {
		all = append(all, warning(what, "upgrade Open vSwitch", "%s is not tested, 3.1 and 3.5 are", o.Version))
	}
	if len(all) == 0 {
		all = append(all, ok(what, "Open vSwitch %s with %s", cmp.Or(o.Version, "of an unknown version"), bridge))
	}
	return all
}

// numbers returns the first two numbers of a version.
func numbers(version string) (all [2]int) {
	for i, text := range strings.SplitN(version, ".", 3) {
		if i < len(all) {
			all[i], _ = strconv.Atoi(text)
		}
	}
	return all
}

func checkNB(endpoints []nodefacts.Endpoint) (all []Finding) {
	const what = "nb-endpoints"
	failed := 0
	for _, e := range endpoints {
		if e.Error == "" {
			continue
		}
		failed++
		all = append(all, warning(what, "start NB there, open the port to the nodes, or correct ovn.nbEndpoints",
			"the node does not reach %s: %s", e.Endpoint, oneLine(e.Error)))
	}
	for i := range all {
		if failed == len(endpoints) {
			all[i].Level = Error
		}
	}
	return all
}

// checkLost judges the interfaces of pods that the node has lost. Nothing else than the node itself knows of them.
func checkLost(lost []string) []Finding {
	const what = "pod-interfaces"
	if len(lost) == 0 {
		return []Finding{ok(what, "no interface of a pod is lost")}
	}
	const fix = "delete the pods, so that they are made again; with attach.enabled their interfaces are made again"
	return []Finding{warning(what, fix, "host-side veths are gone: %s", firstOf(lost))}
}

// fewInstances is Linux's default. kubelet, the runtime and the installer use many of them.
const fewInstances = 128

func checkInotify(i nodefacts.Inotify) []Finding {
	const what = "inotify"
	if i.Instances > 0 && i.Instances <= fewInstances {
		return []Finding{warning(what, "sysctl -w fs.inotify.max_user_instances=1024, and the same in /etc/sysctl.d",
			"fs.inotify.max_user_instances is %d, which is low for a node", i.Instances)}
	}
	return []Finding{ok(what, "max_user_instances %d, max_user_watches %d", i.Instances, i.Watches)}
}
