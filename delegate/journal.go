package delegate

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/ovn-multinet/ovn-multinet/plan"
)

// The journal, below the state folder:
//
//	attached/<id>   what a DEL has to undo; root's, 0700
//	attached/<id>.lock
//	attached/<id>.left   its delegates would not go: a later call, of whichever container, tries again
//	release/<id>    what the agent has to release once the databases answer; shared with the agent
//	release/.forget-<id>   an operator gives those delegates up, by way of the agent
//
// A file is written whole or not at all, and is on the disk before what it describes is begun.
type journal struct{ dir string }

const (
	attachedDir = plan.AttachedDir
	lockSuffix  = plan.LockSuffix
	leftSuffix  = plan.LeftSuffix
)

// entry is one attachment: the intent at first, later with its plan.
type entry struct {
	Version int `json:"version"`
	// What the agent reads too.
	plan.Attached
	// Begun counts the plan's delegates whose ADD was begun, Results are those of the ones that were made.
	Begun   int               `json:"begun,omitempty"`
	Results []json.RawMessage `json:"results,omitempty"`
	// Devices are what the delegates' plugins say of their devices, null for those that say nothing.
	Devices []json.RawMessage `json:"devices,omitempty"`
	// NetNS and Args are CNI_NETNS and CNI_ARGS of the ADD: delegates get them again when there is no pod to ask, in GC.
	NetNS string `json:"netns,omitempty"`
	Args  string `json:"args,omitempty"`
	// damaged: the file does not parse (a disk's doing, for it was written whole), so that all that is known is the
	// sandbox, whose ports are then looked for by their owner.
	damaged bool
	// recalled are the delegates of an entry that is damaged, as far as libcni knows them.
	recalled []plan.Delegate
}

// begun are the delegates to take away.
func (e *entry) begun() []plan.Delegate {
	if e.Plan == nil {
		return e.recalled
	}
	return e.Plan.Delegates[:max(0, min(e.Begun, len(e.Plan.Delegates)))]
}

// result is that of a delegate's ADD, nil when there is none.
func (e *entry) result(i int) json.RawMessage {
	if i >= len(e.Results) || string(e.Results[i]) == "null" {
		return nil
	}
	return e.Results[i]
}

const entryVersion = 1

func (j *journal) attached(id string) string { return filepath.Join(j.dir, attachedDir, id) }

func (j *journal) release(id string) string { return filepath.Join(j.dir, plan.ReleaseDir, id) }

// prepare makes the folders.
func (j *journal) prepare() error {
	if err := os.MkdirAll(filepath.Join(j.dir, attachedDir), 0o700); err != nil {
		return err
	}
	return os.MkdirAll(filepath.Join(j.dir, plan.ReleaseDir), 0o700)
}

// read returns the attachment's entry, nil when there is none.
func (j *journal) read(s *plan.Sandbox) (*entry, error) {
	text, err := os.ReadFile(j.attached(s.ID()))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	return parseEntry(text, s), nil
}

func parseEntry(text []byte, s *plan.Sandbox) *entry {
	e := &entry{}
	if err := json.Unmarshal(text, e); err != nil || e.Sandbox.ID() != s.ID() {
		return &entry{Version: entryVersion, Attached: plan.Attached{Sandbox: *s}, damaged: true}
	}
	return e
}

func (j *journal) write(e *entry) error {
	e.Version = entryVersion
	if err := writeFile(j.attached(e.Sandbox.ID()), e); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	return nil
}

