package leader

import (
	"bufio"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func onFile(t *testing.T, dir string, log *slog.Logger, last error) *candidate {
	return run(t, func(ctx context.Context, lead Lead) error { return File(ctx, dir, log, lead) }, 0, last)
}

// One of two candidates on a folder leads, the other one waits for the leader's end.
func TestFileHasOneLeader(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		var log buffer
		first := onFile(t, dir, discard, nil)
		<-first.leads
		second := onFile(t, dir, slog.New(slog.NewTextHandler(&log, nil)), errDown)
		for range 100 {
			time.Sleep(lockEvery)
			if !first.isLeading() || second.isLeading() {
				t.Fatalf("first leads: %t, second: %t", first.isLeading(), second.isLeading())
			}
		}
		if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "msg=waiting") || !strings.Contains(got, dir) {
			t.Errorf("log %s, want once that it waits", got)
		}
		first.end()
		<-second.leads
		if first.isLeading() || !second.isLeading() || first.ended() != "" {
			t.Errorf("first leads: %t and ended with %q, second: %t", first.isLeading(), first.ended(),
				second.isLeading())
		}
		if first.leading() == nil {
			t.Error("the ended leader still leads")
		}
		second.end()
		if got := second.ended(); got != errDown.Error() { // its lead's word
			t.Errorf("the second ended with %q", got)
		}
	})
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 || !strings.HasPrefix(entries[0].Name(), ".") {
		t.Errorf("the folder has %v, %v; want one hidden file, which is no manifest", entries, err)
	}
}

// On two folders, both candidates lead.
func TestFileOfAnotherFolder(t *testing.T) {
	one, other := t.TempDir(), t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		first, second := onFile(t, one, discard, nil), onFile(t, other, discard, nil)
		if !first.isLeading() || !second.isLeading() {
			t.Errorf("first leads: %t, second: %t", first.isLeading(), second.isLeading())
		}
		first.end()
		second.end()
		synctest.Wait()
	})
}

func TestFileWaitingEnds(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		first := onFile(t, dir, discard, nil)
		<-first.leads
		second := onFile(t, dir, discard, errDown)
		time.Sleep(10 * lockEvery)
		second.end()
		if got := second.ended(); got != "" {
			t.Errorf("it ended with %q", got)
		}
		first.end()
		time.Sleep(10 * lockEvery)
		if second.isLeading() {
			t.Error("it leads after its end")
		}
	})
}

func TestFileInAnUnusableFolder(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, ".ovn-multinet-controller.lock"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		dir  string
		want error
	}{
		"that is not there":     {filepath.Join(dir, "none"), fs.ErrNotExist},
		"where no file can lie": {dir, nil},
	} {
		t.Run(name, func(t *testing.T) {
			err := File(background, tt.dir, discard, func(context.Context, func() error) error {
				t.Error("it leads")
				return nil
			})
			if err == nil || !strings.HasPrefix(err.Error(), "leader election: ") || tt.want != nil && !errors.Is(err, tt.want) {
				t.Errorf("%v", err)
			}
		})
	}
}

// lockDir is an environment variable: the test's program leads in this folder until it is killed.
const lockDir = "OVN_MULTINET_TEST_LOCK_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(lockDir); dir != "" {
		err := File(background, dir, discard, func(ctx context.Context, _ func() error) error {
			_, err := os.Stdout.WriteString("leads\n")
			<-ctx.Done()
			return err
		})
		slog.Error("it should have been killed", "err", err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// lines receives each line of a logger.
type lines chan string

func (l lines) Write(p []byte) (int, error) {
	l <- string(p)
	return len(p), nil
}

// A killed process does not lead any more: the kernel releases its lock.
func TestFileOfAKilledProcess(t *testing.T) {
	dir := t.TempDir()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), lockDir+"="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	word, err := bufio.NewReader(out).ReadString('\n')
	log := make(lines, 1)
	c := onFile(t, dir, slog.New(slog.NewTextHandler(log, nil)), nil)
	select {
	case <-c.leads:
		t.Error("it leads beside another process")
	case end := <-c.done:
		t.Errorf("it ended with %v", end)
	case <-log: // it waits
	}
	if kill := cmd.Process.Kill(); err != nil || kill != nil || word != "leads\n" {
		t.Errorf("the other process said %q, %v; and was killed: %v", word, err, kill)
	}
	_ = cmd.Wait() // it was killed
	<-c.leads
	c.end()
	if err := <-c.done; err != nil {
		t.Error(err)
	}
}
