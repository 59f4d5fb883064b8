package nad

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// deviceForms are the keys that each type of device must have, in the map of its type, with the values that there are; none:
// any (Device Information Specification 1.1.0, section 3.1).
var deviceForms = map[string][]deviceKey{
	"pci":        {{name: "pci-address", form: pciAddress}},
	"vdpa":       {{name: "parent-device"}, {name: "driver", values: []string{"vhost", "virtio"}}, {name: "path"}},
	"vhost-user": {{name: "mode", values: []string{"client", "server"}}, {name: "path"}},
	"memif":      {{name: "role", values: []string{"master", "slave"}}, {name: "path"}, {name: "mode", values: strings.Fields("ethernet ip inject-punt")}},
}

type deviceKey struct {
	name   string
	values []string
	form   *regexp.Regexp
}

var (
	pciAddress    = regexp.MustCompile(`^[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-1][0-9a-fA-F]\.[0-7]$`)
	deviceVersion = regexp.MustCompile(`^\d{1,9}\.\d{1,9}\.\d{1,9}$`)
)

// CheckDevice tells whether a plugin's device information is what network-status may hold. Keys beside the required ones
// are their writer's.
func CheckDevice(text []byte) error {
	var info object
	if err := json.Unmarshal(text, &info); err != nil || info == nil {
		return errors.New("it is not a JSON object")
	}
	version, err := info.text("version")
	if err != nil {
		return err
	}
	if !deviceVersion.MatchString(version) {
		return fmt.Errorf("version: %q is none like 1.1.0", clip(version))
	}
	kind, err := info.text("type")
	if err != nil {
		return err
	}
	keys, known := deviceForms[kind]
	if !known {
		return fmt.Errorf("type: %q is none of pci, vdpa, vhost-user, memif", clip(kind))
	}
	var device object
	if json.Unmarshal(info[kind], &device) != nil || device == nil {
		return fmt.Errorf("%q is not there as an object", kind)
	}
	for _, key := range keys {
		if err := key.check(device); err != nil {
			return fmt.Errorf("%s: %w", kind, err)
		}
	}
	return nil
}

func (k *deviceKey) check(device object) error {
	value, err := device.text(k.name)
	switch {
	case err != nil:
		return err
	case value == "":
		return fmt.Errorf("%q is missing", k.name)
	case k.values != nil && !slices.Contains(k.values, value):
		return fmt.Errorf("%s: %q is none of %s", k.name, clip(value), strings.Join(k.values, ", "))
	case k.form != nil && !k.form.MatchString(value):
		return fmt.Errorf("%s: %q is no address like 0000:01:02.3", k.name, clip(value))
	}
	return nil
}
