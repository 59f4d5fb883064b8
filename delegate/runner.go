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
	"github.com/ovn-multinet/ovn-multinet/delegate/delegateconf"
	"github.com/ovn-multinet/ovn-multinet/internal/failpoint"
	"github.com/ovn-multinet/ovn-multinet/internal/plainfile"
	"github.com/ovn-multinet/ovn-multinet/node/journal"
	"github.com/ovn-multinet/ovn-multinet/node/wiring"
	"github.com/ovn-multinet/ovn-multinet/sriov/deviceinfo"
)

// Runner runs the plugins of delegates for one CNI call.
type Runner struct {
	cni       *libcni.CNIConfig
	exec      *executor
	journal   journal.Dir
	deviceDir string
	conflist  string
	note      Note
}

// Note writes a line about a sandbox into the plugin's log.
type Note func(s *agentapi.Sandbox, message string, args ...any)

// NewRunner returns the runner for a CNI call of a sandbox. path is CNI_PATH. deviceDir is the folder with the device
// information of CNI plugins.
func NewRunner(c *conf.Plugin, s *agentapi.Sandbox, path, deviceDir string, note Note) *Runner {
	state := journal.Dir(c.StateDir)
	e := &executor{
		allowed: &delegateconf.Allowed{Delegates: c.AllowedDelegates, IPAM: c.AllowedIPAM},
		note: func(why error) {
			note(s, "ran a network's plugin without the limits of all its processes together", "err", why)
		},
	}
	return &Runner{
		cni:  libcni.NewCNIConfigWithCacheDir(filepath.SplitList(path), state.Results(), e),
		exec: e, journal: state, deviceDir: deviceDir, conflist: c.Name, note: note,
	}
}

