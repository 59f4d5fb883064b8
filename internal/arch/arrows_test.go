package arch

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

// arrows lists what of ours each package may import, at most; "ovndb/..." is a folder with all below it.
var arrows = map[string][]string{
	"docs":                     {},
	"conf":                     {},
	"delegate/delegateconf":    {"conf"},
	"netmodel":                 {"conf", "delegate/delegateconf", "netmodel/cost"},
	"nad":                      {"conf", "delegate/delegateconf", "netmodel"},
	"agentapi":                 {"conf"},
	"sriov":                    {"conf", "sriov/deviceinfo"},
	"sriov/deviceinfo":         {"conf", "internal/plainfile"},
	"ovnport":                  {"netmodel", "conf", "ovnport/uplink", "ovndb/...", "internal/failpoint", "internal/stale", "internal/unixctl"},
	"controller":               {"controller/...", "netmodel", "conf", "ovndb/...", "ovnnet", "ovnnet/gateway", "ovnnet/ipamclaims", "ovnnet/nbrows", "ovnnet/outside", "ovnnet/policies", "ovnnet/services", "netmodel/policy"},
	"controller/nads":          {"controller/engine", "netmodel"},
	"controller/pods":          {"controller/engine", "netmodel"},
	"controller/paths":         {"controller/engine", "netmodel", "ovnnet", "ovnnet/nbrows", "ovnnet/pathmtu"},
	"controller/uplinks":       {"conf", "controller/engine", "netmodel", "netmodel/entry", "ovnnet", "ovnnet/nbrows", "ovnnet/uplinks"},
	"controller/networks":      {"controller/engine", "controller/nads", "controller/paths", "netmodel", "conf", "ovnnet", "ovnnet/nbrows"},
	"controller/policies":      {"controller/engine", "controller/nads", "controller/pods", "netmodel", "conf", "ovnnet", "ovnnet/gateway", "ovnnet/nbrows", "ovnnet/policies", "netmodel/policy", "netmodel/cost"},
	"controller/services":      {"controller/engine", "controller/nads", "controller/pods", "netmodel", "conf", "ovnnet", "ovnnet/nbrows", "ovnnet/outside", "ovnnet/services", "netmodel/policy", "netmodel/service"},
	"controller/outside":       {"controller/engine", "controller/pods", "netmodel", "conf", "ovnnet", "ovnnet/gateway", "ovnnet/nbrows", "ovnnet/outside"},
	"controller/subnetsbehind": {"controller/engine", "controller/pods", "netmodel", "ovnnet"},
	"controller/ipamclaims":    {"controller/engine", "controller/pods", "netmodel", "ovnnet", "ovnnet/ipamclaims"},
	"controller/entries":       {"controller/configfile", "controller/engine", "netmodel", "netmodel/entry", "conf", "ovnnet", "ovnnet/outside"},
	"netmodel/cost":            {"conf"},
	"netmodel/policy":          {"netmodel/cost"},
	"netmodel/entry":           {},
	"netmodel/service":         {"netmodel", "netmodel/cost"},
	"ovnnet/policies":          {"netmodel/policy", "ovndb/...", "ovnnet/nbrows"},
	"ovnnet/services":          {"netmodel/service", "netmodel", "ovndb/...", "ovnnet/ended", "ovnnet/nbrows"},
	"ovnnet/ipamclaims":        {"ovndb/...", "ovnnet/nbrows"},
	"ovnnet/outside":           {"netmodel", "ovndb/...", "ovnnet/ended", "ovnnet/nbrows"},
	"ovnnet":                   {"netmodel", "conf", "ovndb/...", "ovnnet/nbrows", "ovnnet/gateway"},
	"ovnnet/nbrows":            {"netmodel", "conf", "ovndb/..."},
	"ovnnet/ended":             {"ovndb/...", "ovnnet/nbrows"},
	"ovnnet/gateway":           {"netmodel", "ovndb/...", "ovnnet/nbrows", "ovnnet/pathmtu", "ovnnet/uplinks"},
	"ovnnet/uplinks":           {"netmodel", "ovndb/...", "ovnnet/nbrows"},
	"ovnport/uplink":           {"conf", "netmodel", "ovndb/..."},
	"ovnnet/pathmtu":           {"ovndb/...", "ovnnet/nbrows"},
	"ovnnet/nodesubnet":        {"netmodel", "conf", "ovndb/...", "ovnnet/nbrows"},
	"ovnnet/view":              {"netmodel", "ovndb/...", "ovnnet/gateway", "ovnnet/nbrows", "ovnnet/pathmtu"},
	"ovnnet/nbtest":            {"netmodel", "conf", "ovndb/...", "ovndb/ovndbtest", "ovnnet/..."},
	"ovndb":                    {"ovndb/..."},
	"ovndb/nb":                 {},
	"ovndb/vswitch":            {},
	"ovndb/ovndbtest":          {},
	"source":                   {"netmodel", "nad", "conf", "netmodel/entry", "netmodel/policy", "netmodel/service", "internal/plainfile", "source/daemonnodes"},
	"source/daemonnodes":       {"conf"},
	"node/journal":             {"agentapi", "conf", "internal/failpoint", "internal/plainfile"},
	"node/wiring":              {"agentapi", "conf", "internal/failpoint"},
	"delegate":                 {"agentapi", "conf", "delegate/delegateconf", "node/journal", "node/wiring", "sriov/deviceinfo", "node/cniexec", "internal/failpoint", "internal/plainfile"},
	"plugin":                   {"agentapi", "conf", "node/journal", "node/wiring", "delegate", "sriov/deviceinfo", "internal/failpoint"},
	"agent":                    {"netmodel", "agent/denied", "agent/probe", "conf", "nad", "agentapi", "node/journal", "sriov", "sriov/deviceinfo", "ovnport", "ovnnet/ended", "ovnnet/gateway", "ovnnet/nodesubnet", "ovnnet/nbrows", "ovnnet/pathmtu", "ovnnet/uplinks", "ovndb/...", "netmodel/policy", "source", "internal/failpoint", "node/linkmtu", "ovnport/uplink", "internal/stale"},
	"agent/denied":             {"ovndb", "ovnport"},
	"agent/probe":              {},
	"node/attach":              {"agentapi", "conf", "node/cniexec"},
	"node/install":             {"conf", "agentapi", "node/journal", "node/cniexec", "internal/plainfile"},
	"ovnrun":                   {"conf", "netmodel", "ovnrun/authority", "ovndb/members", "internal/unixctl"},
	"ovnrun/authority":         {"conf", "netmodel", "ovndb/members"},
	"ovndb/members":            {},
	"ovnrun/placement":         {"conf", "ovndb/members"},
	"node/cniexec":             {},
	"internal/failpoint":       {},
	"internal/hostile":         {},
	"internal/nettest":         {},
	"node/linkmtu":             {},
	"internal/plainfile":       {},
	"internal/stale":           {},
	"internal/unixctl":         {},
	"kubectl/show":             {"netmodel", "nad", "conf", "ovnnet/outside", "ovnnet/policies", "ovnnet/services", "ovnnet/view", "netmodel/policy", "netmodel/service", "agentapi", "kubectl/check", "docs"},
	"kubectl/convert":          {"conf", "netmodel/entry", "kubectl/lint"},
	"kubectl/lint":             {"netmodel", "netmodel/entry", "netmodel/policy", "netmodel/service", "nad", "conf", "controller/configfile", "controller/entries"},
	"kubectl/check":            {"netmodel", "netmodel/entry", "nad", "conf", "node/install", "node/nodefacts", "ovndb/members", "ovnrun/authority", "source/daemonnodes"},
	"kubectl/sysdump":          {"netmodel", "netmodel/entry", "nad", "conf", "controller/configfile", "ovndb/members", "ovnrun/authority", "kubectl/check", "internal/version"},
	"kubectl/uninstall":        {"nad", "netmodel", "conf", "ovnrun/authority", "ovndb/members", "ovnrun/placement"},
	"node/nodefacts":           {"node/install", "node/journal", "agentapi", "conf", "internal/version"},
	"internal/arch":            {},
	"internal/buildcache":      {},
	"examples":                 {},

	"controller/engine":     {"conf", "netmodel", "netmodel/cost"},
	"controller/stalenodes": {"conf", "ovndb/...", "ovnnet", "ovnnet/gateway", "ovnnet/nbrows", "internal/stale"},

	"controller/configfile": {"netmodel", "netmodel/cost"},
	"internal/daemon":       {"conf", "ovndb/...", "ovndb/members", "internal/program"},
	"controller/leader":     {},
	"internal/program":      {"conf", "internal/version"},
	"internal/version":      {},

	"cmd/kubectl-multinet":        {"netmodel", "netmodel/entry", "controller/configfile", "nad", "conf", "source", "ovndb", "ovnnet/nbrows", "ovnnet/outside", "ovnnet/policies", "ovnnet/services", "ovnnet/view", "netmodel/policy", "netmodel/service", "ovnrun/authority", "ovndb/members", "kubectl/check", "kubectl/convert", "kubectl/lint", "internal/daemon", "internal/program", "kubectl/show", "kubectl/sysdump"},
	"cmd/ovn-multinet":            {"plugin", "internal/version"},
	"cmd/ovn-multinet-attach":     {"conf", "node/attach", "internal/program"},
	"cmd/ovn-multinetd":           {"netmodel", "agent", "conf", "source", "ovnport", "sriov", "agentapi", "internal/daemon", "internal/program", "kubectl/show"},
	"cmd/ovn-multinet-install":    {"conf", "node/install", "node/nodefacts", "internal/program"},
	"cmd/ovn-multinet-controller": {"netmodel", "netmodel/entry", "conf", "source", "controller", "controller/entries", "controller/ipamclaims", "controller/outside", "controller/pods", "controller/policies", "controller/services", "controller/stalenodes", "ovndb", "ovndb/members", "ovnport", "ovnrun/...", "controller/configfile", "internal/daemon", "controller/leader", "internal/program", "kubectl/uninstall"},
	"cmd/ovn-multinet-ovn":        {"ovnrun/...", "internal/daemon", "internal/program"},
}

