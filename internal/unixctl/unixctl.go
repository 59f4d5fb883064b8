package unixctl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Call sends a command to a control socket and returns the text of the answer.
func Call(ctx context.Context, socket, command string, args ...string) (string, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", socket)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Now()) })()
	request := map[string]any{"id": 0, "method": command, "params": append([]string{}, args...)}
	if err := json.NewEncoder(conn).Encode(request); err != nil {
		return "", err
	}
	var answer struct{ Result, Error any }
	if err := json.NewDecoder(conn).Decode(&answer); err != nil {
		return "", fmt.Errorf("%s: %w", command, err)
	}
	if answer.Error != nil {
		return "", fmt.Errorf("%s: %w", command, errors.New(strings.TrimSpace(fmt.Sprint(answer.Error))))
	}
	return fmt.Sprint(answer.Result), nil
}

// Socket returns the control socket of a daemon whose sockets are in a folder: "<daemon>.ctl", as our own images name
// it, or "<daemon>.<pid>.ctl", the daemons' default. The process ID is that of the daemon's PID file.
func Socket(dir, daemon string) (string, error) {
	own := filepath.Join(dir, daemon+".ctl")
	if _, err := os.Stat(own); err == nil {
		return own, nil
	}
	pid, err := os.ReadFile(filepath.Join(dir, daemon+".pid"))
	if err != nil {
		return "", fmt.Errorf("control socket of %s: %w", daemon, err)
	}
	return filepath.Join(dir, daemon+"."+strings.TrimSpace(string(pid))+".ctl"), nil
}
