package delegate

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/delegateconf"
	"github.com/ovn-multinet/ovn-multinet/internal/cniexec"
)

// executor runs delegates' binaries for libcni: only those that the operator allows, each in a process group of its
// own that ends with us and with the deadline.
type executor struct {
	version.PluginDecoder
	allowed *delegateconf.Allowed
	// list is the configuration whose plugins are run, prev the result that they are given instead of libcni's; nil:
	// libcni's.
	list *conflist
	prev json.RawMessage
	// note tells of a program that ran without control groups, and why.
	note func(why error)
}

const (
	// busyTries bounds how often a binary is tried again that is being written just now.
	busyTries = 5
	busyPause = 100 * time.Millisecond
	// callTime bounds one call of a plugin, within what the whole operation has.
	callTime = 30 * time.Second
)

// FindInPath is the last look at a plugin's type before it is run.
func (e *executor) FindInPath(plugin string, paths []string) (string, error) {
	if err := delegateconf.CheckAllowed(plugin, e.allowed.Delegates); err != nil {
		return "", err
	}
	return installed(plugin, paths)
}

// find tells whether the programs of a plugin's configuration may be run and are installed.
func (e *executor) find(p *delegateconf.Programs, paths []string) error {
	if err := e.allowed.Check(p); err != nil {
		return err
	}
	for _, name := range []string{p.Type, p.IPAM} {
		if name == "" {
			continue
		}
		if _, err := installed(name, paths); err != nil {
			return err
		}
	}
	return nil
}

// installed returns where a plugin's program is.
func installed(plugin string, paths []string) (string, error) {
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
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	name := filepath.Base(path)
	if err := e.checkRequest(name, stdin); err != nil {
		return nil, err
	}
	limits := cniexec.DelegateLimits
	limits.Lenient = deletes(environ)
	for try := 1; ; try++ {
		out, err := cniexec.Run(ctx, path, stdin, environ, &limits)
		if out != nil && out.Unlimited != nil {
			e.note(fmt.Errorf("delegate %s: %w", name, out.Unlimited))
		}
		switch {
		case errors.Is(err, syscall.ETXTBSY) && try < busyTries:
			select {
			case <-ctx.Done(): // the next try says so
			case <-time.After(busyPause):
			}
			continue
		case ctx.Err() != nil:
			return nil, conf.Errorf(conf.CodeDelegateFailed, "it and all that it started were killed", "delegate %s: %w", name, context.Cause(ctx))
		case out != nil && out.Over:
			return nil, conf.Errorf(conf.CodeDelegateFailed, "a CNI result is a few kB of JSON", "delegate %s: it printed more than %d bytes", name, cniexec.MaxOutput)
		case errors.Is(err, cniexec.ErrNoGroup):
			return nil, conf.Errorf(conf.CodeDelegateFailed, "make the node's control groups below /sys/fs/cgroup writable for the container runtime",
				"delegate %s: %w", name, err)
		case err != nil && out == nil:
			return nil, conf.Errorf(conf.CodeDelegateFailed, "check whether the node has run out of processes, open files or memory",
				"delegate %s: %w", name, err)
		case err != nil && out.Limit != "":
			return nil, conf.Errorf(conf.CodeDelegateFailed, "the plugin or its configuration in the NetworkAttachmentDefinition is at fault",
				"delegate %s: it reached the limit of %s", name, out.Limit)
		case err != nil:
			return nil, complaint(name, err, out.Stdout, out.Stderr)
		}
		return out.Stdout, nil
	}
}

// deletes tells whether a plugin is called to delete something (CNI specification, section 2). That is done without
// control groups rather than not at all.
func deletes(environ []string) bool {
	return slices.Contains(environ, "CNI_COMMAND=DEL") || slices.Contains(environ, "CNI_COMMAND=GC")
}

// checkRequest is the last look at what a plugin is given: these very bytes, read as the plugin reads them, have it run what the
// operator allows and no more.
func (e *executor) checkRequest(name string, stdin []byte) error {
	p, err := delegateconf.ReadPrograms(stdin)
	if err == nil && p.Type != name {
		err = fmt.Errorf("type: %.64q is given to plugin %.64q", p.Type, name)
	}
	if err != nil {
		return conf.Errorf(conf.CodeInvalidConfig, correctNAD, "delegate %s: %w", name, err)
	}
	return e.allowed.Check(p)
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
func oneLine(s string) string { return conf.OneLine(s, 512) }
