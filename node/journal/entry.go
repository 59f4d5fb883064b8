package journal

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/internal/plainfile"
)

// Summary is the part of an entry that the agent and the installer read too.
type Summary struct {
	Sandbox agentapi.Sandbox `json:"sandbox"`
	Plan    *agentapi.Plan   `json:"plan,omitempty"` // nil: the ADD ended before it received its plan
	// FailedAttempts counts the failed attempts to delete the delegates. LastError is the error of the last attempt.
	FailedAttempts int    `json:"complaints,omitempty"`
	LastError      string `json:"complaint,omitempty"`
	// Changing are the interfaces of a pod that runs which a call is adding or removing, or has left half-way: they are
	// not the pod's. Those that the plan does not have may have ports all the same.
	Changing []string `json:"changing,omitempty"`
	// Changed: the pod's networks were changed while it ran, so its network-status may be older than the entry.
	Changed bool `json:"changed,omitempty"`
	// Repaired is the last value of conf.RepairAnnotation that was served.
	Repaired string `json:"repaired,omitempty"`
	// Began is when the ADD began, by which the agent knows the newer one of two sandboxes of a pod.
	Began Moment `json:"began,omitzero"`
	// Written is the time when the file was written.
	Written time.Time `json:"-"`
	// Forgotten: an operator told the plugin to forget the delegates.
	Forgotten bool `json:"-"`
}

// Entry is what the plugin stores about one sandbox. First it has the intent of an ADD, later the plan too.
type Entry struct {
	Version int `json:"version"`
	Summary
	// Begun counts the plan's delegates whose ADD was begun. Results are the results of the ADDs that succeeded.
	Begun   int               `json:"begun,omitempty"`
	Results []json.RawMessage `json:"results,omitempty"`
	// Devices are the device information of the delegates; null: the delegate has none.
	Devices []json.RawMessage `json:"devices,omitempty"`
	// NetNS and Args are CNI_NETNS and CNI_ARGS of the ADD. The delegates get them again in a DEL: when a GC causes the
	// DEL, the runtime does not name the pod.
	NetNS string `json:"netns,omitempty"`
	Args  string `json:"args,omitempty"`
	// Primary is the CNI result of the primary network, for the network-status of a pod whose networks change while it
	// runs. Older versions wrote none.
	Primary json.RawMessage `json:"primary,omitempty"`
	// Routes are the routes of the primary interface before the plugin changed them; nil: it did not change them.
	Routes [][]byte `json:"routes,omitzero"`
	// Damaged: the file cannot be read or does not parse. Only the sandbox is known, and the agent finds its ports by
	// their owner.
	Damaged bool `json:"-"`
	// Recalled are the delegates of a damaged entry that libcni's cache has.
	Recalled []agentapi.Delegate `json:"-"`
}

const entryVersion = 1

// NewEntry is the intent of an ADD.
func NewEntry(s agentapi.Sandbox, netns, args string) *Entry {
	return &Entry{Summary: Summary{Sandbox: s, Began: now()}, NetNS: netns, Args: args}
}

// BegunDelegates are the delegates that a DEL has to delete.
func (e *Entry) BegunDelegates() []agentapi.Delegate {
	if e.Plan == nil {
		return e.Recalled
	}
	return e.Plan.Delegates[:max(0, min(e.Begun, len(e.Plan.Delegates)))]
}

// Result is the result of the ADD of delegate i; nil: there is none.
func (e *Entry) Result(i int) json.RawMessage {
	if i >= len(e.Results) || string(e.Results[i]) == "null" {
		return nil
	}
	return e.Results[i]
}

// Read returns the entry of a sandbox; nil: there is none.
func (d Dir) Read(s *agentapi.Sandbox) (*Entry, error) {
	text, err := os.ReadFile(d.Entry(s))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, conf.Errorf(conf.CodeTryAgain,
			"look at the node's disk; if it has lost the file for good, delete the file, "+
				"and look for what the container's other plugins left", "journal: %w", err)
	}
	return parseEntry(text, s), nil
}

func parseEntry(text []byte, s *agentapi.Sandbox) *Entry {
	e := &Entry{}
	if err := json.Unmarshal(text, e); err != nil || e.Sandbox.ID() != s.ID() {
		return damagedEntry(s)
	}
	return e
}

