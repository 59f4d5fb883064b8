package delegate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/ovn-multinet/ovn-multinet/conf"
)

// lock serialises the calls for one attachment, which runtimes are known to overlap: a DEL begins while the ADD
// that it gave up on still runs.
type lock struct {
	file   *os.File // nil: the disk had no inode for the file
	folder *os.File
}

// takeLock waits for the lock until the end of ctx. The file goes with the unlocking; whoever waited on a file
// that is gone begins anew. Beside the file, each call has a share of the folder's lock.
func takeLock(ctx context.Context, path string) (*lock, error) {
	for {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return nil, journalError(fmt.Errorf("lock: %w", err))
		}
		if err := flock(ctx, f, unix.LOCK_EX); err != nil {
			return nil, stillRunning("another call for this container is still running", path, err)
		}
		if sameFile(f, path) {
			l := &lock{file: f}
			if l.folder, err = lockFolder(ctx, filepath.Dir(path), unix.LOCK_SH); err != nil {
				l.unlock()
				return nil, err
			}
			return l, nil
		}
		_ = f.Close()
	}
}

// takeLockToUndo is takeLock for calls that delete: they must succeed on a disk without a free inode for the lock's file.
// There they take the folder's lock for themselves, which excludes all other calls of the node.
func takeLockToUndo(ctx context.Context, path string) (*lock, error) {
	l, err := takeLock(ctx, path)
	if !diskFull(err) {
		return l, err
	}
	folder, err := lockFolder(ctx, filepath.Dir(path), unix.LOCK_EX)
	if err != nil {
		return nil, err
	}
	return &lock{folder: folder}, nil
}

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

// flock blocks in a goroutine: there is no flock with a deadline. If the time is up the goroutine stays, and closes the file when
// the lock comes.
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
		go func() { // who gets the lock when nobody wants it any more gives it back
			<-locked
			_ = f.Close()
		}()
		return ctx.Err()
	}
}

func sameFile(f *os.File, path string) bool {
	held, err := f.Stat()
	if err != nil {
		return false
	}
	there, err := os.Stat(path)
	return err == nil && os.SameFile(held, there)
}

// unlock removes the file while the lock is held, then lets go.
func (l *lock) unlock() {
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
