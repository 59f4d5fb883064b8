package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/conf"
)

// Dir is the path of the state folder. ID is the name of a sandbox (agentapi.Sandbox.ID). The folder contains:
//
//	attached/ID              the entry of a sandbox: what a DEL has to undo
//	attached/ID.lock         the lock of the sandbox, held by a running call of the plugin
//	attached/ID.left         the mark of a failed DEL: a later call, also of another sandbox, tries it again
//	release/ID               a pending release, most often the renamed entry; the agent deletes it
//	release/.forget-ID       the mark of an operator: the delegates of this entry are not tried again
//	results/                 libcni's cache: what a delegate's DEL gets as prevResult
//
// The plugin writes attached/ and the pending releases, the agent writes the marks of operators. A file is written
// whole or not at all, and it is on the disk before the plugin begins what the file describes.
type Dir string

// The folders below the state folder.
const (
	EntryDir   = "attached"
	ReleaseDir = "release"
	resultDir  = "results"
)

// The beginnings and ends of the names of locks and marks.
const (
	LockSuffix   = ".lock"
	FailedSuffix = ".left"
	ForgetPrefix = ".forget-"
)

// Entry is the file of the entry of a sandbox.
func (d Dir) Entry(s *agentapi.Sandbox) string { return d.entry(s.ID()) }

// FailedMark is the file that marks the failed DEL of a sandbox.
func (d Dir) FailedMark(s *agentapi.Sandbox) string { return d.entry(s.ID()) + FailedSuffix }

// ForgetMark is the file by which an operator tells the plugin to forget the delegates of a sandbox. Its name begins
// with a dot, so that an agent that does not know such marks does not read it as a pending release.
func (d Dir) ForgetMark(s *agentapi.Sandbox) string {
	return filepath.Join(string(d), ReleaseDir, ForgetPrefix+s.ID())
}

// PendingRelease is the file of the pending release of a sandbox.
func (d Dir) PendingRelease(s *agentapi.Sandbox) string { return d.release(s.ID()) }

// Results is the folder of libcni's cache.
func (d Dir) Results() string { return filepath.Join(string(d), resultDir) }

// Result is the file in which libcni keeps the result of an attachment.
func (d Dir) Result(network, containerID, ifName string) string {
	return filepath.Join(d.Results(), "results", network+"-"+containerID+"-"+ifName)
}

func (d Dir) entry(id string) string { return filepath.Join(string(d), EntryDir, id) }

func (d Dir) lock(id string) string { return d.entry(id) + LockSuffix }

func (d Dir) release(id string) string { return filepath.Join(string(d), ReleaseDir, id) }

// Prepare makes the folders of the plugin.
func (d Dir) Prepare() error {
	for _, dir := range []string{EntryDir, ReleaseDir} {
		if err := os.MkdirAll(filepath.Join(string(d), dir), 0o700); err != nil {
			return journalError(err)
		}
	}
	return nil
}

// PrepareReleases makes the folder of pending releases, and denies other users access to it.
func (d Dir) PrepareReleases() error {
	dir := filepath.Join(string(d), ReleaseDir)
	return errors.Join(os.MkdirAll(dir, 0o700), os.Chmod(dir, 0o700))
}

// ParseID reports whether the name of a file in EntryDir is the name of an entry. It returns the container and the
// interface of the sandbox.
func ParseID(name string) (s agentapi.Sandbox, ok bool) {
	containerID, ifName, ok := strings.Cut(name, "@")
	ok = ok && !strings.HasPrefix(name, ".") && !strings.HasSuffix(name, LockSuffix) &&
		!strings.HasSuffix(name, FailedSuffix)
	return agentapi.Sandbox{ContainerID: containerID, Interface: ifName}, ok
}

// HasEntry reports whether a sandbox has an entry.
func (d Dir) HasEntry(s *agentapi.Sandbox) bool { return exists(d.Entry(s)) }

// HasFailedMark reports whether the DEL of a sandbox is marked as failed.
func (d Dir) HasFailedMark(s *agentapi.Sandbox) bool { return exists(d.FailedMark(s)) }

// HasContainer reports whether one of a container's interfaces has an entry. If the folder cannot be read, the answer
// is yes.
func (d Dir) HasContainer(containerID string) bool {
	return d.anyOf(EntryDir, containerID, func(path string) bool {
		_, ok := ParseID(filepath.Base(path))
		return ok
	})
}

// Locked reports whether a call of the plugin holds a lock of a container. If the folder cannot be read, the answer is
// yes.
func (d Dir) Locked(containerID string) bool {
	return d.anyOf(EntryDir, containerID, func(path string) bool {
		return strings.HasSuffix(path, LockSuffix) && locked(path)
	})
}

// HasPendingRelease reports whether a container has a pending release. If the folder cannot be read, the answer is
// yes.
func (d Dir) HasPendingRelease(containerID string) bool {
	return d.anyOf(ReleaseDir, containerID, func(string) bool { return true })
}

// anyOf reports whether is returns true for one of a container's files.
func (d Dir) anyOf(folder, containerID string, is func(path string) bool) bool {
	dir := filepath.Join(string(d), folder)
	files, err := os.ReadDir(dir)
	if err != nil {
		return !errors.Is(err, fs.ErrNotExist)
	}
	return slices.ContainsFunc(files, func(f fs.DirEntry) bool {
		return strings.HasPrefix(f.Name(), containerID+"@") && is(filepath.Join(dir, f.Name()))
	})
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// journalError gives CodeTryAgain to the error of a full disk, because the error is temporary.
func journalError(err error) error {
	if diskFull(err) {
		return conf.Errorf(conf.CodeTryAgain,
			"the node's disk has no space or no inodes left for ovn-multinet's state folder: free some; "+
				"the runtime tries again by itself", "journal: %w", err)
	}
	return fmt.Errorf("journal: %w", err)
}

func diskFull(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }
