package netmodel

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/ovn-multinet/ovn-multinet/conf"
)

// key is a key of spec.config. All that is done with a key follows from its row in the table networkKeys: parsing, the
// canonical form, comparison, the rules for a change, the lines of `kubectl multinet network show`, the chart's schema
// and the table in docs/networks.md.
type key struct {
	name string
	of   keyTypes // the types of networks that have the key
	only string   // the topology that has the key; "": all
	// parse sets the key on the network. text is nil if the key is absent.
	parse parser
	// check is for what a key needs of the keys after it.
	check func(n *Network) error
	// most bounds count, unless an older version has accepted the network.
	most  int
	count func(n *Network) int
	// value is what the canonical form has; the zero value: the form does not have the key. nil: the network does not
	// depend on the key.
	value func(n *Network) any
	none  string // what messages call the zero value; "": "none"

	change change                                    // what a change does while pods are on the network
	keeps  func(n *Network, to *Network) (why error) // the refused changes, if these are not all

	line   string                  // the label in `kubectl multinet network show`; "": it has no line
	dash   bool                    // the line is there without a value, too
	show   func(n *Network) string // the text of the line; nil: the value
	schema string                  // the JSON schema in the chart; "": networks of the chart do not have the key
	doc    string                  // the row in docs/networks.md; "": there is none
	preset string                  // the default, in this row
}

// keyTypes are the types of networks that have a key.
type keyTypes int

const (
	ofNetwork keyTypes = iota // conf.NetworkType
	ofBoth
	ofOverlay // conf.OverlayType
)

// change says, in the words of the docs, what a change of a key does while pods are on the network.
type change string

const (
	forNewPods    change = "for new pods"
	atOnce        change = "at once"
	mayGrow       change = "may grow"
	refusedChange change = "refused"
)

type parser func(k *key, n *Network, text json.RawMessage) error

// read returns a parser that decodes the JSON of a key and gives it to set: the zero value if the key is absent.
func read[T any](set func(n *Network, value T) error) parser {
	return func(k *key, n *Network, text json.RawMessage) error {
		var v T
		if text != nil {
			err := json.Unmarshal(text, &v)
			if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
				e.Field = k.name
			}
			if err != nil {
				return conf.JSONError(err)
			}
		}
		// ovn-kubernetes writes an absent key as a zero value.
		r := reflect.ValueOf(&v).Elem()
		if n.SharedName != "" && r.Kind() == reflect.Pointer && !r.IsNil() && r.Elem().IsZero() {
			r.SetZero()
		}
		if k.only == "" || k.only == n.Topology {
			return set(n, v)
		}
		if isZero(v) {
			return nil
		}
		return fmt.Errorf("%s: it is for topology %q", k.name, k.only)
	}
}

// ignore is for keys of CNI that have no effect.
func ignore[T any](*Network, T) error { return nil }

// refuse parses a known key that is not served yet: only a zero value is accepted. If we ignored such a key, the
// network would not be the one that the user requested.
func refuse(k *key, _ *Network, text json.RawMessage) error {
	var compact bytes.Buffer
	_ = json.Compact(&compact, text) // the text is valid, or absent
	if !slices.Contains([]string{"", "null", "false", `""`, "{}", "0", "[]"}, compact.String()) {
		return fmt.Errorf("%q is not served yet, leave it out", k.name)
	}
	return nil
}

func isZero(v any) bool {
	r := reflect.ValueOf(v)
	return !r.IsValid() || r.IsZero() || r.Kind() == reflect.Slice && r.Len() == 0
}

// in reports whether networks of a type have the key.
func (k *key) in(kind string) bool {
	return k.of == ofBoth || (k.of == ofOverlay) == (kind == conf.OverlayType)
}

// Keys returns the names of the keys that a network of a type may have.
func Keys(kind string) []string { return keysOf(kind) }

// keysOf are the names of the keys of a type.
func keysOf(kind string) (names []string) {
	for i := range networkKeys {
		if k := &networkKeys[i]; k.in(kind) {
			names = append(names, k.name)
		}
	}
	return names
}

// parseKeys sets the keys of a configuration of that type, in the order of the table. A key that the type does not have
// gets its default.
func (n *Network) parseKeys(kind string, config []byte) error {
	values, err := conf.ReadObject(config, keysOf(kind), nil)
	if err != nil {
		return err
	}
	for i := range networkKeys {
		k, text := &networkKeys[i], json.RawMessage(nil)
		if k.in(kind) {
			text = values[k.name]
		} else if k.of == ofOverlay {
			continue
		}
		if err := k.parse(k, n, text); err != nil {
			return err
		}
	}
	for i := range networkKeys {
		if k := &networkKeys[i]; k.check != nil {
			if err := k.check(n); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkBounds refuses a network that costs too much.
func (n *Network) checkBounds() error {
	for i := range networkKeys {
		if k := &networkKeys[i]; k.count != nil && k.count(n) > k.most {
			return fmt.Errorf("%s: %d are more than %d", k.name, k.count(n), k.most)
		}
	}
	return nil
}

// stored is the key's value in the canonical form of a network; nil: the form does not have the key.
func (k *key) stored(n *Network) any {
	if k.value == nil || !k.in(n.kind()) {
		return nil
	}
	if v := k.value(n); !isZero(v) {
		return v
	}
	return nil
}

// word is the value in messages.
func (k *key) word(n *Network) string {
	switch v := k.stored(n).(type) {
	case nil:
		return "(" + cmp.Or(k.none, "none") + ")"
	case string:
		return v
	default:
		return string(mustMarshal(v))
	}
}

// Line is a line of `kubectl multinet network show`.
type Line struct{ Key, Label, Text string }

// Lines are the network's keys for a reader.
func (n *Network) Lines() (lines []Line) {
	for i := range networkKeys {
		k := &networkKeys[i]
		text := ""
		if k.show != nil {
			text = k.show(n)
		} else if k.stored(n) != nil {
			text = k.word(n)
		}
		if k.line != "" && (text != "" || k.dash) {
			lines = append(lines, Line{k.name, k.line, cmp.Or(text, "-")})
		}
	}
	return lines
}

// ownKey returns a key of the configuration that only conf.NetworkType has; "" if there is none.
func ownKey(config []byte) string {
	var values map[string]json.RawMessage
	if json.Unmarshal(config, &values) != nil {
		return ""
	}
	for i := range networkKeys {
		if k := &networkKeys[i]; k.of == ofNetwork && k.value != nil && values[k.name] != nil {
			return k.name
		}
	}
	return ""
}

// guestWords writes the guests for a reader.
func (n *Network) guestWords() string {
	words := make([]string, len(n.Guests))
	for i, g := range n.Guests {
		words[i] = g.Namespace + " within " + joinWords(g.Subnets, ",")
	}
	return strings.Join(words, "; ")
}

// routeWords writes the routes for a reader.
func (n *Network) routeWords() string {
	words := make([]string, len(n.Routes))
	for i, r := range n.Routes {
		words[i] = r.String()
		if !r.GW.IsValid() && r.Scope != conf.ScopeLink {
			words[i] = r.Dst.String() + " via each node's gateway"
		}
	}
	return strings.Join(words, ",")
}
