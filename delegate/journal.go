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

	"golang.org/x/sys/unix"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/internal/failpoint"
)

// The journal, below the state folder:
//
//	attached/<id>   what a DEL has to undo; root's, 0700
//	attached/<id>.lock
//	attached/<id>.left   its delegates would not go: a later call, of whichever container, tries again
//	release/<id>    what the agent has to release once the databases answer, most often the renamed attached/<id>; shared
//	                with the agent
//	release/.forget-<id>   an operator gives those delegates up, by way of the agent
//
// A file is written whole or not at all, and is on the disk before what it describes is begun.
type journal struct{ dir string }

const (
	attachedDir = agentapi.AttachedDir
	lockSuffix  = agentapi.LockSuffix
	leftSuffix  = agentapi.LeftSuffix
)

// entry is one attachment: the intent at first, later with its plan.
type entry struct {
	Version int `json:"version"`
	// What the agent reads too.
	agentapi.Attached
	// Begun counts the plan's delegates whose ADD was begun, Results are those of the ones that were made.
	Begun   int               `json:"begun,omitempty"`
	Results []json.RawMessage `json:"results,omitempty"`
	// Devices are what the delegates' plugins say of their devices, null for those that say nothing.
	Devices []json.RawMessage `json:"devices,omitempty"`
	// NetNS and Args are CNI_NETNS and CNI_ARGS of the ADD: delegates get them again when there is no pod to ask, in GC.
	NetNS string `json:"netns,omitempty"`
	Args  string `json:"args,omitempty"`
	// Routes are what saveRoutes returned before the routes changed; nil: they have not changed.
	Routes [][]byte `json:"routes,omitzero"`
	// damaged: the file does not parse (a disk's doing, for it was written whole), so that all that is known is the
	// sandbox, whose ports are then looked for by their owner.
	damaged bool
	// recalled are the delegates of an entry that is damaged, as far as libcni knows them.
	recalled []agentapi.Delegate
	// dropped says which delegates were given up although their DEL failed: they hold nothing any more.
	dropped []string
}

// begun are the delegates to take away.
func (e *entry) begun() []agentapi.Delegate {
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

func (j *journal) release(id string) string { return filepath.Join(j.dir, agentapi.ReleaseDir, id) }

// prepare makes the folders.
func (j *journal) prepare() error {
	for _, dir := range []string{attachedDir, agentapi.ReleaseDir} {
		if err := os.MkdirAll(filepath.Join(j.dir, dir), 0o700); err != nil {
			return journalError(err)
		}
	}
	return nil
}

// read returns the attachment's entry, nil when there is none.
func (j *journal) read(s *agentapi.Sandbox) (*entry, error) {
	text, err := os.ReadFile(j.attached(s.ID()))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, conf.Errorf(conf.CodeTryAgain, "look at the node's disk; if it has lost the file for good, delete the file, "+
			"and look for what the container's other plugins left", "journal: %w", err)
	}
	return parseEntry(text, s), nil
}

func parseEntry(text []byte, s *agentapi.Sandbox) *entry {
	e := &entry{}
	if err := json.Unmarshal(text, e); err != nil || e.Sandbox.ID() != s.ID() {
		return damagedEntry(s)
	}
	return e
}

// damagedEntry is that of a file which cannot be read or does not parse.
func damagedEntry(s *agentapi.Sandbox) *entry {
	return &entry{Version: entryVersion, Attached: agentapi.Attached{Sandbox: *s}, damaged: true}
}

func (j *journal) write(e *entry) error {
	e.Version = entryVersion
	if err := writeFile(j.attached(e.Sandbox.ID()), e); err != nil {
		return journalError(err)
	}
	return nil
}

