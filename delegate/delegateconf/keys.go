package delegateconf

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/ovn-multinet/ovn-multinet/conf"
)

// The keys of CNI, as its specification and conventions spell them, by the object that has them. A plugin's
// configuration and a list share the first set.
var (
	pluginKeys = []string{
		"cniVersion", "cniVersions", "name", "type", "plugins", "ipam", "dns", "args", "capabilities",
		"disableCheck", "disableGC",
		"loadOnlyInlinedPlugins", "prevResult", "runtimeConfig", "deviceID", "pciBusID",
	}
	ipamKeys    = []string{"type"}
	argsKeys    = []string{"cni"}
	cniArgsKeys = []string{"ips", "mac", "labels"}
	runtimeKeys = []string{
		conf.AnnotationsCapability, "ips", "mac", "portMappings", "bandwidth", "dns", "infinibandGUID", "deviceID",
		"CNIDeviceInfoFile",
		"ipRanges", "aliases", "cgroupPath",
	}
)

// maxNesting bounds how deep the objects and lists of a configuration nest.
const maxNesting = 100

// CheckSameKeys refuses a CNI configuration, of one plugin or a list, that two programs may read differently.
// Plugins in Go read keys in any case of letters and let the last of two equal keys win; other readers do neither.
// So no object, at any depth, may have two keys that are equal but for their case, and a key of CNI is spelled as
// CNI spells it.
func CheckSameKeys(config []byte) error {
	if !utf8.Valid(config) {
		return errors.New("not valid JSON: it is not UTF-8")
	}
	var whole json.RawMessage // one value, and nothing behind it
	if err := json.Unmarshal(config, &whole); err != nil {
		return conf.JSONError(err)
	}
	dec := json.NewDecoder(bytes.NewReader(config))
	dec.UseNumber()
	if token, err := dec.Token(); err != nil || token != json.Delim('{') {
		return errors.New("not a JSON object")
	}
	return checkObject(dec, pluginKeys, nil)
}

// checkObject checks the members of an object; the caller has read the opening brace. known are the keys of CNI in this
// object, and path are the keys that lead to the object.
func checkObject(dec *json.Decoder, known, path []string) error {
	seen := map[string]string{}
	for dec.More() {
		token, err := dec.Token()
		if err != nil {
			return conf.JSONError(err)
		}
		key, _ := token.(string)
		folded := foldKey(key)
		if other, twice := seen[folded]; twice && other == key {
			return fmt.Errorf("key %.64q is given twice", key)
		} else if twice {
			return fmt.Errorf("keys %.64q and %.64q differ in the case of letters only: plugins read them as the same key",
				other, key)
		}
		seen[folded] = key
		i := slices.IndexFunc(known, func(k string) bool { return foldKey(k) == folded })
		if i >= 0 && known[i] != key {
			return fmt.Errorf("write key %.64q as %q: plugins read both as the same key", key, known[i])
		}
		if err := checkValue(dec, append(slices.Clip(path), key)); err != nil {
			return err
		}
	}
	_, err := dec.Token() // the closing brace
	return conf.JSONError(err)
}

// checkValue checks the next value.
func checkValue(dec *json.Decoder, path []string) error {
	if len(path) > maxNesting {
		return fmt.Errorf("not valid JSON: it nests deeper than %d", maxNesting)
	}
	token, err := dec.Token()
	if err != nil {
		return conf.JSONError(err)
	}
	switch token {
	case json.Delim('{'):
		return checkObject(dec, keysAt(path), path)
	case json.Delim('['):
		for dec.More() {
			if err := checkValue(dec, append(slices.Clip(path), "[]")); err != nil {
				return err
			}
		}
		_, err := dec.Token()
		return conf.JSONError(err)
	}
	return nil
}

// keysAt returns CNI's keys of the object at a path, which may lead through a list of plugins.
func keysAt(path []string) []string {
	if len(path) >= 2 && path[0] == "plugins" && path[1] == "[]" {
		path = path[2:]
	}
	switch strings.Join(path, "/") {
	case "":
		return pluginKeys
	case "ipam":
		return ipamKeys
	case "args":
		return argsKeys
	case "args/cni":
		return cniArgsKeys
	case "runtimeConfig":
		return runtimeKeys
	}
	return nil
}

// foldKey returns the same text for all keys that encoding/json reads as one key: Unicode's simple folding, by which
// U+017F is an s and U+212A is a k.
func foldKey(key string) string {
	return strings.Map(func(r rune) rune {
		for {
			next := unicode.SimpleFold(r)
			if next <= r {
				return next // the smallest rune of the fold
			}
			r = next
		}
	}, key)
}

// OfRuntime reports whether only the runtime may set a key of a plugin's configuration (CNI specification, sections 1
// and 4).
func OfRuntime(key string) bool {
	folded := foldKey(key)
	return folded == foldKey("runtimeConfig") || folded == foldKey("prevResult") ||
		strings.HasPrefix(folded, foldKey("cni.dev/"))
}
