package deviceinfo

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/ovn-multinet/ovn-multinet/conf"
)

// required has the keys that each device type must have (section 3.1). If a key has no values, it may have any
// non-empty string.
var required = map[string][]key{
	"pci":        {{name: "pci-address", form: pciAddress}},
	"vdpa":       {{name: "parent-device"}, {name: "driver", values: []string{"vhost", "virtio"}}, {name: "path"}},
	"vhost-user": {{name: "mode", values: []string{"client", "server"}}, {name: "path"}},
	"memif": {
		{name: "role", values: []string{"master", "slave"}}, {name: "path"},
		{name: "mode", values: strings.Fields("ethernet ip inject-punt")},
	},
}

type key struct {
	name   string
	values []string
	form   func() *regexp.Regexp
}

var (
	pciAddress = compiled(`^[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-1][0-9a-fA-F]\.[0-7]$`)
	version    = compiled(`^\d{1,9}\.\d{1,9}\.\d{1,9}$`)
)

// compiled returns a pattern that is compiled when it is first needed: the plugin starts for every pod, and most pods
// have no device.
func compiled(pattern string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(pattern) })
}

// IsPCIAddress reports whether the ID of a device is a PCI address in Linux' notation, in upper or lower case.
func IsPCIAddress(id string) bool { return pciAddress().MatchString(id) }

// object is a JSON object with case-sensitive keys. If we decoded into a struct, the case of the keys would be ignored.
type object map[string]json.RawMessage

// text returns the string with this key, or "" if the key is missing.
func (o object) text(name string) (s string, err error) {
	if o[name] != nil && json.Unmarshal(o[name], &s) != nil {
		return "", fmt.Errorf("%q is not a string", name)
	}
	return s, nil
}

// Validate checks device information. It ignores additional keys.
func Validate(text []byte) error {
	var info object
	if err := json.Unmarshal(text, &info); err != nil || info == nil {
		return errors.New("it is not a JSON object")
	}
	v, err := info.text("version")
	if err != nil {
		return err
	}
	if !version().MatchString(v) {
		return fmt.Errorf("version: %q is none like 1.1.0", clip(v))
	}
	kind, err := info.text("type")
	if err != nil {
		return err
	}
	keys, known := required[kind]
	if !known {
		return fmt.Errorf("type: %q is none of pci, vdpa, vhost-user, memif", clip(kind))
	}
	var device object
	if json.Unmarshal(info[kind], &device) != nil || device == nil {
		return fmt.Errorf("%q is not there as an object", kind)
	}
	for _, k := range keys {
		if err := k.check(device); err != nil {
			return fmt.Errorf("%s: %w", kind, err)
		}
	}
	return nil
}

func (k *key) check(device object) error {
	value, err := device.text(k.name)
	switch {
	case err != nil:
		return err
	case value == "":
		return fmt.Errorf("%q is missing", k.name)
	case k.values != nil && !slices.Contains(k.values, value):
		return fmt.Errorf("%s: %q is none of %s", k.name, clip(value), strings.Join(k.values, ", "))
	case k.form != nil && !k.form().MatchString(value):
		return fmt.Errorf("%s: %q is no address like 0000:01:02.3", k.name, clip(value))
	}
	return nil
}

// clip shortens the text of another program for an error.
func clip(s string) string {
	if len(s) > conf.MaxName {
		return strings.ToValidUTF8(s[:conf.MaxName], "") + "…"
	}
	return s
}
