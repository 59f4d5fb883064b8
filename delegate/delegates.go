package delegate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/internal/failpoint"
	"github.com/ovn-multinet/ovn-multinet/plan"
)

// cacheDir is where libcni keeps the results that a DEL needs, below the state folder.
const cacheDir = "results"

// delegates runs the plugins of a plan's delegates for one container.
type delegates struct {
	cni  *libcni.CNIConfig
	exec *executor
	call *call
}

func (c *call) delegates() *delegates {
	e := &executor{allowed: c.conf.AllowedDelegates}
	cache := filepath.Join(c.conf.StateDir, cacheDir)
	return &delegates{cni: libcni.NewCNIConfigWithCacheDir(filepath.SplitList(c.args.Path), cache, e), exec: e, call: c}
}

// check tells, before anything is made, whether all that would be run may be: the plugins of each list, and the
// plugins for addresses that those run in turn.
func (d *delegates) check(p *plan.Plan) error {
	for i := range p.Delegates {
		list, err := readConflist(&p.Delegates[i])
		if err != nil {
			return err
		}
		for _, plugin := range list.Plugins {
			for _, kind := range []string{plugin.Network.Type, plugin.Network.IPAM.Type} {
				if kind == "" {
					continue
				}
				if err := d.exec.allow(kind); err != nil {
					return named(&p.Delegates[i], err)
				}
			}
		}
	}
	return nil
}

func named(d *plan.Delegate, err error) error {
	return fmt.Errorf("interface %s: network %s: %w", d.Name, d.Network, err)
}

func readConflist(d *plan.Delegate) (*libcni.NetworkConfigList, error) {
	list, err := libcni.NetworkConfFromBytes(d.Conflist)
	if err != nil {
		return nil, named(d, conf.Errorf(conf.CodeInvalidConfig, "correct spec.config of the NetworkAttachmentDefinition", "%w", err))
	}
	return list, nil
}

// runtime is what the plugins of a delegate are told: the same at DEL as at ADD, but for a namespace that is gone (CNI
// specification, section 2, DEL).
func (d *delegates) runtime(e *entry, p *plan.Delegate) *libcni.RuntimeConf {
	rt := &libcni.RuntimeConf{ContainerID: e.Sandbox.ContainerID, NetNS: e.NetNS, IfName: p.Name, CapabilityArgs: map[string]any{}}
	if !exists(rt.NetNS) {
		rt.NetNS = ""
	}
	for pair := range strings.SplitSeq(e.Args, ";") {
		if key, value, ok := strings.Cut(pair, "="); ok {
			rt.Args = append(rt.Args, [2]string{key, value})
		}
	}
	rt.Args = append(rt.Args, p.Args...)
	for key, value := range p.Capabilities {
		rt.CapabilityArgs[key] = value
	}
	return rt
}

// add makes the delegates' attachments in their order. Each is in the journal before it is begun.
func (d *delegates) add(ctx context.Context, e *entry) error {
	for i := range e.Plan.Delegates {
		p := &e.Plan.Delegates[i]
		e.Begun = i + 1
		if err := d.call.journal.write(e); err != nil {
			return err
		}
		failpoint.Hit("delegate-begun")
		list, err := readConflist(p)
		if err != nil {
			return err
		}
		result, err := d.cni.AddNetworkList(ctx, list, d.runtime(e, p))
		if err != nil {
			return named(p, delegateError(err))
		}
		text, err := json.Marshal(result)
		if err != nil {
			return named(p, delegateError(err))
		}
		e.Results = append(e.Results, text)
		failpoint.Hit("delegate-made")
	}
	if len(e.Plan.Delegates) == 0 {
		return nil
	}
	return d.call.journal.write(e)
}

// delegateError gives a code to what libcni says itself.
func delegateError(err error) error {
	if _, ok := errors.AsType[*conf.Error](err); ok {
		return err
	}
	return conf.Errorf(conf.CodeDelegateFailed, "the plugin or its configuration in the NetworkAttachmentDefinition is at fault", "%w", err)
}

// del takes the attachments that were begun away again, the last one first. One that fails does not keep the others
// (multi-net-spec 1.3, section 7.2); it is returned, to be tried again.
func (d *delegates) del(ctx context.Context, e *entry) (left []plan.Delegate, err error) {
	if e.Plan == nil {
		return nil, nil
	}
	var errs []error
	for i := min(e.Begun, len(e.Plan.Delegates)) - 1; i >= 0; i-- {
		p := &e.Plan.Delegates[i]
		list, err := readConflist(p)
		if err == nil {
			err = d.cni.DelNetworkList(ctx, list, d.runtime(e, p))
		}
		if err != nil {
			errs = append(errs, named(p, delegateError(err)))
			left = append([]plan.Delegate{*p}, left...)
			continue
		}
		failpoint.Hit("delegate-gone")
	}
	return left, errors.Join(errs...)
}

// checkAll is CHECK of every delegate whose configuration knows it.
func (d *delegates) checkAll(ctx context.Context, e *entry) error {
	for i := range e.Plan.Delegates {
		p := &e.Plan.Delegates[i]
		list, err := readConflist(p)
		if err != nil {
			return err
		}
		if !hasCheck(list.CNIVersion) {
			continue
		}
		if err := d.cni.CheckNetworkList(ctx, list, d.runtime(e, p)); err != nil {
			return named(p, delegateError(err))
		}
	}
	return nil
}

// hasCheck: CHECK came with version 0.4.0.
func hasCheck(version string) bool {
	return version != "" && !strings.HasPrefix(version, "0.1.") && !strings.HasPrefix(version, "0.2.") && !strings.HasPrefix(version, "0.3.")
}

// gc is GC of the networks that the entries' delegates are on: what their plugins hold for none of the entries goes.
// Networks that are in no entry are others'.
func (d *delegates) gc(ctx context.Context, entries []*entry, valid func(*entry) bool) error {
	lists := map[string]*libcni.NetworkConfigList{}
	attachments := map[string][]types.GCAttachment{}
	for _, e := range entries {
		if e.Plan == nil {
			continue
		}
		for i := range e.Plan.Delegates {
			list, err := readConflist(&e.Plan.Delegates[i])
			if err != nil {
				continue // its DEL says so
			}
			lists[list.Name] = list
			if valid(e) {
				attachments[list.Name] = append(attachments[list.Name],
					types.GCAttachment{ContainerID: e.Sandbox.ContainerID, IfName: e.Plan.Delegates[i].Name})
			}
		}
	}
	var errs []error
	for name, list := range lists {
		if err := d.cni.GCNetworkList(ctx, list, &libcni.GCArgs{ValidAttachments: attachments[name]}); err != nil {
			errs = append(errs, fmt.Errorf("network %s: %w", name, delegateError(err)))
		}
	}
	return errors.Join(errs...)
}