// testOnly are packages that product code may not import.
var testOnly = []string{"e2e", "hack", "images", "ovndb/ovndbtest", "ovnnet/nbtest", "internal/arch", "internal/buildcache", "internal/hostile", "internal/nettest"}

func TestArrows(t *testing.T) {
	for _, p := range packages(t) {
		if within(p.path, "e2e") || within(p.path, "hack") || within(p.path, "images") {
			continue
		}
		allowed, known := arrows[p.path]
		if !known {
			t.Errorf("package %s is not in the table of arrows", p.path)
			continue
		}
		for _, f := range p.files {
			for _, i := range f.imports() {
				target, ours := own(i)
				if ours && !f.test && !permitted(target, allowed) {
					t.Errorf("%s imports %s; %s may import of ours at most %v", f.path, target, p.path, allowed)
				}
				if ours && within(target, "e2e") {
					t.Errorf("%s imports %s, which is for e2e alone", f.path, target)
				}
			}
		}
	}
}

// TestFoldersHaveNoCircle: no folder at the top imports, through others, from itself. Tests are not bound: they may use
// whatever makes a case real.
func TestFoldersHaveNoCircle(t *testing.T) {
	imports := map[string]map[string]bool{}
	for _, p := range packages(t) {
		from, _, _ := strings.Cut(p.path, "/")
		for _, f := range p.files {
			for _, i := range f.imports() {
				target, ours := own(i)
				to, _, _ := strings.Cut(target, "/")
				if !ours || f.test || from == to {
					continue
				}
				if imports[from] == nil {
					imports[from] = map[string]bool{}
				}
				imports[from][to] = true
			}
		}
	}
	// Folders that import nothing that is left are taken away, until none is left or only circles are.
	for len(imports) > 0 {
		before := len(imports)
		for from, targets := range imports {
			maps.DeleteFunc(targets, func(to string, _ bool) bool { return imports[to] == nil })
			if len(targets) == 0 {
				delete(imports, from)
			}
		}
		if len(imports) == before {
			t.Fatalf("these folders import each other in a circle: %v", imports)
		}
	}
}

