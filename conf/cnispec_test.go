package conf

import (
	"fmt"
	"slices"
	"testing"
)

// TestCodesOfTheSpecification: below 100 are codes of the CNI specification's table alone, in its meaning, and ours are
// above (section 5, "Error").
// Conformance: C-148
func TestCodesOfTheSpecification(t *testing.T) {
	var below []uint
	for _, c := range Codes {
		if c.Code < 100 {
			below = append(below, c.Code)
		}
	}
	if want := []uint{4, 6, 7, 11, 50, 51}; !slices.Equal(below, want) {
		t.Errorf("codes below 100 are %v, want %v", below, want)
	}
	of := []uint{CodeEnvironment, CodeDecoding, CodeInvalidConfig, CodeTryAgain, CodeNotAvailable, CodeLimited}
	if !slices.Equal(of, below) {
		t.Errorf("environment, decoding, configuration, try again, not available, limited are %v, want %v", of, below)
	}
}

// TestValidAttachments: what the runtime lists for GC is read (section 2, "GC").
// Conformance: C-69
func TestValidAttachments(t *testing.T) {
	p, err := ParsePlugin([]byte("{"+entry+`,"cni.dev/valid-attachments":[{"containerID":"c1","ifname":"eth0"},{"containerID":"c2","ifname":"eth1"}]}`), Lenient)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprint(p.ValidAttachments), "[{c1 eth0} {c2 eth1}]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestKeysForOthers: well-known keys and args, which a plugin may pass over, are no error (section 1, and the
// conventions' "args").
// Conformance: C-17 C-158 C-162
func TestKeysForOthers(t *testing.T) {
	for _, key := range []string{`"args":{"cni":{"labels":[{"key":"app","value":"x"}]}}`, `"ipam":{"type":"host-local"}`, `"dns":{"domain":"x"}`} {
		if p, err := ParsePlugin([]byte("{"+entry+","+key+"}"), Strict); err != nil || p.Name != "cbr0" {
			t.Errorf("%s: %v", key, err)
		}
	}
}