// CheckPlan reports whether all programs of a plan's delegates are allowed and installed: the plugins of each list,
// and the IPAM plugins that they run. The agent has checked the plan too, but the conflist of this node decides.
func (r *Runner) CheckPlan(p *agentapi.Plan) error {
	for i := range p.Delegates {
		list, err := readConflist(&p.Delegates[i])
		if err != nil {
			return err
		}
		for n, programs := range list.programs {
			if err := r.exec.find(programs, r.cni.Path); err != nil {
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

// runtime returns the parameters for the plugins of a delegate. A DEL gets the same ones as the ADD, except for a
// network namespace that is gone (CNI specification, section 2, DEL). No plugin gets the namespace of the node: the
// plugin would delete the node's interfaces.
func (r *Runner) runtime(e *journal.Entry, p *agentapi.Delegate) *libcni.RuntimeConf {
	rt := &libcni.RuntimeConf{ContainerID: e.Sandbox.ContainerID, NetNS: e.NetNS, IfName: p.Name,
		CapabilityArgs: map[string]any{}}
	if !exists(rt.NetNS) || wiring.IsNodeNetns(rt.NetNS) {
		rt.NetNS = ""
	}
	// Some plugins refuse keys that they do not know. The runtime's keys for the pod may be unknown to them (CNI's
	// conventions, "CNI_ARGS").
	rt.Args = append(rt.Args, [2]string{ignoreUnknown, "1"})
	for pair := range strings.SplitSeq(e.Args, ";") {
		if key, value, ok := strings.Cut(pair, "="); ok && key != ignoreUnknown {
			rt.Args = append(rt.Args, [2]string{key, value})
		}
	}
	for _, pair := range p.Args { // delegates from libcni's cache already have IgnoreUnknown
		if pair[0] != ignoreUnknown {
			rt.Args = append(rt.Args, pair)
		}
	}
	for key, value := range p.Capabilities {
		rt.CapabilityArgs[key] = value
	}
	rt.CapabilityArgs[deviceinfo.Capability] = r.deviceFile(&e.Sandbox, p)
	return rt
}

// ignoreUnknown is the key of CNI_ARGS that makes a plugin ignore keys that it does not know.
const ignoreUnknown = "IgnoreUnknown"

// uses sets the list whose plugins the executor runs, and their previous result. It returns the stubs for libcni.
func (r *Runner) uses(list *conflist, prev json.RawMessage) *libcni.NetworkConfigList {
	r.exec.list, r.exec.prev = list, prev
	return list.stubs
}

// Add runs the ADDs of a plan's delegates in their order, except those that a running pod has already. It writes each
// delegate into the journal before the ADD begins.
func (r *Runner) Add(ctx context.Context, e *journal.Entry) error {
	for i := e.Begun; i < len(e.Plan.Delegates); i++ {
		p := &e.Plan.Delegates[i]
		e.Begun = i + 1
		if err := r.journal.Write(e); err != nil {
			return err
		}
		failpoint.Hit("delegate-begun")
		list, err := readConflist(p)
		if err != nil {
			return err
		}
		if err := list.prepareDevice(p, r.deviceFile(&e.Sandbox, p)); err != nil {
			return named(p, err)
		}
		if list.given, err = given(e, p, list); err != nil {
			return named(p, err)
		}
		result, err := r.cni.AddNetworkList(ctx, r.uses(list, nil), r.runtime(e, p))
		if err != nil {
			return named(p, delegateError(err))
		}
		text, err := json.Marshal(result)
		if err != nil {
			return named(p, delegateError(err))
		}
		if p.Chained {
			if err := wiring.CheckChained(e.NetNS, e.Plan.Interface(p.Name)); err != nil {
				return named(p, err)
			}
		}
		device, err := list.readDevice(p, r.deviceFile(&e.Sandbox, p))
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

// given is the CNI result of the interface that chained plugins work on, in the version of their list; nil: they make
// an interface of their own, or the journal does not have the interface any more.
func given(e *journal.Entry, p *agentapi.Delegate, list *conflist) (json.RawMessage, error) {
	if !p.Chained || e.Plan == nil || e.Plan.Interface(p.Name) == nil {
		return nil, nil
	}
	return wiring.Result(e.NetNS, &e.Sandbox, e.Plan.Interface(p.Name), list.stubs.CNIVersion)
}

// lastResult is what the plugins of delegate i were told or made last.
func lastResult(e *journal.Entry, i int, list *conflist) json.RawMessage {
	if made := e.Result(i); made != nil {
		return made
	}
	told, _ := given(e, &e.BegunDelegates()[i], list) // without it, the plugin gets no prevResult
	return told
}

// checkResults limits the size of all results of the delegates together, because the journal and the agent store all
// of them.
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

// delegateError gives a CNI code to libcni's own errors.
func delegateError(err error) error {
	if _, ok := errors.AsType[*conf.Error](err); ok {
		return err
	}
	return conf.Errorf(conf.CodeDelegateFailed,
		"the plugin or its configuration in the NetworkAttachmentDefinition is at fault", "%w", err)
}

// Del runs the DELs of the delegates whose ADD was begun, the last one first. A failed DEL does not stop the others
// (multi-net-spec 1.3, section 7.2). Del returns the indexes of the delegates whose DEL failed, and the reasons for
// the delegates that it abandoned.
func (r *Runner) Del(ctx context.Context, e *journal.Entry) (failed []int, abandoned []string, err error) {
	var errs []error
	begun := e.BegunDelegates()
	for i := len(begun) - 1; i >= 0; i-- {
		p := &begun[i]
		list, err := readConflist(p)
		holder := ""
		if err == nil && e.Damaged {
			holder, err = r.holderOf(e, list)
		}
		if err == nil && holder == "" {
			rt := r.runtime(e, p)
			r.restore(list, rt, lastResult(e, i, list))
			err = r.cni.DelNetworkList(ctx, r.uses(list, nil), rt)
		}
		if holder != "" {
			abandoned = append(abandoned, r.abandon(e, p, list,
				fmt.Errorf("its entry is damaged, and container %.12s has its device by now", holder)))
		}
		if err != nil && list != nil && wiring.NetnsGone(e.NetNS) && list.holdsOnlyNetns() {
			abandoned = append(abandoned, r.abandon(e, p, list,
				fmt.Errorf("its network namespace is gone, and it holds nothing outside: %w", err)))
			err = nil
		}
		if err == nil {
			err = deviceinfo.Delete(r.deviceFile(&e.Sandbox, p))
		}
		if err != nil {
			errs = append(errs, named(p, delegateError(err)))
			failed = append([]int{i}, failed...)
			continue
		}
		failpoint.Hit("delegate-gone")
	}
	return failed, abandoned, errors.Join(errs...)
}

// abandon deletes the stored result of an attachment without a successful DEL. It logs the reason, and returns the
// reason for the agent's log.
func (r *Runner) abandon(e *journal.Entry, p *agentapi.Delegate, list *conflist, why error) string {
	why = named(p, why)
	r.note(&e.Sandbox, "abandoned a delegate", "err", why)
	_ = os.Remove(r.journal.Result(list.stubs.Name, e.Sandbox.ContainerID, p.Name))
	return oneLine(why.Error())
}

// holderOf returns the container that has the device of a list now, by the journal; "": no container has it. The
// agent does not know the devices of a damaged entry, so the agent may have allocated the device to another
// container. A DEL would remove the device from that container.
func (r *Runner) holderOf(e *journal.Entry, list *conflist) (container string, err error) {
	var id string
	if len(list.plugins) == 0 || json.Unmarshal(list.plugins[0]["deviceID"], &id) != nil || id == "" {
		return "", nil
	}
	all, _, err := r.journal.Summaries()
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

// Forget deletes the stored data of the delegates whose ADD was begun, without a DEL: an operator says that no DEL
// will ever succeed.
func (r *Runner) Forget(e *journal.Entry) {
	begun := e.BegunDelegates()
	for i := range begun {
		_ = deviceinfo.Delete(r.deviceFile(&e.Sandbox, &begun[i]))
		if list, err := readConflist(&begun[i]); err == nil {
			_ = os.Remove(r.journal.Result(list.stubs.Name, e.Sandbox.ContainerID, begun[i].Name))
		}
	}
}

// Check runs CHECK of every delegate whose CNI version has CHECK.
func (r *Runner) Check(ctx context.Context, e *journal.Entry) error {
	for i := range e.Plan.Delegates {
		p := &e.Plan.Delegates[i]
		list, err := readConflist(p)
		if err != nil {
			return err
		}
		if !hasCheck(list.stubs.CNIVersion) {
			continue
		}
		rt := r.runtime(e, p)
		r.restore(list, rt, e.Result(i))
		// The routes may differ from the routes that the plugins made.
		if err := r.cni.CheckNetworkList(ctx, r.uses(list, e.Result(i)), rt); err != nil {
			return named(p, delegateError(err))
		}
	}
	return nil
}

// hasCheck reports whether a CNI version has CHECK. 0.4.0 was the first one.
func hasCheck(version string) bool {
	return version != "" && !strings.HasPrefix(version, "0.1.") && !strings.HasPrefix(version, "0.2.") &&
		!strings.HasPrefix(version, "0.3.")
}

// GC runs GC of the networks of this conflist's delegates: their plugins delete what belongs to no valid attachment.
// gone tells which entries are not valid. The attachments of all other entries are valid, because other conflists may
// have the same networks.
func (r *Runner) GC(ctx context.Context, entries []*journal.Entry, gone func(*journal.Entry) bool) error {
	lists := map[string]*conflist{}
	attachments := map[string][]types.GCAttachment{}
	for _, e := range entries {
		if e.Damaged {
			if err := r.Recall(e); err != nil {
				return err
			}
		}
		begun := e.BegunDelegates()
		for i := range begun {
			p := &begun[i]
			list, err := readConflist(p)
			if err != nil {
				continue // DEL returns this error
			}
			if e.Sandbox.Conflist == r.conflist {
				lists[string(p.Conflist)] = list
			}
			if !gone(e) {
				name := list.stubs.Name
				attachments[name] = append(attachments[name],
					types.GCAttachment{ContainerID: e.Sandbox.ContainerID, IfName: p.Name})
			}
		}
	}
	var errs []error
	for _, list := range lists {
		valid := &libcni.GCArgs{ValidAttachments: append([]types.GCAttachment{}, attachments[list.stubs.Name]...)}
		if err := r.withoutCache().GCNetworkList(ctx, r.uses(list, nil), valid); err != nil {
			errs = append(errs, fmt.Errorf("network %s: %w", list.stubs.Name, delegateError(err)))
		}
	}
	return errors.Join(errs...)
}

// withoutCache is libcni with a folder of results that does not exist. libcni's GC begins with a DEL of all results
// of the CNI name that are not in the list of valid attachments. These DELs would get the configuration of the GC,
// which may belong to another NAD. The DELs by the journal, each with its own configuration, have already run.
func (r *Runner) withoutCache() *libcni.CNIConfig {
	return libcni.NewCNIConfigWithCacheDir(r.cni.Path, filepath.Join(r.journal.Results(), "none"), r.exec)
}

// restore writes the result of an ADD into libcni's cache if the cache has lost it: libcni does not write files
// atomically. Without prevResult, a plugin may not delete everything that it made. libcni also reads a file that has
// only the result, without the fields that libcni adds.
func (r *Runner) restore(list *conflist, rt *libcni.RuntimeConf, result json.RawMessage) {
	if result == nil {
		return
	}
	if known, err := r.cni.GetNetworkListCachedResult(list.stubs, rt); err == nil && known != nil {
		return
	}
	path := r.journal.Result(list.stubs.Name, rt.ContainerID, rt.IfName)
	if os.MkdirAll(filepath.Dir(path), 0o700) == nil {
		// If this fails, the plugin gets no prevResult.
		_ = plainfile.Write(path, result, 0o600)
	}
}

// Recall finds the delegates of a damaged entry in libcni's cache.
func (r *Runner) Recall(e *journal.Entry) error {
	cached, err := r.cni.GetCachedAttachments(e.Sandbox.ContainerID)
	if err != nil {
		return fmt.Errorf("results of container %.12s: %w", e.Sandbox.ContainerID, err)
	}
	for _, a := range cached {
		p := agentapi.Delegate{
			Name: a.IfName, Network: a.Network, Conflist: a.Config, Args: a.CniArgs,
			Capabilities: map[string]json.RawMessage{},
		}
		for key, value := range a.CapabilityArgs {
			if p.Capabilities[key], err = json.Marshal(value); err != nil {
				return fmt.Errorf("results of container %.12s: %w", e.Sandbox.ContainerID, err)
			}
		}
		e.NetNS, e.Recalled = a.NetNS, append(e.Recalled, p)
	}
	return nil
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
