package ovnrun

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ovn-multinet/ovn-multinet/internal/unixctl"
)

// readyTimeout is a little shorter than the timeout of the probes in the chart, so that a probe's Event has our words.
const readyTimeout = 8 * time.Second

// probes has what is asked of each daemon that is no database of a raft, by the name of its container.
var probes = map[string]struct{ daemon, command, answer, why string }{
	"ovsdb":      {"ovsdb-server", "version", "", ""},
	"vswitchd":   {"ovs-vswitchd", "version", "", ""},
	"controller": {"ovn-controller", "connection-status", "connected", "it has no connection to SB's leader"},
	"northd":     {"northd", "status", "", ""},
}

// Ready returns an error unless a daemon answers at its control socket in a folder, and does its work. A daemon that
// computes for longer than a few seconds does not answer either, so the answer is for readiness, and not for restarts.
func Ready(ctx context.Context, runDir, container string) error {
	p, known := probes[container]
	if !known {
		return fmt.Errorf("no daemon %q: give one of %s", container, strings.Join(slices.Sorted(maps.Keys(probes)), ", "))
	}
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	socket, err := unixctl.Socket(runDir, p.daemon)
	text := ""
	if err == nil {
		text, err = unixctl.Call(ctx, socket, p.command)
	}
	if err != nil {
		return fmt.Errorf("%s does not answer: %w", p.daemon, err)
	}
	if text = strings.TrimSpace(text); p.answer != "" && text != p.answer {
		return fmt.Errorf("%s: %s (%s: %q)", p.daemon, p.why, p.command, text)
	}
	return nil
}
