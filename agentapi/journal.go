package agentapi

import (
	"encoding/json"
	"errors"
	"fmt"
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

// ReadAttached reads the journal, with the Outline of each plan: what tenants write into the configurations of all pods of a node
// is more than an agent can hold. Files that cannot be read or do not parse are returned by name: what they hold nobody can tell.
// One such file does not hide the others.
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
		a, err := ReadEntry(stateDir, &s)
		if errors.Is(err, fs.ErrNotExist) {
			continue // it went since
		}
		if err != nil {
			damaged = append(damaged, f.Name())
			continue
		}
		if info, err := f.Info(); err == nil {
			a.Written = info.ModTime()
		}
		_, err = os.Lstat(ForgetMark(stateDir, &s))
		a.Forgotten = err == nil && a.Complaints > 0
		all = append(all, *a)
	}
	return all, damaged, nil
}

// ReadEntry reads one entry of the journal, with the Outline of its plan. An error that is not fs.ErrNotExist says
// that the file cannot be read or does not parse.
func ReadEntry(stateDir string, s *Sandbox) (*Attached, error) {
	text, err := os.ReadFile(filepath.Join(stateDir, AttachedDir, s.ID()))
	if err != nil {
		return nil, err
	}
	a := &Attached{}
	if err := json.Unmarshal(text, a); err != nil {
		return nil, err
	}
	if a.Sandbox.ID() != s.ID() {
		return nil, fmt.Errorf("the entry %s is of %s", s.ID(), a.Sandbox.ID())
	}
	if a.Plan != nil {
		a.Plan = a.Plan.Outline()
	}
	return a, nil
}

// Release is what the agent has to release of an attachment, nil: nothing.
func (a *Attached) Release() *Release {
	if a.Plan != nil && len(a.Plan.Interfaces) == 0 {
		return nil
	}
	r := &Release{Version: Version, Sandbox: a.Sandbox, Planned: a.Plan != nil}
	if a.Plan != nil {
		for _, i := range a.Plan.Interfaces {
			r.Ports = append(r.Ports, i.Port)
		}
	}
	return r
}

// ParseRelease reads a file of ReleaseDir by its name. The file is a Release, or an attachment's entry of the journal
// that a DEL has renamed, or empty: then, and if it is damaged, the ports are looked for by their owner.
func ParseRelease(id string, text []byte) (r *Release, damaged bool) {
	r = &Release{}
	if json.Unmarshal(text, r) == nil && r.ID() == id {
		return r, false
	}
	containerID, ifName, _ := strings.Cut(id, "@")
	var a Attached
	if json.Unmarshal(text, &a) == nil && a.Sandbox.ID() == id {
		if r := a.Release(); r != nil {
			return r, false
		}
		return &Release{Version: Version, Sandbox: a.Sandbox, Planned: true}, false
	}
	return &Release{Sandbox: Sandbox{ContainerID: containerID, Interface: ifName}}, len(text) > 0
}

// ForgetPrefix begins the names of the files that ForgetMark names.
const ForgetPrefix = ".forget-"

// ForgetMark is the file by which an operator gives an attachment's delegates up: the agent writes it, the plugin acts on it.
// Agents that do not know it pass hidden files by.
func ForgetMark(stateDir string, s *Sandbox) string {
	return filepath.Join(stateDir, ReleaseDir, ForgetPrefix+s.ID())
}
