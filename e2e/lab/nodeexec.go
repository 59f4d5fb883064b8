package lab

import (
	"context"
	"fmt"
	"os/exec"
)

// Exec runs a command in the node's network namespace and returns what it wrote to both its streams.
func (n *Node) Exec(ctx context.Context, command ...string) (string, error) {
	out, err := runIn(n.NetNS, exec.CommandContext(ctx, command[0], command[1:]...))
	if err != nil {
		return out, fmt.Errorf("on %s: %v: %w: %s", n.Name, command, err, out)
	}
	return out, nil
}
