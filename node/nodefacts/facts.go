// Package nodefacts owns what a node says of itself to `kubectl multinet check`: its CNI files, kernel modules, ports
// and Open vSwitch. It only reads, and it needs neither a capability nor a token.
package nodefacts

import (
	"slices"
	"strings"
)

// Facts is what one node has. Its JSON has one line. A newer version may add keys.
type Facts struct {
	Version      string            `json:"version"` // of the program that read the facts
	Architecture string            `json:"architecture"`
	Kernel       string            `json:"kernel"`
	CNI          CNI               `json:"cni"`
	Modules      map[string]string `json:"modules"`   // the state of each kernel module in Modules
	Ports        []Port            `json:"ports"`     // of Ports, those that are in use
	Processes    []string          `json:"processes"` // of Processes, those that run
	OVS          OVS               `json:"ovs"`
	NB           []Endpoint        `json:"nb,omitempty"`
	Inotify      Inotify           `json:"inotify"`
	// Lost are interfaces of pods whose host-side veths are gone: "<namespace>/<pod>/<interface>".
	Lost []string `json:"lost,omitempty"`
}

// States of a folder.
const (
	Absent   = "absent"
	ReadOnly = "read-only"
	Writable = "writable"
	Unknown  = "unknown"
)

// Folder is a folder of the node.
type Folder struct {
	Path  string `json:"path"`
	State string `json:"state"`
}

// CNI is what the node's container runtime would run for a pod.
type CNI struct {
	NetDir     Folder   `json:"netDir"`
	BinDir     Folder   `json:"binDir"`
	Files      []string `json:"files"`           // the configurations, in the order in which the runtime chooses
	Primary    string   `json:"primary"`         // the primary network's file; "": none
	Error      string   `json:"error,omitempty"` // why there is none
	CNIVersion string   `json:"cniVersion,omitempty"`
	Programs   []string `json:"programs,omitempty"` // that the primary network's conflist runs
	Missing    []string `json:"missing,omitempty"`  // of Programs, those that BinDir does not have
}

// Port is a port of the node that a program uses.
type Port struct {
	Protocol string `json:"protocol"` // tcp or udp
	Number   int    `json:"number"`
}

// Ports are the ports that OVN needs: Geneve, and the servers of NB and SB with their raft.
var Ports = []Port{{"udp", 6081}, {"tcp", 6641}, {"tcp", 6642}, {"tcp", 6643}, {"tcp", 6644}}

// Processes are the programs of Open vSwitch and OVN.
var Processes = []string{"ovs-vswitchd", "ovsdb-server", "ovn-controller", "ovn-northd"}

// Endpoint is an endpoint of NB, as the node reaches it.
type Endpoint struct {
	Endpoint string `json:"endpoint"`
	Error    string `json:"error,omitempty"`
}

// Inotify has the limits of the node for inotify.
type Inotify struct {
	Instances int `json:"instances"`
	Watches   int `json:"watches"`
}

// Config says where the node has what.
type Config struct {
	Root      string // the folder where the node's root folder is mounted
	Proc      string // procfs of the node: its processes, and its network in Proc/net
	NetDir    string
	BinDir    string
	Primary   string // the name of the primary network's file; "": the first one
	OVSSocket string
	Endpoints []string // of NB
}

// Uses reports whether a program uses the port.
func (f *Facts) Uses(protocol string, number int) bool {
	return slices.Contains(f.Ports, Port{protocol, number})
}

// Runs reports whether the program runs on the node.
func (f *Facts) Runs(program string) bool { return slices.Contains(f.Processes, program) }

// Plugin reports whether the primary network's conflist runs a program of the given name.
func (c *CNI) Plugin(name string) bool {
	return slices.ContainsFunc(c.Programs, func(p string) bool { return strings.HasPrefix(p, name) })
}
