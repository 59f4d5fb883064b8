package nad

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/delegate/delegateconf"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
)

// Delegate is an attachment that other CNI plugins make.
type Delegate struct {
	// Conflist is the configuration as the plugins get it: a list, with its name and version, and the pod's cni-args
	// in it.
	Conflist json.RawMessage
	// Capabilities are the pod's requests, by CNI's names of capabilities, for the plugins that declare them.
	Capabilities map[string]json.RawMessage
	// Args go into CNI_ARGS, for plugins that accept ips and mac only there.
	Args [][2]string
	// Warning is a text for the pod's owner.
	Warning string
	// programs are the programs that each plugin of the list runs.
	programs []*delegateconf.Programs
	list     object
	configs  []object
	// offered are the capabilities that at least one plugin declares.
	offered map[string]bool
	// chained says that the plugins are behind ours in the list of an OVN network.
	chained bool
}

// deviceKeys are the keys of a device in a plugin's configuration: the first of sriov and others, the second of
// host-device.
var deviceKeys = []string{"deviceID", "pciBusID"}

// SetDevice writes the pod's device into the list: into the configuration of the first plugin, where it replaces
// another device, and as the capability deviceID (CNI's conventions).
func (d *Delegate) SetDevice(id string) error {
	text, err := json.Marshal(id)
	if err != nil {
		return err
	}
	// Write into a copy: other attachments may share the list.
	d.list, d.configs = maps.Clone(d.list), slices.Clone(d.configs)
	d.configs[0] = maps.Clone(d.configs[0])
	for _, key := range deviceKeys { // no other spelling of them passes delegateconf.CheckSameKeys
		d.configs[0][key] = text
	}
	d.Capabilities["deviceID"] = text
	return d.write()
}

// write encodes the list.
func (d *Delegate) write() (err error) {
	if d.list["plugins"], err = json.Marshal(d.configs); err != nil {
		return err
	}
	d.Conflist, err = json.Marshal(d.list)
	return err
}

// cniVersions are the versions of the specification that a configuration may have.
var cniVersions = []string{"0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"}

// impliedVersion is the version of a configuration without one: the oldest version whose results list interfaces. Every
// plugin supports it today.
const impliedVersion = "0.3.1"

// Bounds on the configurations of delegates.
const (
	// MaxConfigs bounds the configurations of all delegates of a pod together, in bytes: a plan with them fits into a
	// message, and an agent has memory for several. A configuration that attachments share is counted once.
	MaxConfigs = 1 << 20
)

