package agentapi

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// received is a request as an agent reads it, and what comes out of the sockets that came with it.
type received struct {
	op, said string
	size     int
	err      error
}

// receive serves one connection, and reads a byte from each socket that comes.
func receive(t *testing.T, l *net.UnixListener, requests int) <-chan received {
	all := make(chan received, requests)
	go func() {
		conn, err := l.AcceptUnix()
		if err != nil {
			all <- received{err: err}
			return
		}
		defer conn.Close()
		inbox := &Inbox{Conn: conn}
		for r := NewReader(inbox); ; {
			var request Request
			if err := r.Read(&request); err != nil {
				return
			}
			got := received{op: request.Op, size: len(request.Body)}
			sockets := inbox.Take()
			for _, s := range sockets {
				var b [1]byte
				if _, got.err = io.ReadFull(s, b[:]); got.err != nil {
					break
				}
				got.said += string(b[:])
			}
			CloseSockets(sockets)
			all <- got
			if Write(conn, Response{Version: Version, Body: json.RawMessage(`{}`)}) != nil {
				return
			}
		}
	}()
	return all
}

// Sockets come with a bind, and with nothing else, in their order; a message that does not fit into the connection's
// buffer brings them too, once. The plugin's own ones stay open: the request may have to be repeated.
func TestSockets(t *testing.T) {
	path := socketPath(t)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c := client(t, path)
	for i := range 3 {
		fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		end := os.NewFile(uintptr(fds[1]), "end")
		t.Cleanup(func() { unix.Close(fds[0]); end.Close() })
		if _, err := end.Write([]byte(strings.Repeat(fmt.Sprint(i), 4))); err != nil {
			t.Fatal(err)
		}
		c.Sockets = append(c.Sockets, fds[0])
	}
	all := receive(t, l, 4)
	large := BindRequest{Sandbox: sandbox, Primary: json.RawMessage(`"` + strings.Repeat("x", 3<<20) + `"`)}
	for _, tt := range []struct {
		op   string
		body any
		want string
	}{
		{OpPlan, PlanRequest{Sandbox: sandbox}, ""}, {OpBind, BindRequest{Sandbox: sandbox}, "012"}, {OpBind, large, "012"},
		{OpRelease, Release{Sandbox: sandbox}, ""},
	} {
		if err := c.Call(withTimeout(t), tt.op, tt.body, nil); err != nil {
			t.Fatal(err)
		}
		if got := <-all; got.op != tt.op || got.said != tt.want || got.err != nil {
			t.Errorf("%s with %d bytes brings %q, %v; want %q", got.op, got.size, got.said, got.err, tt.want)
		}
	}
	for _, fd := range c.Sockets {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil {
			t.Errorf("the plugin's socket: %v", err)
		}
	}
}
