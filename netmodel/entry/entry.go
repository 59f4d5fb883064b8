// Package entry owns the operator's objects: physical networks, routers, pools of outside addresses and security
// profiles. Each object is one entry of the operator's configuration. The package joins objects with the file of the
// controller's --config, makes objects from such a file, and has their schemas for the API server.
package entry

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// The API group of the objects and the version that the controller reads.
const (
	Group      = "ovn-multinet.io"
	Version    = "v1alpha1"
	APIVersion = Group + "/" + Version
)

// Object is an object of the operator.
type Object struct {
	Kind       *Kind
	Name       string
	UID        string
	Created    int64  // seconds since 1970
	Generation int64  // another one for each change of Spec
	Version    string // another one for each change of anything
	Spec       json.RawMessage
	Status     Status
	Finalizers []string
	Deleting   bool // the object is gone when it has no finalizer
}

// Finalizer keeps an object while somebody needs it.
const Finalizer = Group + "/in-use"

// HasFinalizer reports whether the object has our finalizer.
func (o *Object) HasFinalizer() bool { return slices.Contains(o.Finalizers, Finalizer) }

// ID returns "<kind>/<name>", such as Router/core.
func (o *Object) ID() string { return o.Kind.Name + "/" + o.Name }

// Manifest returns the object as kubectl applies it.
func (o *Object) Manifest() any {
	return m{"apiVersion": APIVersion, "kind": o.Kind.Name, "metadata": m{"name": o.Name}, "spec": o.Spec}
}

// KindOf returns the kind with that name; nil: it is none of ours.
func KindOf(name string) *Kind {
	i := slices.IndexFunc(Kinds, func(k *Kind) bool { return k.Name == name })
	if i < 0 {
		return nil
	}
	return Kinds[i]
}

// Canonical returns a JSON text without spaces and with its keys in order, whoever wrote it; nil for a text that is no
// JSON.
func Canonical(text []byte) json.RawMessage {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var tree any
	if decoder.Decode(&tree) != nil || tree == nil {
		return nil
	}
	same, err := json.Marshal(tree)
	if err != nil {
		return nil
	}
	return same
}

// text returns the text of a key of the spec, or the default if the spec does not have the key.
func (o *Object) text(key, preset string) string {
	var spec map[string]json.RawMessage
	var text string
	if json.Unmarshal(o.Spec, &spec) != nil || json.Unmarshal(spec[key], &text) != nil || text == "" {
		return preset
	}
	return text
}

// Entry returns the name that the configuration has for the object's entry: of a router its full name, of a pool the
// full name of its router and its own.
func (o *Object) Entry() string { return o.Kind.entry(o) }

// document is the content of the controller's --config.
type document struct {
	Routers          map[string]map[string]json.RawMessage `json:"routers,omitempty"`
	PhysicalNetworks map[string][]json.RawMessage          `json:"physicalNetworks,omitempty"`
	SecurityProfiles map[string]json.RawMessage            `json:"securityProfiles,omitempty"`
	PortSecurityOff  json.RawMessage                       `json:"portSecurityOff,omitempty"`
	Limits           json.RawMessage                       `json:"limits,omitempty"`
	Uplinks          map[string][]json.RawMessage          `json:"uplinks,omitempty"` // only of objects
}

func read(file []byte) (*document, error) {
	d := &document{}
	if len(file) > 0 {
		if err := json.Unmarshal(file, d); err != nil {
			return nil, err
		}
	}
	return d, nil
}

const keyPools = "addressPools" // of a router in the file

// Join returns what the file of --config, in JSON, and the objects say together, in the form of the file. An error says
// which entry cannot be there. What the entries say is not checked: the reader of the file does that.
func Join(file []byte, objects []*Object) ([]byte, error) {
	d, err := read(file)
	if err != nil {
		return nil, err
	}
	all := &joined{d, map[string]string{}, map[string]map[string]json.RawMessage{}}
	for _, kind := range Kinds {
		for _, o := range objects {
			if o.Kind != kind {
				continue
			}
			if err := kind.join(all, o); err != nil {
				return nil, err
			}
		}
	}
	for router, pools := range all.pools {
		if d.Routers[router][keyPools], err = json.Marshal(pools); err != nil {
			return nil, err
		}
	}
	return json.Marshal(d)
}

// joined is the configuration while objects are added to it.
type joined struct {
	*document
	by    map[string]string                     // by entry: the object that describes it
	pools map[string]map[string]json.RawMessage // by router and name
}

// claim notes the object that describes an entry, and refuses a second one. It returns the spec as the file has it.
func (j *joined) claim(o *Object) (map[string]json.RawMessage, error) {
	what := o.Kind.Name + " " + o.Entry()
	if other := j.by[what]; other != "" {
		return nil, fmt.Errorf("object %s describes it already; one object describes one %s", other, o.Kind.Name)
	}
	j.by[what] = o.ID()
	return o.withoutNames()
}

