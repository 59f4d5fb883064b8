package netmodel

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/conf"
)

// padded is a configuration of a type with as many bytes.
func padded(kind string, size int) string {
	text := fmt.Sprintf(`{"type":%q,"name":"n","x":""}`, kind)
	return strings.Replace(text, `"x":"`, `"x":"`+strings.Repeat("x", size-len(text)), 1)
}

// What a source keeps of a configuration: the text of OVN networks and short ones, of others a hash.
func TestBoundarySetConfig(t *testing.T) {
	const ovn, overlay, bridge = conf.NetworkType, conf.OverlayType, "bridge"
	tests := []struct {
		name    string
		text    string
		whole   bool
		omitted string // size, kind and error; "": the text is kept
	}{
		{"none", "", false, ""},
		{"a short one of another plugin", padded(bridge, 1<<10), false, ""},
		{"another plugin's", padded(bridge, 1<<10+1), false, "1025 bridge "},
		{"another plugin's, for one plan", padded(bridge, 1<<10+1), true, ""},
		{"another plugin's at its bound, for one plan", padded(bridge, 256<<10), true, ""},
		{"another plugin's over its bound, for one plan", padded(bridge, 256<<10+1), true, "262145 bridge "},
		{"a list", `{"plugins":[` + padded(bridge, 2000) + `]}`, false, "2014 conflist "},
		{"OVN at its bound", padded(ovn, 16<<10), false, ""},
		{"OVN over its bound", padded(ovn, 16<<10+1), false, "16385 ovn-multinet "},
		{"OVN over its bound, for one plan", padded(ovn, 16<<10+1), true, "16385 ovn-multinet "},
		{"ovn-kubernetes' at its bound", padded(overlay, 16<<10), false, ""},
		{"ovn-kubernetes' over its bound", padded(overlay, 16<<10+1), false, "16385 ovn-k8s-cni-overlay "},
		{"no JSON, short", "{", false, ""},
		{"no JSON", strings.Repeat("x", 5000), false, "5000  not valid JSON: invalid character 'x' looking for beginning of value"},
		{"no type", `{"x":"` + strings.Repeat("x", 5000) + `"}`, false, `5008  "type" is missing`},
		{"a type of great length", padded(strings.Repeat("k", 5000), 6000), false, "6000 " + strings.Repeat("k", 77) + "… "},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			n := NAD{Namespace: "shop", Name: "n", Config: "older", Omitted: Omitted{Size: 1}}
			n.SetConfig(tt.text, tt.whole)
			got := fmt.Sprint(n.Omitted.Size, " ", n.Omitted.Kind, " ", n.Omitted.Error)
			if n.Omitted == (Omitted{}) {
				got = ""
			}
			if got != tt.omitted || (tt.omitted == "") != (n.Config == tt.text) || tt.omitted != "" && n.Config != "" {
				t.Fatalf("%q, and %d bytes of text; want %q", got, len(n.Config), tt.omitted)
			}
			// Two texts of a size are told apart.
			other := n
			other.SetConfig(strings.Replace(tt.text, "x", "y", 1), tt.whole)
			if strings.Contains(tt.text, "x") && other == n {
				t.Error("another text is the same NAD")
			}
		})
	}
}

