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
	"github.com/ovn-multinet/ovn-multinet/delegate/delegateconf"
	"github.com/ovn-multinet/ovn-multinet/node/cniexec"
)

// executor runs delegates' programs for libcni. It runs only programs that the operator allows, each in its own
// process group, which ends with our process or at the deadline.
type executor struct {
	version.PluginDecoder
	allowed *delegateconf.Allowed
	// list is the configuration whose plugins run. prev is the previous result that they get instead of the result from
	// libcni's cache; nil: they get the result from the cache.
	list *conflist
	prev json.RawMessage
	// note logs why a program ran without a control group.
	note func(why error)
}

const (
	// busyTries limits the attempts to run a program that another process is writing.
	busyTries = 5
	busyPause = 100 * time.Millisecond
	// callTime limits one call of a plugin, within the time of the whole operation.
	callTime = 30 * time.Second
)

// FindInPath is the last check of a plugin's type before the plugin runs.
func (e *executor) FindInPath(plugin string, paths []string) (string, error) {
	if err := delegateconf.CheckAllowed(plugin, e.allowed.Delegates); err != nil {
		return "", err
	}
	return installed(plugin, paths)
}

// find reports whether the programs of a plugin's configuration are allowed and installed.
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

// installed returns the path of a plugin's program.
func installed(plugin string, paths []string) (string, error) {
	path, err := invoke.FindInPath(plugin, paths)
	if err != nil {
		return "", conf.Errorf(conf.CodeDelegateFailed,
			"install the plugin on this node, in the runtime's folder of CNI plugins",
			"delegate %s: %w", plugin, err)
	}
	return path, nil
}

// ExecPlugin runs a program with the configuration on its standard input.
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
			case <-ctx.Done(): // the next attempt returns this error
			case <-time.After(busyPause):
			}
			continue
		case ctx.Err() != nil:
			return nil, conf.Errorf(conf.CodeDelegateFailed, "it and all that it started were killed",
				"delegate %s: %w", name, context.Cause(ctx))
		case out != nil && out.Over:
			return nil, conf.Errorf(conf.CodeDelegateFailed, "a CNI result is a few kB of JSON",
				"delegate %s: it printed more than %d bytes", name, cniexec.MaxOutput)
		case errors.Is(err, cniexec.ErrNoGroup):
			return nil, conf.Errorf(conf.CodeDelegateFailed,
				"make the node's control groups below /sys/fs/cgroup writable for the container runtime",
				"delegate %s: %w", name, err)
		case err != nil && out == nil:
			return nil, conf.Errorf(conf.CodeDelegateFailed,
				"check whether the node has run out of processes, open files or memory",
				"delegate %s: %w", name, err)
		case err != nil && out.Limit != "":
			return nil, conf.Errorf(conf.CodeDelegateFailed,
				"the plugin or its configuration in the NetworkAttachmentDefinition is at fault",
				"delegate %s: it reached the limit of %s", name, out.Limit)
		case err != nil:
			return nil, ownError(name, err, out.Stdout, out.Stderr)
		}
		return out.Stdout, nil
	}
}

// deletes reports whether a plugin is called to delete something (CNI specification, section 2). Such a call runs even
// if the node cannot make a control group for it.
func deletes(environ []string) bool {
	return slices.Contains(environ, "CNI_COMMAND=DEL") || slices.Contains(environ, "CNI_COMMAND=GC")
}

// checkRequest is the last check of a plugin's input. It reads the same bytes in the same way as the plugin, which
// must run only programs that the operator allows.
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

// ownError is a delegate's error, with the delegate's code if there is one (CNI specification, section 5, "Error").
func ownError(name string, err error, stdout, stderr []byte) error {
	var own types.Error
	if json.Unmarshal(stdout, &own) == nil && (own.Code != 0 || own.Msg != "") {
		code := own.Code
		if code == 0 || code == types.ErrInternal { // skel's code for an error without a code
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

// oneLine shortens a delegate's text for an Event.
func oneLine(s string) string { return conf.OneLine(s, 512) }
