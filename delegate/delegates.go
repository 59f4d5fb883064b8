package delegate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/delegateconf"
	"github.com/ovn-multinet/ovn-multinet/internal/failpoint"
	"github.com/ovn-multinet/ovn-multinet/internal/plainfile"
	"github.com/ovn-multinet/ovn-multinet/journal"
)

// delegates runs the plugins of a plan's delegates for one container.
type delegates struct {
	cni  *libcni.CNIConfig
	exec *executor
	call *call
}

func (c *call) delegates() *delegates {
	e := &executor{allowed: &delegateconf.Allowed{Delegates: c.conf.AllowedDelegates, IPAM: c.conf.AllowedIPAM}, note: func(why error) {
		c.note(&c.sandbox, "ran a network's plugin without the limits of all its processes together", "err", why)
	}}
	return &delegates{cni: libcni.NewCNIConfigWithCacheDir(filepath.SplitList(c.args.Path), c.journal.Results(), e), exec: e, call: c}
}

// check tells, before anything is made here, whether all that would be run may be and is installed: the plugins of each
// list, and the plugins for addresses that those run in turn. The agent has looked at the same list; this node's file is
// what counts.
func (d *delegates) check(p *agentapi.Plan) error {
	for i := range p.Delegates {
		list, err := readConflist(&p.Delegates[i])
		if err != nil {
			return err
		}
		for n, programs := range list.programs {
			if err := d.exec.find(programs, d.cni.Path); err != nil {
				return named(&p.Delegates[i], err)
			}
			if err := list.checkShipped(n); err != nil {
				return named(&p.Delegates[i], err)
			}
		}
	}
	return nil
}

func named(d *agentapi.Delegate, err error) error {
	return fmt.Errorf("interface %s: network %s: %w", d.Name, d.Network, err)
}

// runtime is what the plugins of a delegate are told: the same at DEL as at ADD, but for a namespace that is gone (CNI
// specification, section 2, DEL). No plugin is ever told of the node's: it would delete the node's interfaces.
func (d *delegates) runtime(e *journal.Entry, p *agentapi.Delegate) *libcni.RuntimeConf {
	rt := &libcni.RuntimeConf{ContainerID: e.Sandbox.ContainerID, NetNS: e.NetNS, IfName: p.Name, CapabilityArgs: map[string]any{}}
	if !exists(rt.NetNS) || isNodeNetns(rt.NetNS) {
		rt.NetNS = ""
	}
	// Some plugins refuse what they do not know, and the runtime's pod is such (CNI's conventions, "CNI_ARGS").
	rt.Args = append(rt.Args, [2]string{ignoreUnknown, "1"})
	for pair := range strings.SplitSeq(e.Args, ";") {
		if key, value, ok := strings.Cut(pair, "="); ok && key != ignoreUnknown {
			rt.Args = append(rt.Args, [2]string{key, value})
		}
	}
	for _, pair := range p.Args { // those of libcni's cache have it already
		if pair[0] != ignoreUnknown {
			rt.Args = append(rt.Args, pair)
		}
	}
	for key, value := range p.Capabilities {
		rt.CapabilityArgs[key] = value
	}
	rt.CapabilityArgs[deviceCapability] = d.call.deviceFile(&e.Sandbox, p)
	return rt
}

// ignoreUnknown is the key of CNI_ARGS that has a plugin pass by what it does not know.
const ignoreUnknown = "IgnoreUnknown"

// uses has the executor run the plugins of a list, with prev as their previous result.
func (d *delegates) uses(list *conflist, prev json.RawMessage) *libcni.NetworkConfigList {
	d.exec.list, d.exec.prev = list, prev
	return list.stubs
}

// add makes the delegates' attachments in their order. Each is in the journal before it is begun.
func (d *delegates) add(ctx context.Context, e *journal.Entry) error {
	for i := range e.Plan.Delegates {
		p := &e.Plan.Delegates[i]
		e.Begun = i + 1
		if err := d.call.journal.Write(e); err != nil {
			return err
		}
		failpoint.Hit("delegate-begun")
		list, err := readConflist(p)
		if err != nil {
			return err
		}
		if err := list.prepareDevice(p, d.call.deviceFile(&e.Sandbox, p)); err != nil {
			return named(p, err)
		}
		result, err := d.cni.AddNetworkList(ctx, d.uses(list, nil), d.runtime(e, p))
		if err != nil {
			return named(p, delegateError(err))
		}
		text, err := json.Marshal(result)
		if err != nil {
			return named(p, delegateError(err))
		}
		device, err := list.readDevice(p, d.call.deviceFile(&e.Sandbox, p))
		if err != nil {
			return named(p, err)
		}
		e.Results, e.Devices = append(e.Results, text), append(e.Devices, device)
		if err := checkResults(e); err != nil {
			return named(p, err)
		}
		failpoint.Hit("delegate-made")
	}
	return nil
}

