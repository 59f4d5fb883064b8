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

// nadWith is a NAD with a configuration, whose text its source keeps up to a size.
func nadWith(namespace, name, config string, keep int) *NAD {
	return &NAD{Namespace: namespace, Name: name, Config: ParseConfig(namespace, name, config, keep)}
}

// A source keeps short texts only. Two texts are told apart also if they are not kept.
func TestBoundaryParseConfigKeepsShortTexts(t *testing.T) {
	for _, tt := range []struct {
		name string
		text string
		keep int
		kept bool
	}{
		{"none", "", KeptConfig, true},
		{"no JSON, short", "{", KeptConfig, true},
		{"no JSON", strings.Repeat("x", 5000), KeptConfig, false},
		{"another plugin's at the bound", padded("bridge", KeptConfig), KeptConfig, true},
		{"another plugin's over the bound", padded("bridge", KeptConfig+1), KeptConfig, false},
		{"an OVN network over the bound", padded(conf.NetworkType, KeptConfig+1), KeptConfig, false},
		{"at the bound of one plan", padded("bridge", MaxDelegateConfig), MaxDelegateConfig, true},
		{"over the bound of one plan", padded("bridge", MaxDelegateConfig+1), MaxDelegateConfig, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := nadWith("shop", "n", tt.text, tt.keep)
			if n.Config.Omitted() == tt.kept || (n.Config.Text() == tt.text) != tt.kept || n.Config.Size() != len(tt.text) {
				t.Errorf("%d of %d bytes are kept", len(n.Config.Text()), n.Config.Size())
			}
			other := nadWith("shop", "n", strings.Replace(tt.text, "x", "y", 1), tt.keep)
			if strings.Contains(tt.text, "x") && (n.Equal(other) || n.Config.IsOf(strings.Replace(tt.text, "x", "y", 1))) {
				t.Error("another text is the same NAD")
			}
			if again := nadWith("shop", "n", tt.text, tt.keep); !n.Equal(again) || !n.Config.IsOf(tt.text) {
				t.Error("the same text is another NAD")
			}
		})
	}
}

// A configuration answers without its text. An OVN network that is too large says so in one line.
func TestBoundaryConfigsAnswerWithoutTheirTexts(t *testing.T) {
	word := func(s string, err error) string {
		if err == nil {
			return s
		}
		code, msg, _ := conf.Describe(err)
		return strings.TrimPrefix(fmt.Sprint(code, " ", msg), "999 ")
	}
	const (
		large  = "7 network shop/n: spec.config: 20000 bytes are more than 16384"
		bad    = "not valid JSON: invalid character 'x' looking for beginning of value"
		noType = `"type" is missing`
	)
	long := strings.Repeat("k", 5000)
	for _, tt := range []struct{ name, text, kind, id, network string }{
		{"another plugin's", padded("bridge", 5000), "bridge", "", `7 network shop/n: type is "bridge", not "ovn-multinet"`},
		{"a list", `{"plugins":[` + padded("bridge", 5000) + `]}`, "conflist", "", `7 network shop/n: type is "conflist", not "ovn-multinet"`},
		{"no JSON", strings.Repeat("x", 5000), bad, "7 network shop/n: " + bad, "7 network shop/n: " + bad},
		{"no type", `{"x":"` + long + `"}`, noType, "7 network shop/n: " + noType, "7 network shop/n: " + noType},
		{"a long type", padded(long, 6000), long[:128], "", `7 network shop/n: type is "` + long[:64] + `", not "ovn-multinet"`},
		{"OVN", padded(conf.NetworkType, 20000), conf.NetworkType, "shop/n", large},
		{"ovn-kubernetes'", padded(conf.OverlayType, 20000), conf.OverlayType, large, large},
		{"a large network", padded(conf.NetworkType, 16000), conf.NetworkType, "shop/n", `7 network shop/n: unknown key "x"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := nadWith("shop", "n", tt.text, KeptConfig)
			if !n.Config.Omitted() {
				t.Fatal("the text is kept")
			}
			_, err := n.Network()
			if got := word(n.Kind()); got != tt.kind {
				t.Errorf("kind %s, want %s", got, tt.kind)
			}
			if got := word(n.NetworkID()); got != tt.id {
				t.Errorf("network ID %s, want %s", got, tt.id)
			}
			if got := word("", err); got != tt.network {
				t.Errorf("network %s, want %s", got, tt.network)
			}
		})
	}
}

// A configuration is parsed once, however often a caller asks for the network. Only another text is parsed again.
func TestNetworkIsParsedOnce(t *testing.T) {
	n := nadWith("shop", "blue", config(`"subnets":"10.1.0.0/24"`), KeptConfig)
	first, err := n.Network()
	if err != nil {
		t.Fatal(err)
	}
	other := *n
	other.State = "{}"
	if allocs := testing.AllocsPerRun(100, func() {
		if again, err := other.Network(); again != first || err != nil {
			t.Errorf("another network, %v", err)
		}
	}); allocs != 0 {
		t.Errorf("%v allocations of each lookup", allocs)
	}
	if accepted, err := n.WithAccepted(first.Canonical()).Network(); err != nil || accepted == first || accepted.CheckEqual(first) != nil {
		t.Errorf("accepted: %v, %v", accepted, err)
	}
}

// Tenants can write the annotation with a network's state, and the name of a resource.
func TestBoundaryAnnotationsOfANAD(t *testing.T) {
	huge := strings.Repeat("x", 200<<10)
	var n, other NAD
	n.State, other.State = TrimState(huge+"1"), TrimState(huge+"2")
	if _, ok := n.NetworkState(); ok || len(n.State) > 100 || n.State == other.State || n.State == "" {
		t.Errorf("a state of 200 kB is kept as %q, another one as %.100q", n.State, other.State)
	}
	n.Resource = TrimResource("a.example/" + huge)
	if len(n.Resource) > 512 || !strings.HasPrefix(n.Resource, "a.example/xxx") {
		t.Errorf("a resource's name of 200 kB is kept as %d bytes", len(n.Resource))
	}
	text, err := json.Marshal(NetworkState{Reason: "no\n\x1b[2J" + strings.Repeat("y", 5000)})
	if err != nil {
		t.Fatal(err)
	}
	n.State = TrimState(string(text))
	state, ok := n.NetworkState()
	if !ok || len(state.Reason) > conf.MaxReason || !strings.HasPrefix(state.Reason, "no ?[2Jyyy") {
		t.Errorf("%v: reason %.40q of %d bytes", ok, state.Reason, len(state.Reason))
	}
	// The longest that the controller writes is read back as it was written.
	longest := NetworkState{Reason: strings.Repeat("\"", conf.MaxReason)}
	if text, err = json.Marshal(longest); err != nil {
		t.Fatal(err)
	}
	n.State = TrimState(string(text))
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