// What can be asked of a NAD has the same answer with its text and without; one that is too large says so in one line.
func TestBoundaryOmittedConfigurationsAnswer(t *testing.T) {
	type answer struct{ kind, id, network string }
	ask := func(n *NAD) (a answer) {
		word := func(s string, err error) string {
			if err == nil {
				return s
			}
			code, msg, _ := conf.Describe(err)
			return fmt.Sprint(code, " ", msg)
		}
		a.kind = word(n.Kind())
		a.id = word(n.NetworkID())
		network, err := n.Network()
		a.network = word(fmt.Sprint(network != nil), err)
		return a
	}
	const large = "7 network shop/n: spec.config: 20000 bytes are more than 16384"
	tests := []struct {
		name, text string
		want       answer // zero: as with the text
	}{
		{"another plugin's", padded("bridge", 5000), answer{}},
		{"a list", `{"plugins":[` + padded("bridge", 5000) + `]}`, answer{}},
		{"no JSON", strings.Repeat("x", 5000), answer{}},
		{"no type", `{"x":"` + strings.Repeat("x", 5000) + `"}`, answer{}},
		{"OVN", padded(conf.NetworkType, 20000), answer{conf.NetworkType, "shop/n", large}},
		{"ovn-kubernetes'", padded(conf.OverlayType, 20000), answer{conf.OverlayType, large, large}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			without := NAD{Namespace: "shop", Name: "n"}
			without.SetConfig(tt.text, false)
			if without.Omitted.Size != len(tt.text) {
				t.Fatalf("%d bytes omitted of %d", without.Omitted.Size, len(tt.text))
			}
			want := tt.want
			if want == (answer{}) {
				want = ask(&NAD{Namespace: "shop", Name: "n", Config: tt.text})
				want.kind = strings.Replace(want.kind, "999 ", "", 1)
			}
			got := ask(&without)
			got.kind = strings.Replace(got.kind, "999 ", "", 1)
			if got != want {
				t.Errorf("got  %+v\nwant %+v", got, want)
			}
		})
	}
}

// Tenants can write the annotation with a network's state, and the name of a resource.
func TestBoundaryAnnotationsOfANAD(t *testing.T) {
	huge := strings.Repeat("x", 200<<10)
	var n, other NAD
	n.SetState(huge + "1")
	other.SetState(huge + "2")
	if _, ok := n.NetworkState(); ok || len(n.State) > 100 || n == other || n.State == "" {
		t.Errorf("a state of 200 kB is kept as %q, another one as %.100q", n.State, other.State)
	}
	n.SetResource("a.example/" + huge)
	if len(n.Resource) > 512 || !strings.HasPrefix(n.Resource, "a.example/xxx") {
		t.Errorf("a resource's name of 200 kB is kept as %d bytes", len(n.Resource))
	}
	text, err := json.Marshal(NetworkState{Reason: "no\n\x1b[2J" + strings.Repeat("y", 5000)})
	if err != nil {
		t.Fatal(err)
	}
	n.SetState(string(text))
	state, ok := n.NetworkState()
	if !ok || len(state.Reason) > conf.MaxReason || !strings.HasPrefix(state.Reason, "no ?[2Jyyy") {
		t.Errorf("%v: reason %.40q of %d bytes", ok, state.Reason, len(state.Reason))
	}
	// The longest that the controller writes is read back as it was written.
	longest := NetworkState{Reason: strings.Repeat("\"", conf.MaxReason)}
	if text, err = json.Marshal(longest); err != nil {
		t.Fatal(err)
	}
	n.SetState(string(text))
	if state, ok := n.NetworkState(); !ok || state != longest {
		t.Errorf("the controller's own state became %+v", state)
	}
}

func TestBoundaryKeptAnnotations(t *testing.T) {
	huge := strings.Repeat("x", 200<<10)
	kept := conf.TrimAnnotations(map[string]string{
		conf.NetworksAnnotation: huge, conf.RoutesAnnotation: strings.Repeat("r", conf.MaxAnnotation), conf.DefaultNetworkAnnotation: huge,
		conf.AnnotationPrefix + "a": huge, conf.AnnotationPrefix + "b": huge, "example.com/x": huge, conf.AnnotationPrefix + "c" + huge: "",
	})
	size := 0
	for key, value := range kept {
		size += len(key) + len(value)
	}
	t.Attr("boundary.bytes-kept-of-a-pods-annotations", fmt.Sprint(size))
	if len(kept) != 4 || size > conf.MaxAnnotation+500 || len(kept[conf.RoutesAnnotation]) != conf.MaxAnnotation {
		t.Errorf("%d annotations of %d bytes are kept", len(kept), size)
	}
	if err := conf.CheckAnnotation(kept[conf.NetworksAnnotation]); err == nil || err.Error() != "204800 bytes are more than 65536" {
		t.Errorf("the long one is refused with %v", err)
	}
	if err := conf.CheckAnnotation(kept[conf.RoutesAnnotation]); err != nil {
		t.Errorf("the one at its bound is refused with %v", err)
	}
	if again := conf.TrimAnnotations(kept); fmt.Sprint(again) != fmt.Sprint(kept) {
		t.Error("what is kept changes when it is kept again")
	}
}