// checkResults bounds what the delegates report together: the journal and the agent hold all of it.
func checkResults(e *journal.Entry) error {
	size := 0
	for i := range e.Results {
		size += len(e.Results[i]) + len(e.Devices[i])
	}
	if size <= agentapi.MaxResults {
		return nil
	}
	return conf.Errorf(conf.CodeDelegateFailed, "a CNI result is a few kB of JSON",
		"the results of the pod's networks up to this one: %w", conf.TooLarge(size, agentapi.MaxResults))
}

// delegateError gives a code to what libcni says itself.
func delegateError(err error) error {
	if _, ok := errors.AsType[*conf.Error](err); ok {
		return err
	}
	return conf.Errorf(conf.CodeDelegateFailed, "the plugin or its configuration in the NetworkAttachmentDefinition is at fault", "%w", err)
}

// del takes the attachments that were begun away again, the last one first. One that fails does not keep the others
// (multi-net-spec 1.3, section 7.2); its place is returned, to be tried again.
func (d *delegates) del(ctx context.Context, e *journal.Entry) (left []int, abandoned []string, err error) {
	var errs []error
	begun := e.BegunDelegates()
	for i := len(begun) - 1; i >= 0; i-- {
		p := &begun[i]
		list, err := readConflist(p)
		holder := ""
		if err == nil && e.Damaged {
			holder, err = d.holderOf(e, list)
		}
		if err == nil && holder == "" {
			rt := d.runtime(e, p)
			d.restore(list, rt, e.Result(i))
			err = d.cni.DelNetworkList(ctx, d.uses(list, nil), rt)
		}
		if holder != "" {
			abandoned = append(abandoned, d.abandon(e, p, list, fmt.Errorf("its entry is damaged, and container %.12s has its device by now", holder)))
		}
		if err != nil && list != nil && netnsGone(e.NetNS) && list.holdsOnlyNetns() {
			abandoned = append(abandoned, d.abandon(e, p, list, fmt.Errorf("its network namespace is gone, and it holds nothing outside: %w", err)))
			err = nil
		}
		if err == nil {
			err = dropDevice(d.call.deviceFile(&e.Sandbox, p))
		}
		if err != nil {
			errs = append(errs, named(p, delegateError(err)))
			left = append([]int{i}, left...)
			continue
		}
		failpoint.Hit("delegate-gone")
	}
	return left, abandoned, errors.Join(errs...)
}

// abandon deletes what is stored of an attachment without a successful DEL. It logs the reason, and returns it for the
// agent's log.
func (d *delegates) abandon(e *journal.Entry, p *agentapi.Delegate, list *conflist, why error) string {
	why = named(p, why)
	d.call.note(&e.Sandbox, "gave up a network of another plugin", "err", why)
	_ = os.Remove(d.call.journal.Result(list.stubs.Name, e.Sandbox.ContainerID, p.Name))
	return oneLine(why.Error())
}

// holderOf names the container that has the device of a list now, by the journal, "" if none has. The agent does not know
// the devices of an entry that is damaged, so it may have given this one to another container: a DEL would take it away.
func (d *delegates) holderOf(e *journal.Entry, list *conflist) (container string, err error) {
	var id string
	if len(list.plugins) == 0 || json.Unmarshal(list.plugins[0]["deviceID"], &id) != nil || id == "" {
		return "", nil
	}
	all, _, err := d.call.journal.Summaries()
	if err != nil {
		return "", fmt.Errorf("journal: %w", err)
	}
	for i := range all {
		other := &all[i]
		if other.Plan == nil || other.Sandbox.ContainerID == e.Sandbox.ContainerID {
			continue
		}
		for i := range other.Plan.Delegates {
			if device := other.Plan.Delegates[i].Device; device != nil && device.ID == id {
				return other.Sandbox.ContainerID, nil
			}
		}
	}
	return "", nil
}

// giveUp leaves the attachments that were begun as they are: an operator says that nothing can take them away any more.
func (d *delegates) giveUp(e *journal.Entry) {
	begun := e.BegunDelegates()
	for i := range begun {
		_ = dropDevice(d.call.deviceFile(&e.Sandbox, &begun[i]))
		if list, err := readConflist(&begun[i]); err == nil {
			_ = os.Remove(d.call.journal.Result(list.stubs.Name, e.Sandbox.ContainerID, begun[i].Name))
		}
	}
}

