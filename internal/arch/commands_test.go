package arch

import (
	"regexp"
	"strings"
	"testing"
)

// onHosts are commands in the pages that only an operator with an OVN of its own runs, on the hosts of that OVN. The pages
// say so beside them.
var onHosts = map[string][]string{
	"docs/failures.md": { // faults of versions that are older than the chart's
		"ovs-ofctl dump-flows br-int", "ovs-appctl dpctl/dump-flows", "ovs-appctl dpctl/del-flows",
		"ovn-appctl -t ovn-controller inc-engine/recompute", "ovs-appctl ovs/route/add",
	},
	"docs/policy.md": {"ovs-appctl dpctl/del-flows"}, // the same
	"docs/operations.md": {
		"ovsdb-client convert SERVER ovn-nb-roles.ovsschema", "ovn-nbctl set-connection pssl:16641:192.0.2.1",
		`ovsdb-client transact SERVER "$(go run ./hack/nbroles transact pssl:6641:192.0.2.1)"`,
		"ovn-nbctl --db=ssl:192.0.2.1:6641 ls-add x", "ovsdb-client backup", "ovsdb-client restore", "ovn-nbctl …", "ovs-vsctl …",
	},
}

var (
	shell    = regexp.MustCompile("(?ms)^ *```sh\n(.*?)^ *```")
	ofOVN    = regexp.MustCompile(`(?:^|[\s|(;])((?:ovn|ovs|ovsdb)-(?:nbctl|sbctl|trace|appctl|vsctl|ofctl|client) [^#\n]+)`)
	ofOVNsIn = regexp.MustCompile("`((?:ovn|ovs|ovsdb)-(?:nbctl|sbctl|trace|appctl|vsctl|ofctl|client)\\s[^`]*)`")
)

// TestCommandsOfTheDocs: what the pages tell an operator to run works on the default installation, from a client that
// reaches only the API server: OVN's and Open vSwitch's programs run by `kubectl multinet`.
func TestCommandsOfTheDocs(t *testing.T) {
	unused := map[string]bool{}
	for page, commands := range onHosts {
		for _, c := range commands {
			unused[page+" "+c] = true
		}
	}
	check := func(page, command string) {
		command = strings.Join(strings.Fields(command), " ")
		for _, c := range onHosts[page] {
			if c == command {
				delete(unused, page+" "+c)
				return
			}
		}
		t.Errorf("%s: %q does not run on the default installation: write kubectl multinet nbctl, vsctl --node, …", page, command)
	}
	for page, text := range pages(t) {
		if strings.HasPrefix(page, "docs/design") || page == "CHANGELOG.md" || strings.HasPrefix(page, "e2e") {
			continue
		}
		for _, block := range shell.FindAllStringSubmatch(text, -1) {
			for line := range strings.Lines(block[1]) {
				code, _, _ := strings.Cut(line, "#")
				for _, m := range ofOVN.FindAllStringSubmatch(code, -1) {
					check(page, m[1])
				}
			}
		}
		for _, m := range ofOVNsIn.FindAllStringSubmatch(text, -1) {
			check(page, m[1])
		}
	}
	for c := range unused {
		t.Errorf("no page has %s", c)
	}
}