// handOver turns an attachment that was undone here into one that the agent has to release; nil when there is nothing
// for it. Delegates that are left stay in the journal, alone. An older file of the same name in release/ means that an
// older release is not done: what it listed may be more than what is listed now.
func (j *journal) handOver(e *entry, left []int) (*plan.Release, error) {
	r := e.release()
	if r != nil {
		path := j.release(e.Sandbox.ID())
		if _, err := os.Lstat(path); err == nil {
			r.Planned, r.Ports = false, nil
		}
		if err := writeFile(path, r); err != nil {
			return nil, fmt.Errorf("journal: %w", err)
		}
	}
	if len(left) == 0 {
		return r, j.forget(&e.Sandbox)
	}
	kept, results := &plan.Plan{}, []json.RawMessage{}
	for _, i := range left {
		kept.Delegates, results = append(kept.Delegates, e.begun()[i]), append(results, e.result(i))
	}
	e.Plan, e.Begun, e.Results, e.Devices = kept, len(left), results, nil
	e.Complaints++
	if e.Complaints >= maxComplaints {
		if err := os.WriteFile(j.attached(e.Sandbox.ID())+leftSuffix, nil, 0o600); err != nil {
			return r, fmt.Errorf("journal: %w", err)
		}
	}
	return r, j.write(e)
}

// release is what the agent has to release of an entry, nil: nothing.
func (e *entry) release() *plan.Release {
	if e.Plan != nil && len(e.Plan.Interfaces) == 0 {
		return nil
	}
	r := &plan.Release{Version: plan.Version, Sandbox: e.Sandbox, Planned: e.Plan != nil}
	if e.Plan != nil {
		for _, i := range e.Plan.Interfaces {
			r.Ports = append(r.Ports, i.Port)
		}
	}
	return r
}

// forgotten tells whether an operator gave the delegates of an attachment up, whose DEL has failed.
func (j *journal) forgotten(e *entry) bool {
	return e.Complaints > 0 && exists(plan.ForgetMark(j.dir, &e.Sandbox))
}

// left returns an attachment of another container whose delegates would not go, nil when there is none: one that was given up,
// else the one that was not tried for the longest time.
func (j *journal) left(own *plan.Sandbox) (oldest *plan.Sandbox) {
	files, err := os.ReadDir(filepath.Join(j.dir, attachedDir))
	if err != nil {
		return nil
	}
	var since time.Time
	for _, f := range files {
		id, ok := strings.CutSuffix(f.Name(), leftSuffix)
		containerID, ifName, named := strings.Cut(id, "@")
		if !ok || !named || id == own.ID() {
			continue
		}
		if s := (&plan.Sandbox{ContainerID: containerID, Interface: ifName}); exists(plan.ForgetMark(j.dir, s)) {
			return s
		}
		if info, err := f.Info(); err == nil && (oldest == nil || info.ModTime().Before(since)) {
			oldest, since = &plan.Sandbox{ContainerID: containerID, Interface: ifName}, info.ModTime()
		}
	}
	return oldest
}

// forget deletes the attachment's entry, and what a killed writer left beside it; what is gone is no error.
func (j *journal) forget(s *plan.Sandbox) error {
	for _, path := range []string{temporary(j.attached(s.ID())), j.attached(s.ID()) + leftSuffix, j.attached(s.ID()), plan.ForgetMark(j.dir, s)} {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("journal: %w", err)
		}
	}
	return nil
}

// list returns all entries. Whose a damaged one is nobody can tell: it waits for its own DEL.
func (j *journal) list() ([]*entry, error) {
	files, err := os.ReadDir(filepath.Join(j.dir, attachedDir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	var entries []*entry
	for _, f := range files {
		s, ok := plan.AttachedFile(f.Name())
		if !ok {
			continue
		}
		e, err := j.read(&s)
		if err != nil {
			return nil, err
		}
		if e != nil { // else it went since
			entries = append(entries, e)
		}
	}
	return entries, nil
}

// writeFile writes JSON to a temporary file, syncs it and renames it into place, and syncs the folder: after a
// power cut there is the old file, or the new one, or none where none was.
func writeFile(path string, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	// One name for each file: its writers hold the attachment's lock, and what a killed one left is overwritten.
	f, err := os.OpenFile(temporary(path), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(text, '\n'))
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return syncDir(filepath.Dir(path))
}

func temporary(path string) string {
	return filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".tmp")
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