func permitted(target string, allowed []string) bool {
	return slices.ContainsFunc(allowed, func(a string) bool {
		folder, all := strings.CutSuffix(a, "/...")
		return target == folder || all && within(target, folder) && !slices.Contains(testOnly, target)
	})
}

// never lists what of others' a package may not import, by the beginning of the path. What it owns is in design.md.
var never = map[string][]string{
	"conf":                  {"os", "net/http", "k8s.io", "github.com/k8snetworkplumbingwg", "github.com/ovn-kubernetes"},
	"delegate/delegateconf": {"os", "net/http", "k8s.io", "github.com/k8snetworkplumbingwg", "github.com/ovn-kubernetes"},
	"netmodel":              {"os", "net/http", "k8s.io", "github.com/k8snetworkplumbingwg", "github.com/ovn-kubernetes"},
	"nad":                   {"os", "k8s.io", "github.com/vishvananda", "github.com/ovn-kubernetes"},
	"agentapi":              {"k8s.io", "github.com/vishvananda", "github.com/ovn-kubernetes", "github.com/prometheus", "net/http"},
	"node/journal":          {"k8s.io", "github.com/vishvananda", "github.com/ovn-kubernetes", "github.com/prometheus", "net/http"},
	"node/wiring":           {"k8s.io", "github.com/k8snetworkplumbingwg", "github.com/ovn-kubernetes", "github.com/prometheus", "net/http"},
	"delegate":              {"k8s.io", "github.com/k8snetworkplumbingwg", "github.com/ovn-kubernetes", "github.com/prometheus", "net/http"},
	"plugin":                {"k8s.io", "github.com/k8snetworkplumbingwg", "github.com/ovn-kubernetes", "github.com/prometheus", "net/http"},
	"agent":                 {"github.com/vishvananda", "github.com/containernetworking/plugins", "os/exec"},
	"ovnport":               {"k8s.io", "github.com/k8snetworkplumbingwg", "github.com/vishvananda"},
	"controller":            {"k8s.io/api", "k8s.io/client-go/kubernetes", "github.com/k8snetworkplumbingwg", "github.com/vishvananda"},
	"ovnnet":                {"k8s.io", "github.com/k8snetworkplumbingwg", "github.com/vishvananda"},
	"ovnnet/services":       {"k8s.io", "github.com/k8snetworkplumbingwg", "github.com/vishvananda"},
	"ovnnet/outside":        {"k8s.io", "github.com/k8snetworkplumbingwg", "github.com/vishvananda"},
	"ovnnet/nbrows":         {"k8s.io", "github.com/k8snetworkplumbingwg", "github.com/vishvananda"},
	"ovnnet/gateway":        {"k8s.io/api", "k8s.io/client-go/kubernetes", "github.com/k8snetworkplumbingwg", "github.com/vishvananda"},
	"ovndb":                 {"k8s.io", "github.com/vishvananda"},
	"source":                {"github.com/ovn-kubernetes", "github.com/vishvananda", "github.com/containernetworking"},
	"sriov":                 {"github.com/ovn-kubernetes"},
	"sriov/deviceinfo":      {"github.com/ovn-kubernetes", "k8s.io", "google.golang.org"},
	"node/install":          {"k8s.io", "net/http", "github.com/prometheus", "github.com/ovn-kubernetes", "github.com/vishvananda"},
	"internal/daemon":       {"github.com/vishvananda", "github.com/containernetworking"},

	"node/nodefacts": {"k8s.io", "net/http", "github.com/prometheus", "github.com/ovn-kubernetes", "github.com/vishvananda"},
}

