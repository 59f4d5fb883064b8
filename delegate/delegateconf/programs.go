package delegateconf

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"sync"

	"github.com/ovn-multinet/ovn-multinet/conf"
)

// Allowed lists the plugins that the node's operator allows for networks of other plugins.
type Allowed struct {
	Delegates []string // as "type" of a plugin
	IPAM      []string // as "type" of its "ipam"
}

// CheckAllowed refuses a plugin that the node's operator does not allow as a delegate.
func CheckAllowed(plugin string, allowed []string) error {
	if slices.Contains(allowed, plugin) {
		return nil
	}
	if near := conf.NearOVN(plugin); near != "" {
		return conf.Errorf(conf.CodeNotAllowed, fmt.Sprintf("did you mean the type %q?", near),
			"delegate %.64q is not allowed on this node", plugin)
	}
	return conf.Errorf(conf.CodeNotAllowed,
		"ask the operator to add it to the chart's value plugin.allowedDelegates (the installer's --allowed-delegates)",
		"delegate %.64q is not allowed on this node", plugin)
}

// CheckAllowedIPAM refuses a plugin that the node's operator does not allow for the addresses of a delegate. There are
// two lists, because a plugin that runs its "ipam" would run itself without end if it were its own "ipam".
func CheckAllowedIPAM(plugin string, allowed []string) error {
	if plugin == "" || slices.Contains(allowed, plugin) {
		return nil
	}
	return conf.Errorf(conf.CodeNotAllowed,
		"ask the operator to add it to the chart's value plugin.allowedIPAM (the installer's --allowed-ipam)",
		"delegate %.64q is not allowed as ipam on this node", plugin)
}

// Check refuses a delegate if one of its programs is not in the lists.
func (a *Allowed) Check(p *Programs) error {
	if err := CheckAllowed(p.Type, a.Delegates); err != nil {
		return err
	}
	return CheckAllowedIPAM(p.IPAM, a.IPAM)
}

// Programs are the plugins that one plugin's configuration runs.
type Programs struct {
	Type string
	IPAM string // "": none
}

// pluginType matches the name of a plugin's program, which is never a path. It is compiled when a pod has a delegate.
var pluginType = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)
})

// CheckPlugin checks the configuration of one plugin of a list, and returns the programs that it runs. first says that
// no plugin is before it in the list.
func CheckPlugin(config []byte, first bool) (*Programs, error) {
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(config, &keys); err != nil {
		return nil, conf.JSONError(err)
	}
	if keys == nil {
		return nil, errors.New("null, where a plugin's configuration is wanted")
	}
	for key := range keys {
		if OfRuntime(key) {
			return nil, fmt.Errorf("%.64q is for the runtime to set, leave it out", key)
		}
	}
	programs, err := ReadPrograms(config)
	if err != nil {
		return nil, err
	}
	return programs, CheckShipped(config, programs, first)
}

// ReadPrograms reads which programs a plugin's configuration runs. It reads as the plugin itself will read: by
// encoding/json, which takes keys in any case of letters. It refuses a configuration that another program may read
// differently.
func ReadPrograms(config []byte) (*Programs, error) {
	if err := CheckSameKeys(config); err != nil {
		return nil, err
	}
	var read struct {
		Type json.RawMessage `json:"type"`
		IPAM json.RawMessage `json:"ipam"`
	}
	if err := json.Unmarshal(config, &read); err != nil {
		return nil, conf.JSONError(err)
	}
	p := &Programs{}
	if read.Type != nil && json.Unmarshal(read.Type, &p.Type) != nil {
		return nil, errors.New("\"type\" is not a string")
	}
	if p.Type == "" {
		return nil, conf.ErrNoType
	}
	if conf.IsOVN(p.Type) {
		return nil, fmt.Errorf(
			"type: %q is a network of its own, it cannot be chained: a list has it once, as its first plugin", p.Type)
	}
	var ipam struct {
		Type json.RawMessage `json:"type"`
	}
	if read.IPAM != nil && json.Unmarshal(read.IPAM, &ipam) != nil {
		return nil, errors.New("\"ipam\" is not an object")
	}
	if ipam.Type != nil && json.Unmarshal(ipam.Type, &p.IPAM) != nil {
		return nil, errors.New("ipam: \"type\" is not a string")
	}
	for _, name := range []string{p.Type, p.IPAM} {
		if name != "" && !pluginType().MatchString(name) {
			return nil, fmt.Errorf("type: %.128q is no name of a plugin", name)
		}
	}
	return p, nil
}
