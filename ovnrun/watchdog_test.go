package ovnrun

import (
	"context"
	"log/slog"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"
)

// TestWatchdog: a daemon that neither answers nor computes is ended. One that answers and idles is left alone, and one
// that computes and does not answer, too.
func TestWatchdog(t *testing.T) {
	w := newWorld(t)
	h := w.host()
	dir := h.RunDir
	server, err := start(h.serverArgs()...)
	w.must(err)
	w.eventually("the server", func() error { return Ready(t.Context(), dir, "ovsdb") })
	// The program computes without an end, and has no control socket.
	busy := &child{exec.Command("sh", "-c", "while :; do :; done"), make(chan error, 1)}
	w.must(busy.cmd.Start())
	go func() { busy.ended <- busy.cmd.Wait() }()
	t.Cleanup(func() { _ = busy.cmd.Process.Kill() })
	const every = 2 * time.Second // a busy machine answers in half of it, at least once in three times
	ctx, stop := context.WithTimeout(t.Context(), 2*maxSilent*every)
	defer stop()
	var both sync.WaitGroup
	for c, control := range map[*child]string{server: h.control(ovsdbServer), busy: filepath.Join(dir, "none.ctl")} {
		both.Go(func() { (&watchdog{c, control, every, slog.New(slog.DiscardHandler)}).run(ctx) })
	}
	both.Wait()
	for _, c := range []*child{server, busy} {
		select {
		case err := <-c.ended:
			t.Fatalf("%s was ended: %v", c.cmd.Args[0], err)
		default:
		}
	}
	w.must(server.cmd.Process.Signal(syscall.SIGSTOP))
	(&watchdog{server, h.control(ovsdbServer), every, slog.New(slog.DiscardHandler)}).run(t.Context())
	if err := <-server.ended; err == nil {
		t.Error("the server that was stopped ended by itself")
	}
}
