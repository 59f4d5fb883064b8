package delegate

import (
	"encoding/json"
	"fmt"
	"maps"
	"strconv"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/delegate/delegateconf"
)

// conflist is a delegate's configuration. libcni reads every number as a float, so libcni gets stubs of the plugins'
// configurations. The executor replaces each stub with the plugin's own keys, unchanged (CNI specification, section 1,
// "Plugin configuration objects": unknown fields are preserved).
type conflist struct {
	stubs   *libcni.NetworkConfigList
	plugins []map[string]json.RawMessage
	// programs are the programs that each plugin runs.
	programs []*delegateconf.Programs
	// chained: our plugin is before these plugins in the NAD's list. given is the CNI result of our interface, which the
	// first of them gets as its prevResult.
	chained bool
	given   json.RawMessage
}

// before is how many plugins of the NAD's list are before these.
func (c *conflist) before() int {
	if c.chained {
		return 1
	}
	return 0
}

// stubKey is the key of a stub that has the index of the plugin in the list.
const stubKey = "ovn-multinet/plugin"

// correctNAD is the details text of the error for a refused configuration.
const correctNAD = "correct spec.config of the NetworkAttachmentDefinition"

// readConflist reads the conflist that the agent made from a NetworkAttachmentDefinition. It refuses ambiguous keys
// and keys that only the runtime may set. The agent refuses them too, but an older agent may not.
func readConflist(d *agentapi.Delegate) (*conflist, error) {
	var text struct {
		Name         string                       `json:"name"`
		CNIVersion   string                       `json:"cniVersion"`
		DisableCheck bool                         `json:"disableCheck"`
		DisableGC    bool                         `json:"disableGC"`
		Plugins      []map[string]json.RawMessage `json:"plugins"`
	}
	invalid := func(err error) error {
		return named(d, conf.Errorf(conf.CodeInvalidConfig, correctNAD, "%w", err))
	}
	if err := json.Unmarshal(d.Conflist, &text); err != nil {
		return nil, invalid(err)
	}
	if err := delegateconf.CheckSameKeys(d.Conflist); err != nil {
		return nil, invalid(err)
	}
	c := &conflist{plugins: text.Plugins, chained: d.Chained, stubs: &libcni.NetworkConfigList{
		Name: text.Name, CNIVersion: text.CNIVersion, DisableCheck: text.DisableCheck, DisableGC: text.DisableGC,
		Bytes: d.Conflist,
	}}
	for i, p := range text.Plugins {
		if err := c.addStub(i, p); err != nil {
			return nil, invalid(fmt.Errorf("plugins[%d]: %w", i+c.before(), err))
		}
	}
	return c, nil
}

// addStub makes the stub of the list's plugin i for libcni.
func (c *conflist) addStub(i int, p map[string]json.RawMessage) error {
	for key := range p {
		if delegateconf.OfRuntime(key) {
			return fmt.Errorf("%.64q is for the runtime to set", key)
		}
	}
	stub, err := json.Marshal(map[string]json.RawMessage{
		"type": p["type"], "capabilities": p["capabilities"], "ipam": p["ipam"], stubKey: json.RawMessage(strconv.Itoa(i)),
	})
	if err != nil {
		return err
	}
	network := &types.PluginConf{}
	if err := json.Unmarshal(stub, network); err != nil {
		return err
	}
	programs, err := delegateconf.ReadPrograms(stub)
	if err != nil {
		return err
	}
	c.programs = append(c.programs, programs)
	c.stubs.Plugins = append(c.stubs.Plugins, &libcni.PluginConfig{Network: network, Bytes: stub})
	return nil
}

// checkShipped checks the configuration of the list's plugin i by the schema of the shipped plugins. Only ADD calls
// it: a DEL must also delete what another version attached.
func (c *conflist) checkShipped(i int) error {
	text, err := json.Marshal(c.plugins[i])
	if err != nil {
		return err
	}
	place := i + c.before()
	if err := delegateconf.CheckShipped(text, c.programs[i], place == 0); err != nil {
		return conf.Errorf(conf.CodeInvalidConfig, correctNAD, "plugins[%d]: %w", place, err)
	}
	return nil
}

// holdsOnlyNetns reports whether the list's plugins make nothing outside the pod's network namespace.
func (c *conflist) holdsOnlyNetns() bool {
	for _, p := range c.programs {
		if !delegateconf.HoldsOnlyNetns(p.Type) || p.IPAM != "" && !delegateconf.HoldsOnlyNetns(p.IPAM) {
			return false
		}
	}
	return len(c.programs) > 0
}

// request is the configuration that a plugin of the list gets (CNI specification, section 4, "Deriving request
// configuration from plugin configuration"): the plugin's own keys without capabilities, which are for the runtime,
// and the keys that libcni put into the stub. If prev is not nil, it replaces the result from libcni's cache. libcni
// gives the first plugin of a list no result on ADD; a chained list has one.
func (c *conflist) request(stub []byte, prev json.RawMessage) ([]byte, error) {
	var from map[string]json.RawMessage
	if err := json.Unmarshal(stub, &from); err != nil {
		return nil, err
	}
	i, err := strconv.Atoi(string(from[stubKey]))
	if err != nil || i < 0 || i >= len(c.plugins) {
		return nil, fmt.Errorf("no plugin has the number %s", from[stubKey])
	}
	for _, key := range []string{stubKey, "type", "capabilities", "ipam"} {
		delete(from, key)
	}
	config := maps.Clone(c.plugins[i])
	delete(config, "capabilities")
	maps.Copy(config, from)
	if prev != nil && config["prevResult"] != nil {
		config["prevResult"] = prev
	}
	if i == 0 && c.given != nil {
		config["prevResult"] = c.given
	}
	return json.Marshal(config)
}
