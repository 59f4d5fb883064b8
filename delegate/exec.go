package delegate

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"syscall"
	"time"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/internal/cniexec"
)

// executor runs delegates' binaries for libcni: only those that the operator allows, each in a process group of its
// own that ends with us and with the deadline.
type executor struct {
	version.PluginDecoder
	allowed []string
	// list is the configuration whose plugins are run, prev the result that they are given instead of libcni's; nil:
	// libcni's.
	list *conflist
	prev json.RawMessage
}

const (
	// busyTries bounds how often a binary is tried again that is being written just now.
	busyTries = 5
	busyPause = 100 * time.Millisecond
)

// FindInPath is the last look at a plugin's type before it is run.
func (e *executor) FindInPath(plugin string, paths []string) (string, error) {
	if err := conf.CheckAllowed(plugin, e.allowed); err != nil {
		return "", err
	}
	path, err := invoke.FindInPath(plugin, paths)
	if err != nil {
		return "", conf.Errorf(conf.CodeDelegateFailed, "install the plugin on this node, in the runtime's folder of CNI plugins", "delegate %s: %w", plugin, err)
	}
	return path, nil
}

// ExecPlugin runs a binary with the configuration on its standard input.
func (e *executor) ExecPlugin(ctx context.Context, path string, stdin []byte, environ []string) ([]byte, error) {
	stdin, err := e.list.request(stdin, e.prev)
	if err != nil {
		return nil, err
	}
	name := filepath.Base(path)
	for try := 1; ; try++ {
		out, err := cniexec.Run(ctx, path, stdin, environ)
		switch {
		case errors.Is(err, syscall.ETXTBSY) && try < busyTries:
			select {
			case <-ctx.Done(): // the next try says so
			case <-time.After(busyPause):
			}
			continue
		case ctx.Err() != nil:
			return nil, conf.Errorf(conf.CodeDelegateFailed, "it and all that it started were killed", "delegate %s: %w", name, context.Cause(ctx))
		case out.Over:
			return nil, conf.Errorf(conf.CodeDelegateFailed, "a CNI result is a few kB of JSON", "delegate %s: it printed more than %d bytes", name, cniexec.MaxOutput)
		case err != nil:
			return nil, complaint(name, err, out.Stdout, out.Stderr)
		}
		return out.Stdout, nil
	}
}

// complaint is a delegate's own error, with its own code if it has one (CNI specification, section 5, "Error").
func complaint(name string, err error, stdout, stderr []byte) error {
	var own types.Error
	if json.Unmarshal(stdout, &own) == nil && (own.Code != 0 || own.Msg != "") {
		code := own.Code
		if code == 0 || code == types.ErrInternal { // what skel makes of an error without a code
			code = conf.CodeDelegateFailed
		}
		return conf.Errorf(code, cmp.Or(own.Details, "it said no more"), "delegate %s: %s", name, oneLine(own.Msg))
	}
	said := oneLine(string(stderr))
	if said == "" {
		said = oneLine(string(stdout))
	}
	if said == "" {
		return conf.Errorf(conf.CodeDelegateFailed, "it said nothing", "delegate %s: %w", name, err)
	}
	return conf.Errorf(conf.CodeDelegateFailed, err.Error(), "delegate %s: %s", name, said)
}

// oneLine keeps of a delegate's words what fits into an Event.
func oneLine(s string) string {
	s = string(bytes.Join(bytes.Fields([]byte(s)), []byte(" ")))
	return s[:min(len(s), 512)]
}
