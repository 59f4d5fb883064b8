package plan

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// AttachedDir is the folder below the state folder that holds the plugin's journal. It is root's, and the agent only reads it.
const AttachedDir = "attached"

// What stands beside a file of the journal: its lock, and the mark of one whose delegates would not go.
const (
	LockSuffix = ".lock"
	LeftSuffix = ".left"
)

// Attached is the part of a file of the plugin's journal that others read too.
type Attached struct {
	Sandbox Sandbox `json:"sandbox"`
	Plan    *Plan   `json:"plan,omitempty"` // nil: the ADD ended before it heard of its plan
	// Complaints counts the attempts at taking its delegates away that failed, Complaint is what the last one said.
	Complaints int    `json:"complaints,omitempty"`
	Complaint  string `json:"complaint,omitempty"`
	// Written is when the file was.
	Written time.Time `json:"-"`
	// Forgotten: an operator gave its delegates up.
	Forgotten bool `json:"-"`
}

// AttachedFile tells whether a file of AttachedDir is an attachment's, and of which container and interface.
func AttachedFile(name string) (s Sandbox, ok bool) {
	containerID, ifName, ok := strings.Cut(name, "@")
	ok = ok && !strings.HasPrefix(name, ".") && !strings.HasSuffix(name, LockSuffix) && !strings.HasSuffix(name, LeftSuffix)
	return Sandbox{ContainerID: containerID, Interface: ifName}, ok
}

// ReadAttached reads the journal. Files that do not parse are returned by name: what they hold nobody can tell.
func ReadAttached(stateDir string) (all []Attached, damaged []string, err error) {
	dir := filepath.Join(stateDir, AttachedDir)
	files, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	for _, f := range files {
		s, ok := AttachedFile(f.Name())
		if !ok {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue // it went since
		}
		if err != nil {
			return nil, nil, err
		}
		var a Attached
		if json.Unmarshal(text, &a) != nil || a.Sandbox.ID() != s.ID() {
			damaged = append(damaged, f.Name())
			continue
		}
		if info, err := f.Info(); err == nil {
			a.Written = info.ModTime()
		}
		_, err = os.Lstat(ForgetMark(stateDir, &s))
		a.Forgotten = err == nil && a.Complaints > 0
		all = append(all, a)
	}
	return all, damaged, nil
}

// ForgetPrefix begins the names of the files that ForgetMark names.
const ForgetPrefix = ".forget-"

// ForgetMark is the file by which an operator gives an attachment's delegates up: the agent writes it, the plugin acts on it.
// Agents that do not know it pass hidden files by.
func ForgetMark(stateDir string, s *Sandbox) string {
	return filepath.Join(stateDir, ReleaseDir, ForgetPrefix+s.ID())
}
