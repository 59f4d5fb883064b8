package arch

import (
	"slices"
	"strings"
	"testing"
)

// TestCommandForMacOS: kubectl-multinet is released for macOS too, so no package of ours that it needs there has Linux's
// system calls. To build it for macOS takes minutes, and the release does it.
func TestCommandForMacOS(t *testing.T) {
	list := toolGo(t, []string{"GOOS=darwin"}, "list", "-deps", "-f", "{{.ImportPath}} {{join .Imports \" \"}}", "./cmd/kubectl-multinet")
	ours := 0
	for line := range strings.Lines(list) {
		words := strings.Fields(line)
		if !within(words[0], module) {
			continue
		}
		ours++
		for _, path := range []string{"golang.org/x/sys/unix", "github.com/vishvananda/netlink"} {
			if slices.Contains(words[1:], path) {
				t.Errorf("kubectl-multinet needs %s, which imports %s", words[0], path)
			}
		}
	}
	if ours < 5 {
		t.Errorf("%d packages of ours in the list:\n%s", ours, list)
	}
}
