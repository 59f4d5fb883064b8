package journal

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/conf"
)

// Lock serialises the calls for one sandbox. Runtimes overlap such calls: a DEL may begin while an ADD that timed out
// still runs.
type Lock struct {
	file   *os.File // nil: the disk had no inode for the file
	folder *os.File
}

// Lock waits for the lock of a sandbox until the end of ctx. Unlock deletes the lock's file, so a call that waited
// for a deleted file begins again. Each call also takes a shared lock of the folder.
func (d Dir) Lock(ctx context.Context, s *agentapi.Sandbox) (*Lock, error) {
	path := d.lock(s.ID())
	for {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return nil, journalError(fmt.Errorf("lock: %w", err))
		}
		if err := flock(ctx, f, unix.LOCK_EX); err != nil {
			return nil, stillRunning("another call for this container is still running", path, err)
		}
		if sameFile(f, path) {
			l := &Lock{file: f}
			if l.folder, err = lockFolder(ctx, filepath.Dir(path), unix.LOCK_SH); err != nil {
				l.Unlock()
				return nil, err
			}
			return l, nil
		}
		_ = f.Close()
	}
}

// LockForDelete is Lock for calls that delete. They must succeed on a disk that has no free inode for the lock's
// file. On such a disk they take the exclusive lock of the folder, which excludes all other calls of the node.
func (d Dir) LockForDelete(ctx context.Context, s *agentapi.Sandbox) (*Lock, error) {
	l, err := d.Lock(ctx, s)
	if !diskFull(err) {
		return l, err
	}
	folder, err := lockFolder(ctx, filepath.Join(string(d), EntryDir), unix.LOCK_EX)
	if err != nil {
		return nil, err
	}
	return &Lock{folder: folder}, nil
}

// HasLock reports whether a call for a sandbox holds or waits for its lock. A plain pod never has one.
func (d Dir) HasLock(s *agentapi.Sandbox) bool { return exists(d.lock(s.ID())) }

func lockFolder(ctx context.Context, path string, how int) (*os.File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	if err := flock(ctx, f, how); err != nil {
		return nil, stillRunning("a call on this node holds the lock", path, err)
	}
	return f, nil
}

func stillRunning(who, path string, err error) error {
	return conf.Errorf(conf.CodeTryAgain, who, "lock %s: %w", path, err)
}

// flock waits in a goroutine, because flock(2) has no deadline. After the end of ctx, the goroutine keeps waiting,
// and closes the file when it gets the lock.
func flock(ctx context.Context, f *os.File, how int) error {
	if err := unix.Flock(int(f.Fd()), how|unix.LOCK_NB); err == nil {
		return nil
	}
	locked := make(chan error, 1)
	go func() {
		var err error
		for {
			if err = unix.Flock(int(f.Fd()), how); !errors.Is(err, unix.EINTR) {
				break
			}
		}
		locked <- err
	}()
	select {
	case err := <-locked:
		return err
	case <-ctx.Done():
		go func() {
			<-locked
			_ = f.Close()
		}()
		return ctx.Err()
	}
}

func sameFile(f *os.File, path string) bool {
	opened, err := f.Stat()
	if err != nil {
		return false
	}
	named, err := os.Stat(path)
	return err == nil && os.SameFile(opened, named)
}

// Unlock deletes the file while the lock is held, and then releases the lock.
func (l *Lock) Unlock() {
	for _, f := range []*os.File{l.file, l.folder} {
		if f == nil {
			continue
		}
		if f == l.file {
			_ = os.Remove(f.Name())
		}
		_ = f.Close()
	}
}

// locked reports whether a process holds the lock of a file. If the file cannot be opened, the answer is yes.
func locked(path string) bool {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false
	}
	if err != nil {
		return true
	}
	defer f.Close()
	return unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB) != nil
}
