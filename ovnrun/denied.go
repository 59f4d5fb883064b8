package ovnrun

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// maxDeniedLog is the size at which the file with denied packets is truncated. Its reader follows the file all the
// time.
const maxDeniedLog = 1 << 20

// deniedLogEvery is the time between two checks of the size.
const deniedLogEvery = 5 * time.Second

// deniedArgs have ovn-controller write the packets that ACLs log to the file, and nothing else.
func deniedArgs(path string) []string {
	return []string{"--log-file=" + path, "-vacl_log:file:info", "-vacl_log:console:off"}
}

// keepSmall truncates the file when it is too large, until the end of ctx. ovn-controller appends to the file, so its
// next line is at the begin.
func (h *Host) keepSmall(ctx context.Context, path string) {
	wait.UntilWithContext(ctx, func(context.Context) {
		if err := truncateLarge(path, maxDeniedLog); err != nil && !errors.Is(err, fs.ErrNotExist) {
			h.Log.Warn("cannot truncate the file with denied packets", "err", err)
		}
	}, deniedLogEvery)
}

func truncateLarge(path string, limit int64) error {
	info, err := os.Stat(path)
	if err != nil || info.Size() <= limit {
		return err
	}
	return os.Truncate(path, 0)
}
