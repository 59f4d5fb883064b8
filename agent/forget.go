package agent

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/nad"
	"github.com/ovn-multinet/ovn-multinet/node/journal"
)

// readFailedDELs reads from the journal which sandboxes have failed DELs.
func (a *Agent) readFailedDELs() ([]agentapi.FailedDEL, error) {
	entries, _, err := a.journal.Summaries()
	if err != nil {
		return nil, journalError("which DELs failed", err)
	}
	return failedDELs(entries), nil
}

// journalError is the error of a journal that cannot be read.
func journalError(what string, err error) error {
	return conf.Errorf(conf.CodeTryAgain, "can the agent read the plugin's journal below --state-dir?",
		"%s: %w", what, err)
}

// failedDELs lists the entries with delegates whose DEL failed.
func failedDELs(entries []journal.Summary) []agentapi.FailedDEL {
	all := []agentapi.FailedDEL{}
	for i := range entries {
		e := &entries[i]
		if e.FailedAttempts == 0 || e.Plan == nil {
			continue
		}
		failed := agentapi.FailedDEL{
			Sandbox: e.Sandbox, FailedAttempts: e.FailedAttempts, LastError: e.LastError,
			Since: e.Written, Forgotten: e.Forgotten,
		}
		for _, d := range e.Plan.Delegates {
			one := agentapi.FailedDelegate{Interface: d.Name, Network: d.Network}
			if d.Device != nil {
				one.Device = d.Device.ID
			}
			failed.Delegates = append(failed.Delegates, one)
		}
		all = append(all, failed)
	}
	return all
}

// listFailedDELs answers an operator: which DELs failed.
func (a *Agent) listFailedDELs(_ context.Context, _ *agentapi.FailedDELsRequest, send deliver) error {
	all, err := a.readFailedDELs()
	if err != nil {
		return err
	}
	return send(agentapi.FailedDELs{Attachments: all})
}

// forget marks a journal entry for the plugin, which owns the journal: the plugin does not try its delegates again.
// Their devices are free at once. The plugin's next call for the sandbox, or the next DEL of another one, deletes the
// entry.
func (a *Agent) forget(_ context.Context, r *agentapi.ForgetRequest, send deliver) error {
	all, err := a.readFailedDELs()
	if err != nil {
		return err
	}
	if r.All {
		return a.forgetAll(all, r, send)
	}
	var found []agentapi.FailedDEL
	for _, f := range all {
		if strings.HasPrefix(f.ContainerID, r.ContainerID) && (r.Interface == "" || f.Interface == r.Interface) {
			found = append(found, f)
		}
	}
	if len(found) != 1 || r.ContainerID == "" {
		return conf.Errorf(conf.CodeInvalidConfig, "without an argument, the command lists them",
			"container %q: %d have this ID or beginning and delegates whose DEL failed, where one is wanted",
			r.ContainerID, len(found))
	}
	if err := a.markForgotten(&found[0]); err != nil {
		return err
	}
	return send(found[0])
}

// forgetAll forgets the failed DELs of all sandboxes, or of all sandboxes of a namespace. It answers with those that
// were not forgotten before. It ends at the first mark that cannot be written, and answers with the error.
func (a *Agent) forgetAll(all []agentapi.FailedDEL, r *agentapi.ForgetRequest, send deliver) error {
	forgotten := []agentapi.FailedDEL{}
	for i := range all {
		f := &all[i]
		if f.Forgotten || r.Namespace != "" && f.Namespace != r.Namespace {
			continue
		}
		if err := a.markForgotten(f); err != nil {
			return fmt.Errorf("%d of the containers are forgotten, then: %w", len(forgotten), err)
		}
		forgotten = append(forgotten, *f)
	}
	return send(agentapi.FailedDELs{Attachments: forgotten})
}

// markForgotten writes the mark for the plugin.
func (a *Agent) markForgotten(f *agentapi.FailedDEL) error {
	if err := a.journal.Forget(&f.Sandbox); err != nil {
		return conf.Errorf(conf.CodeInternal, "can the agent write to release/ below --state-dir?",
			"mark container %.12s: %w", f.ContainerID, err)
	}
	f.Forgotten = true
	a.log.Warn("an operator had a failed DEL forgotten", "pod", f.Namespace+"/"+f.Pod, "containerID", f.ContainerID,
		"delegates", f.Delegates, "lastError", f.LastError)
	return nil
}

// checkFailedDELs refuses another attachment with delegates to a pod or a namespace that has too many failed DELs on
// this node. Pods without delegates cannot cause any, and pass.
func checkFailedDELs(attachments []nad.Attachment, s *agentapi.Sandbox, read readJournal) error {
	if !slices.ContainsFunc(attachments, func(at nad.Attachment) bool { return at.Delegate != nil }) {
		return nil
	}
	j, err := read()
	if err != nil {
		return journalError("which DELs failed", err)
	}
	return journal.CheckFailed(j.attached, s)
}