func damagedEntry(s *agentapi.Sandbox) *Entry {
	return &Entry{Version: entryVersion, Summary: Summary{Sandbox: *s}, Damaged: true}
}

// Write writes an entry. The caller must have the sandbox's lock, as for every change of an entry. Only an entry with
// delegates has to survive a power cut: what a delegate stored on the disk needs a DEL. Without delegates, a power cut
// leaves nothing of the sandbox but its rows in the databases, and the agent finds these without the journal.
func (d Dir) Write(e *Entry) error {
	e.Version = entryVersion
	write := plainfile.WriteUnsynced
	if e.Plan != nil && len(e.Plan.Delegates) > 0 {
		write = plainfile.Write
	}
	if err := writeJSON(d.Entry(&e.Sandbox), e, write); err != nil {
		return journalError(err)
	}
	return nil
}

// Delete deletes the entry of a sandbox with its marks, and temporary files of a killed call. It is no error if they
// do not exist.
func (d Dir) Delete(s *agentapi.Sandbox) error {
	entry, release := d.Entry(s), d.release(s.ID())
	for _, path := range []string{
		plainfile.Temporary(release), plainfile.Temporary(entry), d.FailedMark(s), entry, d.ForgetMark(s),
	} {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return journalError(err)
		}
	}
	return nil
}

// Entries returns all entries. A file that cannot be read is a damaged entry and does not hide the others.
func (d Dir) Entries() ([]*Entry, error) {
	sandboxes, _, err := d.sandboxes()
	if err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	var entries []*Entry
	for i := range sandboxes {
		e, err := d.Read(&sandboxes[i])
		if err != nil {
			e = damagedEntry(&sandboxes[i])
		}
		if e != nil { // a call may delete the file meanwhile
			entries = append(entries, e)
		}
	}
	return entries, nil
}

// sandboxes lists the sandboxes that have an entry, and the directory entries of their files.
func (d Dir) sandboxes() (all []agentapi.Sandbox, files []fs.DirEntry, err error) {
	found, err := os.ReadDir(filepath.Join(string(d), EntryDir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	for _, f := range found {
		if s, ok := ParseID(f.Name()); ok {
			all, files = append(all, s), append(files, f)
		}
	}
	return all, files, err
}

// Summaries returns the summaries of all entries, with the Outline of each plan: the configurations of all delegates
// of a node would need too much memory in the agent. It also returns the IDs of damaged entries. One damaged entry
// does not hide the others.
func (d Dir) Summaries() (all []Summary, damaged []string, err error) {
	sandboxes, files, err := d.sandboxes()
	if err != nil {
		return nil, nil, err
	}
	for i := range sandboxes {
		s := &sandboxes[i]
		summary, err := d.Summary(s)
		if errors.Is(err, fs.ErrNotExist) {
			continue // a call has deleted the file meanwhile
		}
		if err != nil {
			damaged = append(damaged, s.ID())
			continue
		}
		if info, err := files[i].Info(); err == nil {
			summary.Written = info.ModTime()
		}
		summary.Forgotten = summary.FailedAttempts > 0 && exists(d.ForgetMark(s))
		all = append(all, *summary)
	}
	return all, damaged, nil
}

// Summary returns the summary of one entry, with the Outline of its plan. Every error except fs.ErrNotExist says that
// the entry is damaged.
func (d Dir) Summary(s *agentapi.Sandbox) (*Summary, error) {
	text, err := os.ReadFile(d.Entry(s))
	if err != nil {
		return nil, err
	}
	summary := &Summary{}
	if err := json.Unmarshal(text, summary); err != nil {
		return nil, err
	}
	if summary.Sandbox.ID() != s.ID() {
		return nil, fmt.Errorf("the entry %s is of %s", s.ID(), summary.Sandbox.ID())
	}
	if summary.Plan != nil {
		summary.Plan = summary.Plan.Outline()
	}
	return summary, nil
}

func writeJSON(path string, v any, write func(path string, text []byte, mode os.FileMode) error) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return write(path, append(text, '\n'), 0o600)
}