// handOver turns an attachment that was undone here into one that the agent has to release; nil when there is nothing
// for it. Delegates that are left stay in the journal, alone. If the disk refuses the file in release/, ask asks the agent,
// whose message says the same, and tells whether everything is released. If it is not, the entry stays as it is.
func (j *journal) handOver(e *entry, left []int, ask func(*agentapi.Release) bool) (*agentapi.Release, error) {
	r := e.Release()
	if r != nil {
		if err := j.putRelease(r, len(left) == 0); err != nil && !ask(r) {
			return nil, journalError(err)
		}
		failpoint.Hit("release-put")
	}
	if len(left) == 0 {
		return r, j.forget(&e.Sandbox)
	}
	kept, results := &agentapi.Plan{}, []json.RawMessage{}
	for _, i := range left {
		kept.Delegates, results = append(kept.Delegates, e.begun()[i]), append(results, e.result(i))
	}
	e.Plan, e.Begun, e.Results, e.Devices = kept, len(left), results, nil
	e.Complaints++
	if e.Complaints >= maxComplaints {
		if err := os.WriteFile(j.attached(e.Sandbox.ID())+leftSuffix, nil, 0o600); err != nil {
			return r, journalError(err)
		}
	}
	return r, j.write(e)
}

// putRelease puts what is to be released into release/. If nothing of the entry has to stay, whole, the entry itself is
// renamed, which a full disk permits. The entry on the disk may lack the plan, or be damaged: then it says less than r
// does, and the agent looks for the ports by their owner.
func (j *journal) putRelease(r *agentapi.Release, whole bool) error {
	path := j.release(r.ID())
	// If an older release is not done yet, what it lists may be more than what is listed now. An empty file stands for
	// a release by owner, and emptying a file needs no space.
	err := emptyFile(path)
	if err == nil {
		r.Planned, r.Ports = false, nil
		return nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if whole && os.Rename(j.attached(r.ID()), path) == nil {
		return syncDir(filepath.Dir(path))
	}
	return writeFile(path, r)
}

// journalError gives the full disk its code, as trouble that passes.
func journalError(err error) error {
	if diskFull(err) {
		return conf.Errorf(conf.CodeTryAgain, "the node's disk has no space or no inodes left for ovn-multinet's state folder: free some; "+
			"the runtime tries again by itself", "journal: %w", err)
	}
	return fmt.Errorf("journal: %w", err)
}

func diskFull(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }

// forgotten tells whether an operator gave the delegates of an attachment up, whose DEL has failed.
func (j *journal) forgotten(e *entry) bool {
	return e.Complaints > 0 && exists(agentapi.ForgetMark(j.dir, &e.Sandbox))
}

// left returns an attachment of another container whose delegates would not go, nil when there is none: one that was given up
// (forgotten), else the one that was not tried for the longest time.
func (j *journal) left(own *agentapi.Sandbox) (oldest *agentapi.Sandbox, forgotten bool) {
	files, err := os.ReadDir(filepath.Join(j.dir, attachedDir))
	if err != nil {
		return nil, false
	}
	var since time.Time
	for _, f := range files {
		id, ok := strings.CutSuffix(f.Name(), leftSuffix)
		containerID, ifName, named := strings.Cut(id, "@")
		if !ok || !named || id == own.ID() {
			continue
		}
		if !exists(j.attached(id)) { // a killed call left the mark alone
			_ = os.Remove(filepath.Join(j.dir, attachedDir, f.Name()))
			continue
		}
		if s := (&agentapi.Sandbox{ContainerID: containerID, Interface: ifName}); exists(agentapi.ForgetMark(j.dir, s)) {
			return s, true
		}
		if info, err := f.Info(); err == nil && (oldest == nil || info.ModTime().Before(since)) {
			oldest, since = &agentapi.Sandbox{ContainerID: containerID, Interface: ifName}, info.ModTime()
		}
	}
	return oldest, false
}

// forget deletes the attachment's entry, and what a killed writer left beside it; what is gone is no error.
func (j *journal) forget(s *agentapi.Sandbox) error {
	entry, release := j.attached(s.ID()), j.release(s.ID())
	for _, path := range []string{temporary(release), temporary(entry), entry + leftSuffix, entry, agentapi.ForgetMark(j.dir, s)} {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return journalError(err)
		}
	}
	return nil
}

// list returns all entries. Whose a damaged one is nobody can tell: it waits for its own DEL. A file that cannot be read
// does not hide the others.
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
		s, ok := agentapi.AttachedFile(f.Name())
		if !ok {
			continue
		}
		e, err := j.read(&s)
		if err != nil {
			e = damagedEntry(&s)
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

// emptyFile empties a file that is there.
func emptyFile(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
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