// checkAll is CHECK of every delegate whose configuration knows it.
func (d *delegates) checkAll(ctx context.Context, e *journal.Entry) error {
	for i := range e.Plan.Delegates {
		p := &e.Plan.Delegates[i]
		list, err := readConflist(p)
		if err != nil {
			return err
		}
		if !hasCheck(list.stubs.CNIVersion) {
			continue
		}
		rt := d.runtime(e, p)
		d.restore(list, rt, e.Result(i))
		// The routes may be others than its plugins made.
		if err := d.cni.CheckNetworkList(ctx, d.uses(list, e.Result(i)), rt); err != nil {
			return named(p, delegateError(err))
		}
	}
	return nil
}

// hasCheck: CHECK came with version 0.4.0.
func hasCheck(version string) bool {
	return version != "" && !strings.HasPrefix(version, "0.1.") && !strings.HasPrefix(version, "0.2.") && !strings.HasPrefix(version, "0.3.")
}

// gc is GC of the networks that the delegates of this conflist's entries are on: what their plugins hold for no valid
// attachment goes. Networks that are in none of them are others'. All that the journal has beside stays: a network may be
// another conflist's too.
func (d *delegates) gc(ctx context.Context, entries []*journal.Entry, gone func(*journal.Entry) bool) error {
	lists := map[string]*conflist{}
	attachments := map[string][]types.GCAttachment{}
	for _, e := range entries {
		if e.Damaged {
			if err := d.recall(e); err != nil {
				return err
			}
		}
		begun := e.BegunDelegates()
		for i := range begun {
			p := &begun[i]
			list, err := readConflist(p)
			if err != nil {
				continue // its DEL says so
			}
			if e.Sandbox.Conflist == d.call.conf.Name {
				lists[string(p.Conflist)] = list
			}
			if !gone(e) {
				name := list.stubs.Name
				attachments[name] = append(attachments[name], types.GCAttachment{ContainerID: e.Sandbox.ContainerID, IfName: p.Name})
			}
		}
	}
	var errs []error
	for _, list := range lists {
		valid := &libcni.GCArgs{ValidAttachments: append([]types.GCAttachment{}, attachments[list.stubs.Name]...)}
		if err := d.withoutCache().GCNetworkList(ctx, d.uses(list, nil), valid); err != nil {
			errs = append(errs, fmt.Errorf("network %s: %w", list.stubs.Name, delegateError(err)))
		}
	}
	return errors.Join(errs...)
}

// withoutCache is libcni with a folder of results that is never made. Its GC begins with a DEL of all that the cache has of
// the CNI name and the list has not, by whatever configuration it was called with, even another NAD's; what was to go is
// gone by the journal, each by its own.
func (d *delegates) withoutCache() *libcni.CNIConfig {
	return libcni.NewCNIConfigWithCacheDir(d.cni.Path, filepath.Join(d.call.journal.Results(), "none"), d.exec)
}

// restore gives libcni's cache the result of an ADD back if it has lost it: its files are not written whole or not at all,
// the journal is, and a plugin without its prevResult may leave behind what it made. libcni reads a bare result too.
func (d *delegates) restore(list *conflist, rt *libcni.RuntimeConf, result json.RawMessage) {
	if result == nil {
		return
	}
	if known, err := d.cni.GetNetworkListCachedResult(list.stubs, rt); err == nil && known != nil {
		return
	}
	path := d.call.journal.Result(list.stubs.Name, rt.ContainerID, rt.IfName)
	if os.MkdirAll(filepath.Dir(path), 0o700) == nil {
		// If it cannot be, the plugin does what it can without.
		_ = plainfile.Write(path, result, 0o600)
	}
}

// recall looks in libcni's cache for the delegates of an entry that is damaged.
func (d *delegates) recall(e *journal.Entry) error {
	cached, err := d.cni.GetCachedAttachments(e.Sandbox.ContainerID)
	if err != nil {
		return fmt.Errorf("results of container %.12s: %w", e.Sandbox.ContainerID, err)
	}
	for _, a := range cached {
		p := agentapi.Delegate{Name: a.IfName, Network: a.Network, Conflist: a.Config, Args: a.CniArgs, Capabilities: map[string]json.RawMessage{}}
		for key, value := range a.CapabilityArgs {
			if p.Capabilities[key], err = json.Marshal(value); err != nil {
				return fmt.Errorf("results of container %.12s: %w", e.Sandbox.ContainerID, err)
			}
		}
		e.NetNS, e.Recalled = a.NetNS, append(e.Recalled, p)
	}
	return nil
}
