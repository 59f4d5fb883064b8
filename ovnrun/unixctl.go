package ovnrun

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"
)

// control sends a command to the control socket of a daemon of OVN or Open vSwitch and returns its text. It is the
// JSON-RPC of ovs-appctl(8).
func control(ctx context.Context, socket, command string, args ...string) (string, error) {
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
