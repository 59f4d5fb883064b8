package journal

import (
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Moment is a time on this node. A change of the wall clock does not move it.
type Moment struct {
	Boot  string        `json:"boot"`  // the kernel's ID of this boot (random(4))
	Since time.Duration `json:"since"` // from the boot on, in nanoseconds (CLOCK_BOOTTIME, clock_gettime(2))
}

// now is the zero Moment if the kernel does not tell the boot.
func now() Moment {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	var since unix.Timespec
	if err != nil || unix.ClockGettime(unix.CLOCK_BOOTTIME, &since) != nil {
		return Moment{}
	}
	return Moment{Boot: strings.TrimSpace(string(boot)), Since: time.Duration(since.Nano())}
}

// OfThisBoot reports whether the moment was since the node's last boot.
func (m Moment) OfThisBoot() bool { return m.Boot != "" && m.Boot == now().Boot }

// after is false for the moments of two boots.
func (m Moment) after(other Moment) bool {
	return m.Boot != "" && m.Boot == other.Boot && m.Since > other.Since
}

// After reports whether a moment was later than another one. A moment of this boot is later than one of an earlier
// boot.
func (m Moment) After(other Moment) bool {
	return m.after(other) || m.OfThisBoot() && !other.OfThisBoot()
}

// BeganAfter reports whether the ADD of a container began after that of another one. The answer is no if the journal
// does not have both.
func (d Dir) BeganAfter(containerID, other string) bool {
	return d.began(containerID).after(d.began(other))
}

// began is when the ADD of a container began; zero: the journal does not tell.
func (d Dir) began(containerID string) (m Moment) {
	d.anyOf(EntryDir, containerID, func(path string) bool {
		s, ok := ParseID(filepath.Base(path))
		if !ok {
			return false
		}
		summary, err := d.Summary(&s)
		if err == nil {
			m = summary.Began
		}
		return err == nil
	})
	return m
}
