package lab

import "context"

// Multinet runs `kubectl multinet` on the lab's manifests and NB, and returns what it prints.
func (l *Lab) Multinet(ctx context.Context, args ...string) (string, error) {
	path, err := l.binary("kubectl-multinet")
	if err != nil {
		return "", err
	}
	return tool(ctx, path, append(args, "--manifests", l.Manifests, "--nb-endpoints", l.nb.remote())...)
}
