package delegateconf

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"

	"github.com/ovn-multinet/ovn-multinet/conf"
)

// Allowed is what the node's operator lets networks of other plugins run.
type Allowed struct {
	Delegates []string // as "type" of a plugin
	IPAM      []string // as "type" of its "ipam"
}

// CheckAllowed tells whether the node's operator lets a plugin be run as a delegate.
func CheckAllowed(plugin string, allowed []string) error {
	if slices.Contains(allowed, plugin) {
		return nil
	}
	return conf.Errorf(conf.CodeNotAllowed, "the node's operator lists what may be run as allowedDelegates of the ovn-multinet entry in /etc/cni/net.d",
		"delegate %.64q is not allowed on this node", plugin)
}

// CheckAllowedIPAM tells whether the node's operator lets a plugin be run for the addresses of a delegate. The
// lists are two: a plugin that runs its "ipam" runs itself without end where it stands there too.
func CheckAllowedIPAM(plugin string, allowed []string) error {
	if plugin == "" || slices.Contains(allowed, plugin) {
		return nil
	}
	return conf.Errorf(conf.CodeNotAllowed,
		"the node's operator lists what may be run for addresses as allowedIPAM of the ovn-multinet entry in /etc/cni/net.d",
		"delegate %.64q is not allowed as ipam on this node", plugin)
}

// Check holds both programs of a delegate against the lists.
func (a *Allowed) Check(p *Programs) error {
	if err := CheckAllowed(p.Type, a.Delegates); err != nil {
		return err
	}
	return CheckAllowedIPAM(p.IPAM, a.IPAM)
}

// Programs are the plugins that one plugin's configuration has run.
type Programs struct {
	Type string
	IPAM string // "": none
}

// pluginType is the name of a plugin's program. It is never a path.
var pluginType = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// ReadPrograms reads which programs a plugin's configuration has run, as the plugin itself will read it: by
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
		return nil, fmt.Errorf("type: %q is a network of its own, it cannot be chained", p.Type)
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
		if name != "" && !pluginType.MatchString(name) {
			return nil, fmt.Errorf("type: %.128q is no name of a plugin", name)
		}
	}
	return p, nil
}
