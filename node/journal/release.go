package journal

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/internal/failpoint"
	"github.com/ovn-multinet/ovn-multinet/internal/plainfile"
)

// Release is what the agent has to release for an entry; nil: nothing.
func (e *Summary) Release() *agentapi.Release {
	planned := e.Plan != nil && !e.unplanned()
	if planned && len(e.Plan.Interfaces) == 0 {
		return nil
	}
	r := &agentapi.Release{Version: agentapi.Version, Sandbox: e.Sandbox, Planned: planned}
	if planned {
		for _, i := range e.Plan.Interfaces {
			r.Ports = append(r.Ports, i.Port)
		}
	}
	return r
}

// ParseRelease reads a pending release. Its text is a Release, or an entry that a DEL has renamed, or empty. If the
// text is empty or damaged, the agent finds the sandbox's ports by their owner.
func ParseRelease(id string, text []byte) (r *agentapi.Release, damaged bool) {
	r = &agentapi.Release{}
	if json.Unmarshal(text, r) == nil && r.ID() == id {
		return r, false
	}
	containerID, ifName, _ := strings.Cut(id, "@")
	var e Summary
	if json.Unmarshal(text, &e) == nil && e.Sandbox.ID() == id {
		if r := e.Release(); r != nil {
			return r, false
		}
		return &agentapi.Release{Version: agentapi.Version, Sandbox: e.Sandbox, Planned: true}, false
	}
	return &agentapi.Release{Sandbox: agentapi.Sandbox{ContainerID: containerID, Interface: ifName}}, len(text) > 0
}

// Release is what the agent has to release for an entry; nil: nothing. An older pending release of the sandbox may have
// ports that the entry does not have: then the agent finds the ports of both by their owner.
func (d Dir) Release(e *Entry) *agentapi.Release {
	r := e.Release()
	if r != nil && exists(d.release(r.ID())) {
		r.Planned, r.Ports = false, nil
	}
	return r
}

// HandOver deletes an entry whose links are deleted. If the agent has not released everything, HandOver turns the entry
// into a pending release first. failed are the indexes of the delegates whose DEL failed: only these delegates stay in
// the entry. If the disk refuses a file, the entry does not change.
func (d Dir) HandOver(e *Entry, failed []int, released bool) error {
	if r := e.Release(); r != nil && !released {
		if err := d.putRelease(r, len(failed) == 0); err != nil {
			return journalError(err)
		}
		failpoint.Hit("release-put")
	}
	if len(failed) == 0 {
		return d.Delete(&e.Sandbox)
	}
	kept, results := &agentapi.Plan{}, []json.RawMessage{}
	for _, i := range failed {
		kept.Delegates, results = append(kept.Delegates, e.BegunDelegates()[i]), append(results, e.Result(i))
	}
	e.Plan, e.Begun, e.Results, e.Devices = kept, len(failed), results, nil
	e.FailedAttempts++
	if e.FailedAttempts >= MaxAttempts {
		if err := os.WriteFile(d.FailedMark(&e.Sandbox), nil, 0o600); err != nil {
			return journalError(err)
		}
	}
	return d.Write(e)
}

// putRelease writes a pending release. If nothing of the entry has to stay (whole), putRelease renames the entry,
// which works on a full disk too. The entry on the disk may have no plan, or may be damaged: then the agent finds the
// ports by their owner.
func (d Dir) putRelease(r *agentapi.Release, whole bool) error {
	path := d.release(r.ID())
	// An empty file means a release by owner (see Dir.Release), and to empty a file needs no space.
	if err := emptyFile(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if whole && os.Rename(d.entry(r.ID()), path) == nil {
		return plainfile.SyncDir(filepath.Dir(path))
	}
	return writeJSON(path, r, plainfile.Write)
}

// emptyFile empties a file that exists.
func emptyFile(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// PendingReleases lists the files of pending releases; their names are IDs. It deletes forget marks whose entry does
// not exist: a killed plugin may have deleted only the entry.
func (d Dir) PendingReleases() ([]fs.DirEntry, error) {
	files, err := os.ReadDir(filepath.Join(string(d), ReleaseDir))
	if err != nil {
		return nil, err
	}
	var pending []fs.DirEntry
	for _, f := range files {
		d.deleteOldMark(f.Name())
		if !strings.HasPrefix(f.Name(), ".") && strings.Contains(f.Name(), "@") {
			pending = append(pending, f)
		}
	}
	return pending, nil
}

func (d Dir) deleteOldMark(name string) {
	id, ok := strings.CutPrefix(name, ForgetPrefix)
	if !ok {
		return
	}
	if _, err := os.Lstat(d.entry(id)); errors.Is(err, fs.ErrNotExist) {
		_ = os.Remove(d.release(name))
	}
}

// ReadRelease reads a pending release by its ID; nil: there is none. err says that the file cannot be read. If the
// file is damaged or cannot be read, r still has the sandbox, and the agent finds its ports by their owner.
func (d Dir) ReadRelease(id string) (r *agentapi.Release, damaged bool, err error) {
	text, err := os.ReadFile(d.release(id))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	r, damaged = ParseRelease(id, text)
	return r, damaged || err != nil, err
}

// DeleteRelease deletes a pending release. It is no error if there is none. Only the agent calls it, after it has
// released everything in the release.
func (d Dir) DeleteRelease(id string) error {
	if err := os.Remove(d.release(id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
