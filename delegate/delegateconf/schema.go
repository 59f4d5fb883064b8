package delegateconf

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"net"
	"net/netip"
	"slices"
	"sync"

	"github.com/ovn-multinet/ovn-multinet/conf"
)

// This file has the schema of the CNI plugins that the manifests allow for networks of other plugins. Everybody who may
// write a NetworkAttachmentDefinition runs these plugins as root. So the schema has each key that they read, with
// bounds, and refuses every other key. A plugin that an operator adds to the list has no schema.

// Bounds of the shipped plugins' lists and texts.
const (
	maxAddresses = 16  // of one interface, as in a pod's annotation
	maxRoutes    = 64  // of one interface
	maxServers   = 16  // of DNS, and as many domains and options
	maxText      = 253 // characters, the length of a domain name
)

// shipped are the plugins that the manifests allow. They are made when they are needed: the plugin, which starts for
// every pod, needs them only for a pod with delegates.
var shipped = sync.OnceValue(func() map[string]schema {
	return map[string]schema{
		"static": {ipam: fields{
			"type": text, "name": text,
			"addresses": list(maxAddresses, object(fields{"address": prefix, "gateway": address, "version": text})),
			"routes": list(maxRoutes, object(fields{
				"dst": prefix, "gw": address,
				"mtu": number(math.MaxInt32), "advmss": number(math.MaxInt32), "priority": number(math.MaxInt32),
				"table": number(math.MaxInt32), "scope": number(math.MaxUint8),
			})),
			"dns": dns,
		}, args: fields{"cni": open(fields{"ips": list(maxAddresses, prefix)})}}, // they replace "addresses"
		// dummy runs its "ipam" on DEL too, and fails without one.
		"dummy": {keys: fields{}, addresses: true},
		// sbr and vrf change the interface of an earlier plugin, and fail as the first plugin of a list.
		"sbr": {keys: fields{"table": number(math.MaxInt32)}, chained: true},
		"vrf": {
			keys:    fields{"vrfname": linkName, "table": number(math.MaxUint32)},
			chained: true, required: []string{"vrfname"},
		},
	}
})

// schema is what a shipped plugin's configuration may say.
type schema struct {
	keys      fields   // beside the keys of every plugin; nil: it is not a plugin for interfaces
	ipam      fields   // of "ipam"; nil: it is not a plugin for addresses
	args      fields   // of "args", if it is a plugin for addresses
	required  []string // keys
	chained   bool     // it needs an earlier plugin in the list
	addresses bool     // it needs an "ipam"
}

// everyPlugins are the keys that CNI and its conventions give every plugin.
var everyPlugins = fields{
	"cniVersion": text, "name": text, "type": text, "ipam": anything, "dns": dns, "args": open(nil), "capabilities": flags,
	"deviceID": text, "pciBusID": text,
}

// HoldsOnlyNetns reports whether everything that these plugins make is in the pod's network namespace and is deleted
// with it. It answers false for a plugin that is not shipped.
func HoldsOnlyNetns(plugins ...string) bool {
	for _, p := range plugins {
		if _, known := shipped()[p]; !known {
			return false
		}
	}
	return true
}

// Shipped returns the plugins that have a schema, those for interfaces and those for addresses.
func Shipped() (delegates, ipam []string) {
	for _, name := range slices.Sorted(maps.Keys(shipped())) {
		if shipped()[name].keys != nil {
			delegates = append(delegates, name)
		}
		if shipped()[name].ipam != nil {
			ipam = append(ipam, name)
		}
	}
	return delegates, ipam
}

// CheckShipped checks the configuration of one plugin against the schemas of its programs, if they have any. first says
// that the plugin is the first of its list. It ignores the runtime's keys, which a NetworkAttachmentDefinition cannot
// have.
func CheckShipped(config []byte, p *Programs, first bool) error {
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(config, &keys); err != nil {
		return conf.JSONError(err)
	}
	if s, known := shipped()[p.IPAM]; known && s.ipam != nil {
		if err := object(s.ipam)(keys["ipam"]); err != nil {
			return fmt.Errorf("ipam: plugin %q: %w", p.IPAM, err)
		}
		if args := keys["args"]; args != nil {
			if err := open(s.args)(args); err != nil {
				return fmt.Errorf("args: plugin %q: %w", p.IPAM, err)
			}
		}
	}
	s, known := shipped()[p.Type]
	if !known || s.keys == nil {
		return nil
	}
	maps.DeleteFunc(keys, func(key string, _ json.RawMessage) bool { return OfRuntime(key) })
	if err := s.check(keys, p, first); err != nil {
		return fmt.Errorf("plugin %q: %w", p.Type, err)
	}
	return nil
}

