// Package hostile owns the input of an attacking tenant: random NetworkAttachmentDefinitions and pod annotations that
// are nearly valid. Only tests import it, and it imports no package of this module.
package hostile

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"unicode"
)

// Tenant makes random texts. One seed always makes the same texts.
type Tenant struct{ *rand.Rand }

func New(seed uint64) *Tenant { return &Tenant{rand.New(rand.NewPCG(seed, 1))} }

// value is a JSON value: members, a list, or the text of a scalar. Members may have equal keys.
type value struct {
	members []member
	list    []*value
	text    string
	object  bool
}

type member struct {
	key   string
	value *value
}

var (
	plugins = []string{
		"dummy", "sbr", "vrf", "static", "host-local", "host-device", "bridge", "macvlan", "tuning", "dhcp", "flannel",
		"multus", "ovn-multinet", "ovn-k8s-cni-overlay", "../../bin/sh", "/bin/sh", "", "Dummy",
	}
	keys = []string{
		"type", "ipam", "plugins", "name", "cniVersion", "cniVersions", "args", "cni", "capabilities", "runtimeConfig",
		"prevResult", "dns", "routes", "dataDir", "ranges", "device", "bridge", "delegate", "delegates", "addresses",
		"address", "gateway", "vrfname", "table", "cni.dev/valid-attachments", "disableCheck", "deviceID", "subnets",
		"router", "topology", "excludeSubnets", "mtu", "ips", "mac",
	}
	seeds = []string{
		`{"cniVersion":"1.0.0","type":"dummy","ipam":{"type":"static","addresses":[{"address":"10.77.0.5/24"}]}}`,
		`{"cniVersion":"1.0.0","name":"a","plugins":[{"type":"dummy","ipam":{"type":"static"}},` +
			`{"type":"vrf","vrfname":"red"},{"type":"sbr"}]}`,
		`{"type":"dummy","ipam":{"type":"dummy"}}`,
		`{"type":"host-device","device":"eth0"}`,
		`{"type":"ovn-multinet","subnets":"10.1.0.0/16","routes":[{"dst":"10.9.0.0/16"}]}`,
		`{"type":"ovn-multinet","topology":"layer3","subnets":"10.128.0.0/16/24,fd80::/48/64","router":"core","mtu":1400}`,
		`{"type":"ovn-multinet","topology":"localnet","physicalNetworkName":"p","vlanID":7,` +
			`"excludeSubnets":"10.1.0.0/24"}`,
		`{"type":"ovn-k8s-cni-overlay","name":"shared","topology":"layer2","subnets":"10.1.0.0/24",` +
			`"netAttachDefName":"shop/a"}`,
	}
	annotations = []string{
		"a", "a,b@net7,shop/c",
		`[{"name":"a","interface":"data0","ips":["10.1.0.7"],"mac":"02:00:00:00:00:07"},{"name":"b"}]`,
		`[{"name":"a","cni-args":{"type":"host-device","ipam":{"type":"bridge"}},"default-route":["10.1.0.1"]}]`,
		`[{"name":"a","portMappings":[{"hostPort":80,"containerPort":80}],"bandwidth":{"ingressRate":1}}]`,
	}
)

// NAD returns a spec.config.
func (t *Tenant) NAD() string { return t.mutated(pick(t, seeds)) }

// Annotation returns a pod's networks annotation. The networks are a, b and c.
func (t *Tenant) Annotation() string { return t.mutated(pick(t, annotations)) }

func pick[T any](t *Tenant, from []T) T { return from[t.IntN(len(from))] }

// mutated changes a JSON text a few times in its structure, and any text sometimes in its bytes.
func (t *Tenant) mutated(text string) string {
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	if v, err := read(dec); err == nil && v.text == "" {
		for range t.IntN(4) {
			t.change(v)
		}
		text = v.String()
	}
	for t.IntN(6) == 0 && text != "" {
		at := t.IntN(len(text))
		switch t.IntN(4) {
		case 0:
			text = text[:at] + string(rune(t.IntN(0x300))) + text[at:]
		case 1:
			text = text[:at] + string([]byte{byte(t.IntN(256))}) + text[at+1:]
		case 2:
			text = text[:at]
		case 3:
			text += pick(t, []string{text, "{}", " ", "\x00", ",", "]"})
		}
	}
	return text
}

