package check

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/kubernetes"
)

// Status is what the programs of ovn-multinet do now.
type Status struct {
	Healthy bool      `json:"healthy"`
	Verdict string    `json:"verdict"`
	Checks  []Finding `json:"checks"`
}

// ReadStatus makes the checks of the programs of an installation alone: it needs fewer rights than Read.
func ReadStatus(ctx context.Context, core kubernetes.Interface, exec Exec) (*Status, error) {
	c := &Cluster{Secrets: map[string]map[string]bool{}}
	var err error
	if c.Version, err = core.Discovery().ServerVersion(); err != nil {
		return nil, fmt.Errorf("the API server does not answer: %w", err)
	}
	c.readNodes(ctx, core)
	c.readDaemonSets(ctx, core, Namespace, "list daemonsets in "+Namespace)
	c.readOurs(ctx, core)
	return c.status(ctx, exec), nil
}

func (c *Cluster) status(ctx context.Context, exec Exec) *Status {
	findings := slices.Clone(c.unread)
	switch {
	case c.Installed():
		findings = slices.Concat(findings, c.checkRunning(), c.AskPrograms(ctx, exec))
	case !c.unreadable("agents") && !c.unreadable("namespace"):
		findings = append(findings, fault("agents", "install it (docs/install.md)",
			"ovn-multinet is not installed: there is no DaemonSet %s/agent", Namespace))
	}
	return judge(findings, len(c.Nodes))
}

// answerTimeout is the time for the answer of one pod. The API server waits longer for a node that has lost its power.
const answerTimeout = 20 * time.Second

// AskPrograms asks the programs of an installation how they are.
func (c *Cluster) AskPrograms(ctx context.Context, exec Exec) []Finding {
	if !c.Installed() {
		return nil
	}
	ask := exec
	exec = func(ctx context.Context, pod, container string, command ...string) (string, error) {
		ctx, cancel := context.WithTimeout(ctx, answerTimeout)
		defer cancel()
		return ask(ctx, pod, container, command...)
	}
	return slices.Concat(c.CheckVersions(ctx, exec), c.CheckLeader(ctx, exec), c.CheckDatabases(ctx, exec))
}

// judge says whether all programs run. What is refused of others' objects is no fault of theirs.
func judge(findings []Finding, nodes int) *Status {
	s := &Status{Checks: Sort(findings)}
	var bad, unread []string
	for _, f := range s.Checks {
		switch {
		case f.Unread:
			unread = append(unread, f.What)
		case f.Level == Error || f.Pending:
			bad = append(bad, f.What)
		}
	}
	switch {
	case len(bad) > 0:
		s.Verdict = "not healthy: see " + strings.Join(slices.Compact(bad), ", ")
	case len(unread) > 0:
		s.Verdict = "unknown: cannot read " + strings.Join(slices.Compact(unread), ", ")
	default:
		s.Healthy, s.Verdict = true, fmt.Sprintf("healthy: all programs run, on %d nodes", nodes)
	}
	return s
}

// Forbidden reports whether a right is missing, so that waiting changes nothing.
func (s *Status) Forbidden() bool {
	return slices.ContainsFunc(s.Checks, func(f Finding) bool { return f.forbidden })
}

// ExitCode returns the exit code of the command.
func (s *Status) ExitCode() int {
	switch {
	case s.Healthy:
		return ExitOK
	case strings.HasPrefix(s.Verdict, "unknown"):
		return ExitUnread
	}
	return ExitErrors
}