// differs says that the file of --config has the entry of an object with other words.
func differs(o *Object) error {
	return fmt.Errorf("--config describes %s otherwise, and counts; delete the entry there (a value controller.* of the "+
		"chart), or make it equal", o.Entry())
}

// withoutNames returns the keys of a spec but those that name its entry. Such a key that is no name is refused: the
// object would describe the entry of its own name, of which its author does not think.
func (o *Object) withoutNames() (map[string]json.RawMessage, error) {
	var spec map[string]json.RawMessage
	if err := json.Unmarshal(o.Spec, &spec); err != nil || spec == nil {
		return nil, errors.New("spec is missing, or is no object")
	}
	for _, key := range o.Kind.names {
		var name string
		if text, there := spec[key]; there && (json.Unmarshal(text, &name) != nil || name == "") {
			return nil, fmt.Errorf("%s: want a name in quotes, or leave it out", key)
		}
		delete(spec, key)
	}
	return spec, nil
}

func joinRouter(j *joined, o *Object) error {
	spec, err := j.claim(o)
	if err != nil {
		return err
	}
	if spec[keyPools] != nil {
		return errors.New("addressPools: write an object AddressPool for each pool")
	}
	router := o.Entry()
	if there := j.Routers[router]; there != nil {
		if !equalButPools(there, spec) {
			return differs(o)
		}
		return nil
	}
	if j.Routers == nil {
		j.Routers = map[string]map[string]json.RawMessage{}
	}
	j.Routers[router] = spec
	return nil
}

// equalButPools reports whether a router of the file is that of an object, which has no pools.
func equalButPools(a, b map[string]json.RawMessage) bool {
	without := maps.Clone(a)
	delete(without, keyPools)
	return equal(without, b)
}

// equal reports whether two values are the same JSON, whatever the order of keys and the spaces.
func equal(a, b any) bool {
	canonical := func(v any) []byte {
		text, err := json.Marshal(v)
		if err != nil {
			return nil // impossible: both were read from JSON
		}
		return Canonical(text)
	}
	return bytes.Equal(canonical(a), canonical(b))
}

func joinPool(j *joined, o *Object) error {
	spec, err := j.claim(o)
	if err != nil {
		return err
	}
	router, pool, _ := strings.Cut(o.Entry(), " ")
	switch {
	case router == "":
		return errors.New(`router is missing: the full name of the pool's router, like "/core" or "shop/core"`)
	case j.Routers[router] == nil:
		return fmt.Errorf("router: there is no router %s; create an object Router for it", router)
	}
	if j.pools[router] == nil {
		pools := map[string]json.RawMessage{}
		if text := j.Routers[router][keyPools]; text != nil {
			if err := json.Unmarshal(text, &pools); err != nil {
				return err
			}
		}
		j.pools[router] = pools
	}
	if there, has := j.pools[router][pool]; has {
		if !equal(there, spec) {
			return differs(o)
		}
		return nil
	}
	j.pools[router][pool], err = json.Marshal(spec)
	return err
}

// joinPhysical adds the lists of an object to those of other objects about the same physical network.
func joinPhysical(j *joined, o *Object) error {
	spec, err := o.withoutNames()
	if err != nil {
		return err
	}
	name := o.Entry()
	const grants = `[{vlans: "100,200-299", namespaces: [shop]}]`
	if err := takeList(spec, "grants", grants, name, &j.PhysicalNetworks); err != nil {
		return err
	}
	if err := takeList(spec, "uplinks", `[{interface: eth1}]`, name, &j.Uplinks); err != nil {
		return err
	}
	for _, key := range slices.Sorted(maps.Keys(spec)) {
		return fmt.Errorf("unknown key %.64q; known are physicalNetworkName, grants and uplinks", key)
	}
	return nil
}

// takeList moves a list from a spec behind those that the entry has.
func takeList(
	spec map[string]json.RawMessage, key, form, name string, into *map[string][]json.RawMessage,
) error {
	text, there := spec[key]
	if !there {
		return nil
	}
	delete(spec, key)
	var list []json.RawMessage
	if json.Unmarshal(text, &list) != nil {
		return fmt.Errorf("%s: want a list like %s", key, form)
	}
	if *into == nil {
		*into = map[string][]json.RawMessage{}
	}
	(*into)[name] = append((*into)[name], list...)
	return nil
}

func joinProfile(j *joined, o *Object) error {
	spec, err := j.claim(o)
	if err != nil {
		return err
	}
	name := o.Entry()
	if there, has := j.SecurityProfiles[name]; has {
		if !equal(there, spec) {
			return differs(o)
		}
		return nil
	}
	if j.SecurityProfiles == nil {
		j.SecurityProfiles = map[string]json.RawMessage{}
	}
	j.SecurityProfiles[name], err = json.Marshal(spec)
	return err
}