// change changes one object or list of the value.
func (t *Tenant) change(v *value) {
	all := v.all(nil)
	at := all[t.IntN(len(all))]
	if !at.object {
		at.list = append(at.list, t.value(2))
		return
	}
	if len(at.members) == 0 {
		at.members = append(at.members, member{pick(t, keys), t.value(2)})
		return
	}
	i := t.IntN(len(at.members))
	switch m := &at.members[i]; t.IntN(6) {
	case 0:
		m.key = t.otherCase(m.key)
	case 1: // the key twice, the second perhaps in another case
		at.members = append(at.members, member{pick(t, []string{m.key, t.otherCase(m.key)}), t.value(3)})
	case 2:
		m.value = t.value(3)
	case 3:
		at.members = append(at.members, member{pick(t, keys), t.value(3)})
	case 4:
		at.members = append(at.members, member{t.otherCase(pick(t, keys)), t.value(3)})
	case 5:
		m.value = &value{object: true, members: []member{{pick(t, keys), m.value}}}
	}
}

// otherCase changes the case of letters; encoding/json may still take both for one key.
func (t *Tenant) otherCase(key string) string {
	return strings.Map(func(r rune) rune {
		if t.IntN(3) > 0 {
			return r
		}
		return unicode.SimpleFold(r)
	}, key)
}

func (t *Tenant) value(depth int) *value {
	switch n := t.IntN(9); {
	case n < 3:
		text, _ := json.Marshal(pick(t, plugins))
		return &value{text: string(text)}
	case n < 5 || depth == 0:
		return &value{text: pick(t, []string{"null", "true", "0", "-1", "1e99", "99999999999999999999", `""`,
			`"10.1.0.0/16"`, `"\u0000"`, `"../../etc"`})}
	case n < 7:
		v := &value{object: true}
		for range 1 + t.IntN(3) {
			v.members = append(v.members, member{pick(t, keys), t.value(depth - 1)})
		}
		return v
	default:
		v := &value{}
		for range t.IntN(3) {
			v.list = append(v.list, t.value(depth-1))
		}
		return v
	}
}

// all lists the value's objects and lists, the value itself first.
func (v *value) all(found []*value) []*value {
	if v.text != "" {
		return found
	}
	found = append(found, v)
	for _, m := range v.members {
		found = m.value.all(found)
	}
	for _, e := range v.list {
		found = e.all(found)
	}
	return found
}

func (v *value) String() string {
	if v.text != "" {
		return v.text
	}
	var words []string
	for _, m := range v.members {
		key, _ := json.Marshal(m.key)
		words = append(words, string(key)+":"+m.value.String())
	}
	for _, e := range v.list {
		words = append(words, e.String())
	}
	if v.object {
		return "{" + strings.Join(words, ",") + "}"
	}
	return "[" + strings.Join(words, ",") + "]"
}

func read(dec *json.Decoder) (*value, error) {
	token, err := dec.Token()
	if err != nil {
		return nil, err
	}
	delim, nested := token.(json.Delim)
	if !nested {
		text, err := json.Marshal(token)
		return &value{text: string(text)}, err
	}
	v := &value{object: delim == '{'}
	for dec.More() {
		key := ""
		if v.object {
			token, err := dec.Token()
			if err != nil {
				return nil, err
			}
			key = fmt.Sprint(token)
		}
		inner, err := read(dec)
		if err != nil {
			return nil, err
		}
		if v.object {
			v.members = append(v.members, member{key, inner})
		} else {
			v.list = append(v.list, inner)
		}
	}
	_, err = dec.Token()
	return v, err
}