func (s *schema) check(keys map[string]json.RawMessage, p *Programs, first bool) error {
	if s.chained && first {
		return errors.New("it works on the interface of a plugin before it, and is the first of its list")
	}
	if s.addresses && p.IPAM == "" {
		return errors.New(`"ipam" is missing, its interface has addresses`)
	}
	for _, key := range s.required {
		if keys[key] == nil {
			return fmt.Errorf("%q is missing", key)
		}
	}
	all := maps.Clone(everyPlugins)
	maps.Copy(all, s.keys)
	return all.check(keys)
}

// value checks a JSON value.
type value func(json.RawMessage) error

// fields are the members that an object may have.
type fields map[string]value

func (f fields) check(members map[string]json.RawMessage) error {
	for _, key := range slices.Sorted(maps.Keys(members)) {
		check, known := f[key]
		if !known {
			return errors.New(conf.UnknownKey(key, slices.Sorted(maps.Keys(f))))
		}
		if err := check(members[key]); err != nil {
			return fmt.Errorf("%q: %w", key, err)
		}
	}
	return nil
}

// object accepts an object with these members only.
func object(f fields) value {
	return func(text json.RawMessage) error {
		members, err := membersOf(text)
		if err != nil {
			return err
		}
		return f.check(members)
	}
}

// open accepts an object with these members and any others.
func open(f fields) value {
	return func(text json.RawMessage) error {
		members, err := membersOf(text)
		if err != nil {
			return err
		}
		maps.DeleteFunc(members, func(key string, _ json.RawMessage) bool { return f[key] == nil })
		return f.check(members)
	}
}

func membersOf(text json.RawMessage) (members map[string]json.RawMessage, err error) {
	if json.Unmarshal(text, &members) != nil {
		return nil, errors.New("not an object")
	}
	return members, nil
}

// list accepts a list of at most limit values.
func list(limit int, each value) value {
	return func(text json.RawMessage) error {
		var values []json.RawMessage
		if json.Unmarshal(text, &values) != nil {
			return errors.New("not a list")
		}
		if len(values) > limit {
			return fmt.Errorf("%d values are more than %d", len(values), limit)
		}
		for i, v := range values {
			if bytes.Equal(v, []byte("null")) {
				return fmt.Errorf("[%d]: null is no value", i)
			}
			if err := each(v); err != nil {
				return fmt.Errorf("[%d]: %w", i, err)
			}
		}
		return nil
	}
}

// number accepts an integer from 0 to limit.
func number(limit uint64) value {
	return func(text json.RawMessage) error {
		var n *uint64
		if json.Unmarshal(text, &n) != nil || n != nil && *n > limit {
			return fmt.Errorf("not a number of 0 to %d", limit)
		}
		return nil
	}
}

// word reads a string of limited length; null is "".
func word(raw json.RawMessage) (string, error) {
	var s string
	if json.Unmarshal(raw, &s) != nil {
		return "", errors.New("not a string")
	}
	if len(s) > maxText {
		return "", fmt.Errorf("%d characters are more than %d", len(s), maxText)
	}
	return s, nil
}

func text(raw json.RawMessage) error {
	_, err := word(raw)
	return err
}

func anything(json.RawMessage) error { return nil }

func flags(raw json.RawMessage) error {
	var f map[string]bool
	if json.Unmarshal(raw, &f) != nil {
		return errors.New("not an object of true and false")
	}
	return nil
}

// linkName accepts the name of an interface.
func linkName(raw json.RawMessage) error {
	s, err := word(raw)
	if err != nil {
		return err
	}
	return conf.CheckInterfaceName(s)
}

// address accepts an IP address, and null or "" for none.
func address(raw json.RawMessage) error {
	s, err := word(raw)
	if err != nil || s == "" {
		return err
	}
	if _, err := netip.ParseAddr(s); err != nil {
		return fmt.Errorf("%.64q is no IP address", s)
	}
	return nil
}

// prefix accepts an IP address with its prefix length. The plugins use net.ParseCIDR too.
func prefix(raw json.RawMessage) error {
	s, err := word(raw)
	if err != nil {
		return err
	}
	if _, _, err := net.ParseCIDR(s); err != nil {
		return fmt.Errorf("%.64q is no address with a prefix length, like 192.0.2.5/24", s)
	}
	return nil
}

// dns accepts CNI's object "dns".
func dns(raw json.RawMessage) error {
	return object(fields{
		"nameservers": list(maxServers, text), "domain": text,
		"search": list(maxServers, text), "options": list(maxServers, text),
	})(raw)
}
