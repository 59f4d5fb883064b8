package unixctl_test

import (
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/internal/unixctl"
)

// daemon answers one call on a control socket.
func daemon(t *testing.T, socket, answer string) (asked chan string) {
	t.Helper()
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	asked = make(chan string, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		var request json.RawMessage
		if json.NewDecoder(c).Decode(&request) == nil {
			asked <- string(request)
			_, _ = c.Write([]byte(answer))
		}
	}()
	return asked
}

func TestCall(t *testing.T) {
	for _, c := range []struct{ name, answer, want, err string }{
		{"text", `{"id":0,"result":"done","error":null}`, "done", ""},
		{"refused", `{"id":0,"result":null,"error":"no such zone\n"}`, "", "dpctl/flush: no such zone"},
		{"end", ``, "", "dpctl/flush: EOF"},
	} {
		t.Run(c.name, func(t *testing.T) {
			socket := filepath.Join(t.TempDir(), "d.ctl")
			asked := daemon(t, socket, c.answer)
			text, err := unixctl.Call(t.Context(), socket, "dpctl/flush", "zone=1", "")
			if text != c.want || c.err == "" && err != nil || c.err != "" && (err == nil || err.Error() != c.err) {
				t.Errorf("%q, error %v; want %q, %s", text, err, c.want, c.err)
			}
			if got := <-asked; !strings.Contains(got, `"params":["zone=1",""]`) {
				t.Errorf("request %s", got)
			}
		})
	}
}

func TestSocket(t *testing.T) {
	dir := t.TempDir()
	if _, err := unixctl.Socket(dir, "ovs-vswitchd"); err == nil {
		t.Error("a daemon that does not run has a socket")
	}
	for _, c := range []struct{ file, content, want string }{
		{"ovs-vswitchd.pid", "42\n", "ovs-vswitchd.42.ctl"},
		{"ovs-vswitchd.ctl", "", "ovs-vswitchd.ctl"},
	} {
		if err := os.WriteFile(filepath.Join(dir, c.file), []byte(c.content), 0o644); err != nil {
			t.Fatal(err)
		}
		if got, err := unixctl.Socket(dir, "ovs-vswitchd"); err != nil || filepath.Base(got) != c.want {
			t.Errorf("socket %s, error %v; want %s", got, err, c.want)
		}
	}
}