func TestNeverImported(t *testing.T) {
	all := packages(t)
	for name, banned := range never {
		if all[name] == nil {
			continue // not written yet
		}
		for _, f := range all[name].files {
			for _, i := range f.imports() {
				if !f.test && slices.ContainsFunc(banned, func(b string) bool { return within(i, b) }) {
					t.Errorf("%s imports %s", f.path, i)
				}
			}
		}
	}
}

// execs are the folders and files whose code may run programs: CNI plugins and the daemons of OVN, of the product's.
var execs = []string{"e2e", "hack", "images/helm", "images/promtool", "images/trixie", "ovndb/ovndbtest", "node/cniexec", "internal/nettest",
	"ovnrun/child.go", "ovnrun/host.go"}

// forOperators are the files that name the tools which an operator runs by the API server, in the pods of the chart's OVN.
var forOperators = []string{"cmd/kubectl-multinet/tools.go", "images/ovn.go"}

func TestNobodyRunsPrograms(t *testing.T) {
	for _, p := range packages(t) {
		if slices.ContainsFunc(execs, func(e string) bool { return within(p.path, e) }) {
			continue
		}
		for _, f := range p.files {
			if f.test {
				continue
			}
			if slices.Contains(f.imports(), "os/exec") && !slices.Contains(execs, f.path) {
				t.Errorf("%s imports os/exec", f.path)
			}
			for _, text := range f.strings() {
				if isTool(text) && !slices.Contains(forOperators, f.path) {
					t.Errorf("%s has %q: rows and links are written directly, not by tools", f.path, text)
				}
			}
		}
	}
}

// isTool reports whether a string is the name of a network tool, bare or with a path. The name within a sentence is a
// hint to the reader.
func isTool(text string) bool {
	base := text[strings.LastIndexByte(text, '/')+1:]
	return slices.Contains([]string{"ip", "ovn-nbctl", "ovn-sbctl", "ovs-vsctl", "ovs-ofctl", "ovs-appctl", "ovn-appctl",
		"ethtool", "nsenter", "iptables", "nft", "sysctl", "tc"}, base) && (base == text || strings.Contains(text, "bin/"))
}

func TestIsTool(t *testing.T) {
	for text, want := range map[string]bool{
		"ip": true, "/sbin/ip": true, "/usr/bin/ovn-nbctl": true, "ips": false, "ovs-vsctl set Open_vSwitch": false,
		"/proc/sys/net/ipv4/ip": false, "": false, "github.com/x/ip": false,
	} {
		if isTool(text) != want {
			t.Errorf("%q: %t", text, !want)
		}
	}
}

// Documentation of a package begins with what it owns: a reader who opens any folder blind finds that first.
func TestPackageComments(t *testing.T) {
	for _, p := range packages(t) {
		if p.path == "ovndb/nb" || p.path == "ovndb/vswitch" { // generated
			continue
		}
		want := fmt.Sprintf("Package %s owns ", p.name)
		if p.name == "main" {
			want = fmt.Sprintf("Command %s ", p.path[strings.LastIndexByte(p.path, '/')+1:])
		}
		if !slices.ContainsFunc(p.files, func(f *file) bool { return strings.HasPrefix(f.Doc.Text(), want) }) {
			t.Errorf("package %s: no file's package comment begins %q", p.path, want)
		}
	}
}
