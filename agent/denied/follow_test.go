package denied

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// log is a file that a test writes and a follower reads.
type log struct {
	t    *testing.T
	path string
	*follower
}

func newLog(t *testing.T) *log {
	path := filepath.Join(t.TempDir(), "ovn-controller.log")
	l := &log{t, path, &follower{path: path}}
	t.Cleanup(l.close)
	return l
}

func (l *log) write(text string) {
	l.t.Helper()
	f, err := os.OpenFile(l.path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err == nil {
		_, err = f.WriteString(text)
	}
	l.must(err)
	l.must(f.Close())
}

func (l *log) must(err error) {
	l.t.Helper()
	if err != nil {
		l.t.Fatal(err)
	}
}

// want wants the next pass to read these lines.
func (l *log) want(want ...string) {
	l.t.Helper()
	var got []string
	skipped, err := l.read(func(line string) { got = append(got, line) })
	if err != nil || !slices.Equal(got, want) || skipped != 0 {
		l.t.Errorf("read %d lines %.200q, skipped %d, %v; want %.200q", len(got), got, skipped, err, want)
	}
}

func TestFollow(t *testing.T) {
	l := newLog(t)
	l.write("before the start\n")
	l.want()
	l.write("a\nb\nc")
	l.want("a", "b")
	l.write("c\n")
	l.want("cc")
	l.want()
	l.must(os.Rename(l.path, l.path+".1")) // logrotate, and ovn-controller has not opened its new file yet
	l.want()
	l.write("new\n")
	l.want("new")
	l.must(os.Truncate(l.path, 0)) // copytruncate
	l.write("x\n")
	l.want("x")
}

// TestFollowRotated: what was written into the old file before it was replaced is read.
func TestFollowRotated(t *testing.T) {
	l := newLog(t)
	l.want() // no file: the one that comes is read from its begin
	l.write("first\n")
	l.want("first")
	l.write("late\n")
	l.must(os.Rename(l.path, l.path+".1"))
	l.write("new\n")
	l.want("late")
	l.want("new")
}

// TestBoundaryFollow: a line that is too long, and a file that grows faster than it is read, cost no more memory.
func TestBoundaryFollow(t *testing.T) {
	l := newLog(t)
	l.want()
	long := strings.Repeat("x", 3*maxLine)
	l.write("a\n" + long + "\nb\n" + long)
	l.want("a", "b")
	l.write(long + "\nc\n")
	l.want("c")
	if cap(l.rest) > 2*maxLine {
		t.Errorf("the follower keeps %d bytes of a long line", cap(l.rest))
	}
	l.write(strings.Repeat("four\n", maxRead))
	lines := 0
	skipped, err := l.read(func(line string) {
		if lines++; line != "four" {
			t.Errorf("the line %q", line)
		}
	})
	if err != nil || skipped != 4*maxRead || lines != maxRead/5 {
		t.Errorf("%d lines, %d bytes skipped, %v", lines, skipped, err)
	}
}

// TestFollowNoFile: a pipe at the path does not hold the agent.
func TestFollowNoFile(t *testing.T) {
	l := newLog(t)
	l.must(syscall.Mkfifo(l.path, 0o600))
	if _, err := l.read(nil); err == nil || !strings.Contains(err.Error(), "is not a file") {
		t.Errorf("a pipe: %v", err)
	}
}
