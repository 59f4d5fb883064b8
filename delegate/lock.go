package delegate

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/ovn-multinet/ovn-multinet/conf"
)

// lock serialises the calls for one attachment, which runtimes are known to overlap: a DEL begins while the ADD
// that it gave up on still runs.
type lock struct {
	file *os.File
}

// takeLock waits for the lock until the end of ctx. The file goes with the unlocking; whoever waited on a file
// that is gone begins anew.
func takeLock(ctx context.Context, path string) (*lock, error) {
	for {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return nil, fmt.Errorf("lock: %w", err)
		}
		if err := flock(ctx, f); err != nil {
			return nil, conf.Errorf(conf.CodeTryAgain, "another call for this container is still running", "lock %s: %w", path, err)
		}
		if sameFile(f, path) {
			return &lock{file: f}, nil
		}
		_ = f.Close()
	}
}

// flock blocks in a goroutine: there is no flock with a deadline. If the time is up the goroutine stays, and ends
// with this process, which is about to.
func flock(ctx context.Context, f *os.File) error {
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err == nil {
		return nil
	}
	locked := make(chan error, 1)
	go func() {
		var err error
		for {
			if err = unix.Flock(int(f.Fd()), unix.LOCK_EX); !errors.Is(err, unix.EINTR) {
				break
			}
		}
		locked <- err
	}()
	select {
	case err := <-locked:
		return err
	case <-ctx.Done():
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
	_ = os.Remove(l.file.Name())
	_ = l.file.Close()
}