// cniName matches the name of a network (CNI specification, section 1).
var cniName = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.\-]{0,252}$`)

// ofList are the keys of a list, which a configuration for one plugin may have too.
var ofList = []string{"cniVersion", "cniVersions", "name", "disableCheck", "disableGC"}

// object is a JSON object that keeps the text of each value.
type object map[string]json.RawMessage

// delegateOf reads the spec.config of a NAD, for one plugin or a list, and adds what the pod requests.
func delegateOf(def *netmodel.NAD, s *Request, compatible bool) (*Delegate, error) {
	if size := def.Config.Size(); size > netmodel.MaxDelegateConfig {
		return nil, conf.TooLarge(size, netmodel.MaxDelegateConfig)
	}
	return readDelegate(def, []byte(def.Config.Text()), s.CNIArgs, 0, s, compatible)
}

// chainedOf reads the plugins behind ours in the list of an OVN network. The cni-args of an OVN network are ours.
func chainedOf(def *netmodel.NAD, n *netmodel.Network, s *Request) (*Delegate, error) {
	return readDelegate(def, []byte(n.Chained), nil, 1, s, false)
}

// readDelegate reads a configuration. ours is how many plugins of ours are before it in the list.
func readDelegate(def *netmodel.NAD, config []byte, cniArgs map[string]json.RawMessage, ours int, s *Request,
	compatible bool,
) (*Delegate, error) {
	list, plugins, err := readList(config)
	if err != nil {
		return nil, err
	}
	if err := nameList(list, def.Name); err != nil {
		return nil, err
	}
	d := &Delegate{
		Capabilities: map[string]json.RawMessage{}, list: list, configs: plugins, offered: map[string]bool{},
		chained: ours > 0,
	}
	for i, p := range plugins {
		programs, err := checkPlugin(p, cniArgs, d.offered, i+ours == 0)
		if err != nil {
			return nil, fmt.Errorf("plugins[%d]: %w", i+ours, err)
		}
		d.programs = append(d.programs, programs)
	}
	if err := d.write(); err != nil {
		return nil, err
	}
	return d, d.ask(s, d.offered, compatible)
}

// again returns the delegate of another attachment that adds nothing to the configuration. Both share its text.
func (d *Delegate) again(s *Request, compatible bool) (*Delegate, error) {
	other := *d
	other.Capabilities, other.Args, other.Warning = map[string]json.RawMessage{}, nil, ""
	return &other, other.ask(s, d.offered, compatible)
}

// CheckConfigsSize refuses a pod whose delegates' configurations are over MaxConfigs.
func CheckConfigsSize(attachments []Attachment) error {
	size, seen := 0, map[*byte]bool{}
	for i := range attachments {
		a := &attachments[i]
		if a.Delegate == nil || seen[&a.Delegate.Conflist[0]] {
			continue
		}
		seen[&a.Delegate.Conflist[0]] = true
		if size += len(a.Delegate.Conflist); size > MaxConfigs {
			return fmt.Errorf("interface %s: network %s: %w", a.Interface, &a.Request, ConfigsTooLarge(size))
		}
	}
	return nil
}

// ConfigsTooLarge returns the error for a pod whose delegates' configurations are over MaxConfigs. The caller adds the
// name of the network with which the sum exceeds the bound.
func ConfigsTooLarge(size int) error {
	return conf.Errorf(conf.CodeInvalidConfig,
		"name fewer networks in the pod's annotation "+conf.NetworksAnnotation+", or shorten their spec.config",
		"the configurations of the pod's networks up to this one: %w", conf.TooLarge(size, MaxConfigs))
}

// readList reads both forms of a configuration as a list.
func readList(text []byte) (list object, plugins []object, err error) {
	if !bytes.HasPrefix(bytes.TrimSpace(text), []byte("{")) {
		return nil, nil, fmt.Errorf("%s, where a CNI configuration is wanted", clip(string(text)))
	}
	if err := delegateconf.CheckSameKeys(text); err != nil {
		return nil, nil, err
	}
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, nil, fmt.Errorf("not valid JSON: %w", err)
	}
	if list["plugins"] == nil {
		one := object{}
		for key, value := range list {
			if !slices.Contains(ofList, key) {
				one[key] = value
				delete(list, key)
			}
		}
		return list, []object{one}, nil
	}
	if err := json.Unmarshal(list["plugins"], &plugins); err != nil {
		return nil, nil, errors.New("\"plugins\" is not a list of objects")
	}
	if len(plugins) == 0 {
		return nil, nil, errors.New("\"plugins\" is empty")
	}
	if len(plugins) > netmodel.MaxPlugins {
		return nil, nil, fmt.Errorf("%d plugins are more than %d", len(plugins), netmodel.MaxPlugins)
	}
	return list, plugins, nil
}

// nameList sets the list's name and version, which the plugins get (multi-net-spec 1.3, sections 3.4.2 and 7.1).
func nameList(list object, name string) error {
	given, err := list.text("name")
	if err != nil {
		return err
	}
	if given == "" {
		list["name"] = json.RawMessage(`"` + name + `"`)
	} else if !cniName.MatchString(given) {
		return fmt.Errorf("name: %q is no network's name", clip(given))
	}
	version, err := list.version()
	if err != nil {
		return err
	}
	list["cniVersion"] = json.RawMessage(`"` + version + `"`)
	delete(list, "cniVersions")
	for _, key := range []string{"disableCheck", "disableGC"} {
		if err := list.boolean(key); err != nil {
			return err
		}
	}
	return nil
}

// version returns the highest version that the configuration names and libcni supports (CNI specification, section 1,
// "Version considerations").
func (o object) version() (string, error) {
	one, err := o.text("cniVersion")
	if err != nil {
		return "", err
	}
	var named []string
	if o["cniVersions"] != nil && (json.Unmarshal(o["cniVersions"], &named) != nil || named == nil) {
		return "", errors.New("\"cniVersions\" is not a list of strings")
	}
	if one != "" {
		named = append(named, one)
	}
	if len(named) == 0 {
		return impliedVersion, nil
	}
	for _, v := range slices.Backward(cniVersions) {
		if slices.Contains(named, v) {
			return v, nil
		}
	}
	return "", fmt.Errorf("cniVersion: %q is none of %s", clip(strings.Join(named, ", ")), strings.Join(cniVersions, ", "))
}

// text returns the string with this key, or "" if the key is absent.
func (o object) text(key string) (string, error) {
	var s string
	if o[key] == nil {
		return "", nil
	}
	if err := json.Unmarshal(o[key], &s); err != nil {
		return "", fmt.Errorf("%q is not a string", key)
	}
	return s, nil
}

// boolean also accepts the string "true", as CNI requires of runtimes (CNI specification, section 1: disableCheck).
func (o object) boolean(key string) error {
	switch string(o[key]) {
	case "", "true", "false":
	case `"true"`:
		o[key] = json.RawMessage("true")
	case `"false"`:
		o[key] = json.RawMessage("false")
	default:
		return fmt.Errorf("%q is neither true nor false", key)
	}
	return nil
}

// checkPlugin checks one plugin's configuration. It adds the declared capabilities to offered, and the pod's cni-args
// to the configuration, where they replace the NAD's own (multi-net-spec 1.3, section 4.1.2.1.6.2). It returns the
// programs that the plugin runs. first says that the plugin is the first of the list.
func checkPlugin(p object, cniArgs map[string]json.RawMessage, offered map[string]bool, first bool) (
	*delegateconf.Programs, error,
) {
	if p == nil {
		return nil, errors.New("null, where a plugin's configuration is wanted")
	}
	var capabilities map[string]bool
	if p["capabilities"] != nil {
		if err := json.Unmarshal(p["capabilities"], &capabilities); err != nil {
			return nil, errors.New("\"capabilities\" is not an object of true and false")
		}
	}
	for name, yes := range capabilities {
		offered[name] = offered[name] || yes
	}
	if err := mergeArgs(p, cniArgs); err != nil {
		return nil, err
	}
	// The configuration as the plugin will read it.
	text, err := json.Marshal(p)
	if err != nil {
		return nil, err
	}
	return delegateconf.CheckPlugin(text, first)
}

func mergeArgs(p object, cniArgs map[string]json.RawMessage) error {
	args, inner := object{}, object{}
	if p["args"] != nil {
		if err := json.Unmarshal(p["args"], &args); err != nil || args == nil {
			return errors.New("\"args\" is not an object")
		}
	}
	if len(cniArgs) == 0 {
		return nil
	}
	if args["cni"] != nil {
		if err := json.Unmarshal(args["cni"], &inner); err != nil || inner == nil {
			return errors.New("\"args.cni\" is not an object")
		}
	}
	for key, value := range cniArgs {
		inner[key] = value
	}
	var err error
	if args["cni"], err = json.Marshal(inner); err != nil {
		return err
	}
	p["args"], err = json.Marshal(args)
	return err
}

// ask sets the capabilities from the pod's request. At least one plugin of the list must declare each of them.
func (d *Delegate) ask(s *Request, offered map[string]bool, compatible bool) error {
	texts := make([]string, 0, len(s.IPs))
	for _, ip := range s.IPs {
		text := ip.String()
		if ip.Bits() < 0 {
			text = ip.Addr().String()
		}
		texts = append(texts, text)
	}
	for _, w := range []struct {
		key, capability string
		asked           bool
		value           any
		arg             string
		argValue        string
	}{
		{"ips", "ips", len(s.IPs) > 0, texts, "IP", strings.Join(texts, ",")},
		{"mac", "mac", s.MAC != nil, s.MAC.String(), "MAC", s.MAC.String()},
		{"portMappings", "portMappings", s.PortMappings != nil, s.PortMappings, "", ""},
		{"bandwidth", "bandwidth", s.Bandwidth != nil, s.Bandwidth, "", ""},
		{"infiniband-guid", "infinibandGUID", s.GUID != nil, s.GUID.String(), "", ""},
	} {
		switch {
		case !w.asked:
		case d.chained && !offered[w.capability]: // an OVN port has them, or check has refused them
		case offered[w.capability]:
			value, err := json.Marshal(w.value)
			if err != nil {
				return err
			}
			d.Capabilities[w.capability] = value
		case compatible && w.arg != "":
			d.Args = append(d.Args, [2]string{w.arg, w.argValue})
			const form = "%s is passed as %s in CNI_ARGS, since no plugin of network %s declares the capability"
			words := []string{fmt.Sprintf(form, w.key, w.arg, s)}
			if d.Warning != "" {
				words = append([]string{d.Warning}, words...)
			}
			d.Warning = strings.Join(words, "; ")
		default:
			return &notCapable{w.key, w.capability}
		}
	}
	return nil
}

// notCapable returns the error for a request that no plugin of the network can serve.
type notCapable struct{ key, capability string }

func (e *notCapable) Error() string {
	return fmt.Sprintf("%s: no plugin of the network declares the capability %q", e.key, e.capability)
}
