package nodefacts

import (
	"bufio"
	"bytes"
	"os"
	"path"
	"strings"
)

// States of a kernel module.
const (
	Loaded   = "loaded"
	BuiltIn  = "built in"
	Loadable = "loadable"
)

// Modules are the kernel modules of OVN's kernel datapath.
var Modules = []string{"openvswitch", "geneve"}

// modules returns the state of each module in Modules. The node has the lists of its modules in /lib/modules.
func modules(node root, proc procfs, kernel string) map[string]string {
	states := map[string]string{}
	inFolder := Absent
	if here, _, err := node.path("/lib/modules"); err == nil {
		if _, err := os.ReadDir(here); err != nil {
			inFolder = Unknown
		}
	}
	for _, name := range Modules {
		states[name] = inFolder
		for _, list := range []struct{ file, state string }{{"modules.dep", Loadable}, {"modules.builtin", BuiltIn}} {
			text, err := node.read(path.Join("/lib/modules", kernel, list.file))
			if err == nil && listed(text, name) {
				states[name] = list.state
			}
		}
		for line := range strings.Lines(proc.text("modules")) {
			if f := strings.Fields(line); len(f) > 0 && f[0] == name {
				states[name] = Loaded
			}
		}
	}
	return states
}

// listed reports whether a list of depmod has the module. Its lines begin with the module's path, such as
// "kernel/net/openvswitch/openvswitch.ko.xz: …".
func listed(text []byte, module string) bool {
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		file, _, _ := strings.Cut(lines.Text(), ":")
		if name, _, _ := strings.Cut(path.Base(file), ".ko"); name == module {
			return true
		}
	}
	return false
}
