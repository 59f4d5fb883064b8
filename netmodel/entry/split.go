package entry

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// Split makes objects from a file of --config, in JSON. rest is what stays in the file: the limits of namespaces, and
// the namespaces whose networks may be without port security.
func Split(file []byte) (objects []*Object, rest []byte, err error) {
	d, err := read(file)
	if err != nil {
		return nil, nil, err
	}
	add := func(kind *Kind, entry string, spec map[string]json.RawMessage, name, key, value string) error {
		if name = objectName(name); name != value || key == "router" {
			spec[key], _ = json.Marshal(value) // impossible to fail: a string
		}
		text, err := json.Marshal(spec)
		if err != nil {
			return fmt.Errorf("%s: %w", entry, err)
		}
		objects = append(objects, &Object{Kind: kind, Name: name, Spec: text})
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(d.PhysicalNetworks)) {
		spec := map[string]json.RawMessage{}
		if spec["grants"], err = json.Marshal(d.PhysicalNetworks[name]); err == nil {
			err = add(physicalNetwork, name, spec, name, "physicalNetworkName", name)
		}
		if err != nil {
			return nil, nil, err
		}
	}
	for _, router := range slices.Sorted(maps.Keys(d.Routers)) {
		spec, pools := d.Routers[router], map[string]map[string]json.RawMessage{}
		if spec == nil {
			spec = map[string]json.RawMessage{}
		}
		if text := spec[keyPools]; text != nil {
			if err := json.Unmarshal(text, &pools); err != nil {
				return nil, nil, fmt.Errorf("router %s: addressPools: %w", router, err)
			}
			delete(spec, keyPools)
		}
		short := strings.ReplaceAll(strings.TrimPrefix(router, "/"), "/", ".")
		if err := add(routerKind, router, spec, short, "router", router); err != nil {
			return nil, nil, err
		}
		for _, pool := range slices.Sorted(maps.Keys(pools)) {
			spec := pools[pool]
			spec["router"], _ = json.Marshal(router)
			if err := add(addressPool, pool, spec, short+"."+pool, "pool", pool); err != nil {
				return nil, nil, err
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(d.SecurityProfiles)) {
		spec := map[string]json.RawMessage{}
		if err := json.Unmarshal(d.SecurityProfiles[name], &spec); err != nil {
			return nil, nil, fmt.Errorf("securityProfiles: %s: %w", name, err)
		}
		if err := add(securityProfile, name, spec, name, "profile", name); err != nil {
			return nil, nil, err
		}
	}
	rest, err = json.Marshal(document{PortSecurityOff: d.PortSecurityOff, Limits: d.Limits})
	return objects, rest, err
}

// objectNames matches the names of objects in Kubernetes (RFC 1123, section 2.1).
var objectNames = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$`)

// objectName returns a name as Kubernetes accepts it. Two texts that differ have names that differ.
func objectName(text string) string {
	if objectNames.MatchString(text) && !strings.Contains(text, "..") {
		return text
	}
	plain := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(text))
	sum := sha256.Sum256([]byte(text))
	return strings.Trim(fmt.Sprintf("%s-%x", plain, sum[:4]), "-")
}
