// Package buildcache owns the folder outside the work tree that keeps what tests and builds made: programs, images,
// trees of packages. Its entries are found by name and key; several processes may use it at once.
package buildcache

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Dir is the project's folder below XDG_CACHE_HOME or ~/.cache. It is made if need be.
func Dir() (string, error) {
	base, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(base, "ovn-multinet")
	return dir, os.MkdirAll(dir, 0o755)
}

// LockFile waits for an exclusive lock on a file, which it makes if need be. The lock ends with unlock or with the
// process.
func LockFile(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|unix.O_CLOEXEC, 0o644)
	if err != nil {
		return nil, err
	}
	for {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return func() { f.Close() }, nil
}

// Entry returns the folder of this name and key. If the folder is not there, build makes it, whole or not at all, and
// the folders of other keys are deleted. Processes take turns.
func Entry(name, key string, build func(dir string) error) (string, error) {
	root, err := Dir()
	if err != nil {
		return "", err
	}
	parent := filepath.Join(root, name)
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return "", err
	}
	unlock, err := LockFile(filepath.Join(parent, "lock"))
	if err != nil {
		return "", err
	}
	defer unlock()
	dir := filepath.Join(parent, key)
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		return dir, err
	}
	if err := removeFolders(parent); err != nil {
		return "", err
	}
	work := filepath.Join(parent, "new")
	if err := os.Mkdir(work, 0o755); err != nil {
		return "", err
	}
	if err := build(work); err != nil {
		return "", err
	}
	return dir, os.Rename(work, dir)
}

func removeFolders(parent string) error {
	entries, err := os.ReadDir(parent)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := os.RemoveAll(filepath.Join(parent, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}
