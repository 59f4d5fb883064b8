package agent

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/journal"
	"github.com/ovn-multinet/ovn-multinet/nad"
)

// readFailedDELs reads from the journal which attachments have delegates that would not go.
func (a *Agent) readFailedDELs() ([]agentapi.FailedDEL, error) {
	attached, _, err := a.journal.Summaries()
	if err != nil {
		return nil, conf.Errorf(conf.CodeTryAgain, "can the agent read the plugin's journal below --state-dir?", "%w", err)
	}
	return failedDELs(attached), nil
}

// failedDELs lists the attachments with delegates that would not go.
func failedDELs(attached []journal.Summary) []agentapi.FailedDEL {
	all := []agentapi.FailedDEL{}
	for i := range attached {
		e := &attached[i]
		if e.FailedAttempts == 0 || e.Plan == nil {
			continue
		}
		l := agentapi.FailedDEL{Sandbox: e.Sandbox, FailedAttempts: e.FailedAttempts, LastError: e.LastError, Since: e.Written, Forgotten: e.Forgotten}
		for _, d := range e.Plan.Delegates {
			one := agentapi.FailedDelegate{Interface: d.Name, Network: d.Network}
			if d.Device != nil {
				one.Device = d.Device.ID
			}
			l.Delegates = append(l.Delegates, one)
		}
		all = append(all, l)
	}
	return all
}

func (a *Agent) left(_ context.Context, _ *agentapi.FailedDELsRequest, send deliver) error {
	all, err := a.readFailedDELs()
	if err != nil {
		return err
	}
	return send(agentapi.FailedDELs{Attachments: all})
}

// forget marks an attachment for the plugin, which has the journal: its delegates are not tried again. Their devices are free
// at once, the plugin's next call of the container, or the next DEL of another, removes the entry.
func (a *Agent) forget(_ context.Context, r *agentapi.ForgetRequest, send deliver) error {
	all, err := a.readFailedDELs()
	if err != nil {
		return err
	}
	if r.All {
		return a.forgetAll(all, r, send)
	}
	var found []agentapi.FailedDEL
	for _, l := range all {
		if strings.HasPrefix(l.ContainerID, r.ContainerID) && (r.Interface == "" || l.Interface == r.Interface) {
			found = append(found, l)
		}
	}
	if len(found) != 1 || r.ContainerID == "" {
		return conf.Errorf(conf.CodeInvalidConfig, "without an argument, the command lists them", "container %q: %d have this ID or beginning and delegates whose DEL failed, where one is wanted", r.ContainerID, len(found))
	}
	if err := a.markForgotten(&found[0]); err != nil {
		return err
	}
	return send(found[0])
}

// forgetAll gives up the delegates of all attachments, or of all of a namespace, whose DEL failed. It answers with those
// that were not given up before. One whose mark cannot be written stops it: the answer is the error.
func (a *Agent) forgetAll(all []agentapi.FailedDEL, r *agentapi.ForgetRequest, send deliver) error {
	given := []agentapi.FailedDEL{}
	for i := range all {
		l := &all[i]
		if l.Forgotten || r.Namespace != "" && l.Namespace != r.Namespace {
			continue
		}
		if err := a.markForgotten(l); err != nil {
			return fmt.Errorf("%d of the containers are given up, then: %w", len(given), err)
		}
		given = append(given, *l)
	}
	return send(agentapi.FailedDELs{Attachments: given})
}

// markForgotten leaves the mark for the plugin.
func (a *Agent) markForgotten(l *agentapi.FailedDEL) error {
	if err := a.journal.Forget(&l.Sandbox); err != nil {
		return conf.Errorf(conf.CodeInternal, "can the agent write to release/ below --state-dir?", "mark container %.12s: %w", l.ContainerID, err)
	}
	l.Forgotten = true
	a.log.Warn("an operator gave up delegates that would not go", "pod", l.Namespace+"/"+l.Pod, "containerID", l.ContainerID, "delegates", l.Delegates, "complaint", l.LastError)
	return nil
}

// checkFailedDELs refuses another attachment with delegates to a pod or a namespace of which this node has too many whose
// delegates' DEL failed. Pods without delegates cannot leave any, and pass.
func checkFailedDELs(attachments []nad.Attachment, s *agentapi.Sandbox, read readJournal) error {
	if !slices.ContainsFunc(attachments, func(at nad.Attachment) bool { return at.Delegate != nil }) {
		return nil
	}
	j, err := read()
	if err != nil {
		return conf.Errorf(conf.CodeTryAgain, "can the agent read the plugin's journal below --state-dir?", "which DELs failed: %w", err)
	}
	return journal.CheckFailed(j.attached, s)
}
